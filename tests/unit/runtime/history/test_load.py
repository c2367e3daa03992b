"""Accounts of jobs, as the history has them: those that may go on, and those that do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainprobe.model.goodput import Goodput
from trainprobe.model.report import Run
from trainprobe.runtime.history import load
from trainprobe.runtime.history.load import JOBS, attempts_and_jobs
from trainprobe.store import database as database_module
from trainprobe.store.database import Database
from trainprobe.store.records import Batch, RunRow
from trainprobe.wire import codec


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(database_module, "SYNCHRONOUS", "OFF")
    made = Database(tmp_path / "history.sqlite")
    yield made
    made.close()


def row(job: str, started: float, ended: float | None, attempt: int = 1, productive: float = 1.0) -> RunRow:
    run = Run(job, ["python"], "user", "/", started, ended, attempt=attempt, job=job)
    run.goodput = Goodput(productive, attempt=attempt)
    told = ended if ended is not None else 9999.0
    return RunRow(run.key, 1000, started, ended, told, codec.dumps(run))


def accounts(database: Database, *rows: RunRow) -> list[tuple[str, float]]:
    batch = Batch()
    batch.runs = {one.run: one for one in rows}
    database.write(batch)
    _, jobs = attempts_and_jobs(database)
    return [(kept.job, kept.goodput.productive_seconds) for kept in jobs]


def sweep(runs: int) -> list[RunRow]:
    return [row(f"sweep-{number}", 2000.0 + number, 2001.0 + number) for number in range(runs)]


def test_of_ended_jobs_the_latest_may_go_on(database: Database) -> None:
    found = accounts(database, *sweep(JOBS + 6))
    assert found == [(f"sweep-{number}", 1.0) for number in range(6, JOBS + 6)]


@pytest.mark.parametrize("known", [load.KNOWN, 10])
def test_a_job_that_goes_on_keeps_its_account_however_many_runs_have_ended_since(
    database: Database, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """Also where its last attempt is not among the runs whose names are remembered."""
    monkeypatch.setattr(load, "KNOWN", known)
    first, second = row("big", 0.0, 100.0, productive=10.0), row("big", 200.0, 300.0, 2, productive=20.0)
    damaged = RunRow("damaged", 1000, 0.0, 1.0, 1.0, "{")
    found = accounts(database, first, second, row("big", 400.0, None, 3), *sweep(JOBS + 6), damaged)
    assert found[-1] == ("big", 20.0)
    assert len(found) == min(JOBS, known - 1) + 1
