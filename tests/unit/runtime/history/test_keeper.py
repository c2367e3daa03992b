"""The history beside the loop: nothing told is lost, nothing is told twice, no disk stops anybody."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.builders.waiting import wait_until
from tests.unit.runtime.telling import NOW, RUN, USER, Training
from trainprobe.cli import published
from trainprobe.config.schema import Retention
from trainprobe.model.report import Report
from trainprobe.runtime.history import keeper as module
from trainprobe.runtime.history import retention
from trainprobe.runtime.history.files import HistoryFiles
from trainprobe.runtime.history.keeper import EarlierState, HistoryKeeper
from trainprobe.runtime.history.retention import ClockJumpGuard, by_size
from trainprobe.runtime.publishing.publish import uid_of
from trainprobe.store import database as database_module
from trainprobe.store import schema
from trainprobe.store.database import Database
from trainprobe.store.records import Batch, RunRow
from trainprobe_exporters.history import History as Reader


class Kept:
    """A history in a directory of its own, and what it complained of."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        self.found = EarlierState()
        self.history = self._made()

    def _made(self) -> HistoryKeeper:
        return HistoryKeeper(
            self.directory, Retention(), complain=lambda what, _: self.said.append(str(what)), uid_of=uid_of,
            clock=lambda: NOW + 1000,
        )  # fmt: skip

    def open(self, last: Report | None = None) -> HistoryKeeper:
        self.history = self._made()
        self.found = self.history.open(last)
        return self.history

    def run(self, training: Training, seconds: int) -> None:
        for _ in range(seconds):
            report, steps = training.tell()
            self.history.add_report(report, steps, {})
            self.drained()

    def drained(self) -> None:
        wait_until(lambda: self.history._telling.report is None)
        with self.history._wake:
            pass

    def report(self) -> Report:
        found = published.kept(self.directory)
        assert found is not None
        return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power cut is played here: a test does not wait for the disk."""
    monkeypatch.setattr(database_module, "SYNCHRONOUS", "OFF")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "state")


def stalls_in(directory: Path) -> list[tuple[str, float | None]]:
    connection = sqlite3.connect(directory / "history.sqlite")
    try:
        return connection.execute('SELECT id, "end" FROM stalls ORDER BY start').fetchall()
    finally:
        connection.close()


def steps_in(directory: Path, tier: str) -> int:
    connection = sqlite3.connect(directory / "history.sqlite")
    try:
        return int(connection.execute("SELECT sum(count) FROM steps WHERE tier = ?", (tier,)).fetchone()[0])
    finally:
        connection.close()


def test_a_run_is_reported_after_the_daemons_end(kept: Kept) -> None:
    training = Training()
    kept.open()
    kept.run(training, 57)
    kept.history.close()
    (run,) = kept.report().runs
    assert run.ranks[0].steps.count == 57 * 20
    assert [stall.id for stall in run.ranks[0].stalls] == [stall.id for stall in training.stalls]
    assert stalls_in(kept.directory) == [(stall.id, stall.end) for stall in training.stalls]
    assert kept.said == []


def test_more_stalls_than_a_report_lists_are_kept(kept: Kept) -> None:
    training = Training(every=2)
    kept.open()
    kept.run(training, 450)
    kept.history.close()
    assert len(training.stalls) > 220
    assert stalls_in(kept.directory) == [(stall.id, stall.end) for stall in training.stalls]
    told = Reader(kept.directory / "published").stalls()
    assert [(one.stall.id, one.stall.end) for one in told] == [(stall.id, stall.end) for stall in training.stalls]


def test_every_step_can_be_read_in_every_tier(kept: Kept) -> None:
    training = Training()
    kept.open()
    kept.run(training, 350)
    kept.history.close()
    reader = Reader(kept.directory / "published")
    for points in (5000, 60, 3):
        rows = reader.steps(RUN, "0", since=0.0, points=points)
        assert sum(row.count for row in rows) == 350 * 20
        assert len(rows) <= points
    for tier in ("10s", "5min"):
        assert steps_in(kept.directory, tier) == 350 * 20


def test_rows_go_on_where_the_last_process_stopped(kept: Kept) -> None:
    training = Training()
    for _ in range(4):
        kept.open()
        kept.run(training, 33)
        kept.history.close()
    rows = Reader(kept.directory / "published").steps(RUN, "0", points=20)
    assert sum(row.count for row in rows) == 4 * 33 * 20
    assert steps_in(kept.directory, "5min") == 4 * 33 * 20


def test_what_a_killed_daemon_had_published_is_taken_in(kept: Kept) -> None:
    training = Training()
    kept.open()
    kept.run(training, 9)
    kept.history.close()
    training.second = 59
    training.tell()  # opens one
    kept.open(training.report())
    assert [run.run for run in kept.found.live] == [RUN]
    assert kept.found.live[0].ranks[0].stalls[-1].end is None
    kept.history.close()
    assert stalls_in(kept.directory) == [(training.stalls[-1].id, None)]


def test_runs_of_before_are_known_by_name_and_by_their_state(kept: Kept) -> None:
    over, live = Training("over-00000001"), Training("live-00000001")
    kept.open()
    kept.run(over, 5)
    over.ended = over.now
    kept.run(over, 1)
    kept.run(live, 12)
    kept.history.close()
    kept.open()
    assert kept.found.attempts == {os.getuid(): {"over-00000001": 1, "live-00000001": 1}}
    assert [(run.run, run.ranks[0].steps.count) for run in kept.found.live] == [("live-00000001", 240)]
    ((job, goodput),) = ((one.job, one.goodput) for one in kept.found.jobs)
    assert (job, goodput.productive_seconds) == ("over-00000001", 7.0)
    kept.history.close()


def test_a_run_that_is_not_found_again_has_ended(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    training, other = Training(), Training("other-00000001")
    kept.open()
    kept.run(training, 20)  # a stall is open at the end
    kept.history.close()
    monkeypatch.setattr(module, "GONE_SECONDS", 0.0)
    kept.open()
    kept.run(other, 2)
    kept.history.close()
    assert {run.run: run.ended for run in kept.report().runs} == {RUN: training.now, "other-00000001": None}
    assert all(end is not None for _, end in stalls_in(kept.directory))


def test_the_owner_has_a_file_that_nobody_else_can_read(kept: Kept) -> None:
    kept.open()
    kept.run(Training(), 3)
    kept.run(Training("theirs-00000001", "4242"), 3)
    kept.history.close()
    files = {path.name: path for path in (kept.directory / "users").iterdir()}
    assert set(files) == {f"{os.getuid()}.json", "4242.json"}
    theirs = files["4242.json"]
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o640, "the group's bits are the ACL's mask"
    assert [run["run"] for run in json.loads(theirs.read_text())["runs"]] == ["theirs-00000001"]
    assert theirs.stat().st_uid == os.geteuid()
    for path in (kept.directory / "published").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path
    assert stat.S_IMODE((kept.directory / "users").stat().st_mode) == 0o711


def test_a_damaged_file_is_moved_aside_and_told(kept: Kept) -> None:
    training = Training()
    kept.open()
    kept.run(training, 12)
    kept.history.close()
    (kept.directory / "history.sqlite").write_bytes(b"no database" * 1000)
    kept.open()
    kept.run(training, 12)
    assert kept.history.source().state == "error"
    assert "it lies in" in kept.history.source().reason
    kept.history.close()
    assert len(kept.said) == 1
    assert len(list(kept.directory.glob("history.sqlite.damaged-*"))) == 1
    assert [name for name, _ in stalls_in(kept.directory)] == [stall.id for stall in training.stalls]


def test_a_file_that_is_damaged_while_it_is_open_is_moved_aside(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    kept.open()
    kept.run(training, 12)
    write = Database.write

    def damaged_once(self: Database, batch: Batch) -> None:
        if not kept.said:
            raise sqlite3.DatabaseError("database disk image is malformed")
        write(self, batch)

    monkeypatch.setattr(Database, "write", damaged_once)
    kept.run(training, 20)
    wait_until(lambda: kept.said)
    kept.run(training, 20)
    kept.history.close()
    assert len(list(kept.directory.glob("history.sqlite.damaged-*"))) == 1
    assert [name for name, _ in stalls_in(kept.directory)] == [stall.id for stall in training.stalls]


def test_a_newer_schema_is_refused(kept: Kept) -> None:
    kept.directory.mkdir()
    Database(kept.directory / "history.sqlite", (*schema.MIGRATIONS, ("CREATE TABLE later (x)",))).close()
    with pytest.raises(schema.NewerSchemaError, match="schema 2"):
        kept.open()
    kept.history.close()


def test_a_disk_that_takes_nothing_is_told_and_survived(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    training = Training()
    kept.open()
    kept.run(training, 12)
    full = True
    write = Database.write

    def failing(self: Database, batch: Batch) -> None:
        if full:
            raise sqlite3.OperationalError("database or disk is full")
        write(self, batch)

    monkeypatch.setattr(Database, "write", failing)
    kept.run(training, 40)
    wait_until(lambda: kept.said)
    assert "disk is full" in kept.history.source().reason
    full = False
    time.sleep(0.02)
    kept.run(training, 2)
    wait_until(lambda: kept.history.source().state == "up")
    kept.history.close()
    assert [name for name, _ in stalls_in(kept.directory)] == [stall.id for stall in training.stalls]
    assert sum(row.count for row in Reader(kept.directory / "published").steps(RUN, "0")) == 54 * 20


def test_of_runs_that_wait_for_a_disk_the_oldest_of_whoever_has_most_are_given_up(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Database, batch: Batch) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    kept.open()
    monkeypatch.setattr(Database, "write", failing)
    live = Training(every=2)
    kept.run(Training("theirs-00000001", "4242", ended=NOW + 1), 1)
    kept.run(live, 9)
    for number in range(400):
        kept.run(Training(f"flood-{number:08x}", "4243", second=number, ended=NOW + number), 1)
    kept.run(live, 2)
    kept.history.close()
    held = kept.history._held
    assert len(held.runs) <= 256
    assert held.runs.keys() == held.batch.runs.keys() == {key[0] for key in held.batch.ranks}
    assert {key[1] for key in held.batch.lists} | {row.run for row in held.batch.stalls.values()} <= held.runs.keys()
    assert {"theirs-00000001", RUN, f"flood-{399:08x}"} <= held.runs.keys()
    assert ["lost" in said for said in kept.said] == [False, True]


def test_a_disk_that_went_away_is_opened_anew_when_it_is_back(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    training = Training()
    kept.open()
    kept.run(training, 12)
    first, write = kept.history._database, Database.write

    def failing(self: Database, batch: Batch) -> None:
        if self is first:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = 10  # type: ignore[attr-defined]
            raise error
        write(self, batch)

    monkeypatch.setattr(Database, "write", failing)
    kept.run(training, 20)
    wait_until(lambda: kept.said)
    time.sleep(0.02)
    kept.run(training, 20)
    kept.history.close()
    assert [name for name, _ in stalls_in(kept.directory)] == [stall.id for stall in training.stalls]


def test_age_is_not_believed_after_a_clock_has_jumped() -> None:
    trust = ClockJumpGuard()
    assert not trust.holds(NOW, 0.0)
    assert trust.holds(NOW + 601, 601.0)
    assert not trust.holds(NOW + 1e8, 700.0)  # set to some year to come
    assert not trust.holds(NOW + 1e8 + 1800, 2500.0)
    assert trust.holds(NOW + 1e8 + 3700, 4400.0)


def test_files_are_walked_through_once_however_many_runs_make_room(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.open()
    for number in range(4):
        training = Training(f"r-{number:08x}", ended=NOW + 1)
        kept.run(training, 1)
    kept.history.close()
    database, files = Database(kept.directory / "history.sqlite"), kept.history._files
    sizes: list[int] = []
    measured = HistoryFiles.bytes.fget
    assert measured is not None
    monkeypatch.setattr(HistoryFiles, "bytes", property(lambda self: sizes.append(measured(self)) or sizes[-1]))
    by_size(database, files, Retention(bytes=1))
    assert len(sizes) == 1
    assert (files.runs(), database.runs()) == (set(), [])
    before = sizes[0]
    assert files.bytes < before
    database.close()


def test_the_oldest_runs_make_room(kept: Kept) -> None:
    kept.open()
    for number in range(6):
        training = Training(f"r-{number:08x}", second=1000 * number)
        kept.run(training, 30)
        training.ended = training.now
        kept.run(training, 1)
    live = Training("live-00000001")
    kept.run(live, 30)
    kept.history.close()
    database, files = Database(kept.directory / "history.sqlite"), kept.history._files
    by_size(database, files, Retention(bytes=database.bytes + files.bytes))
    assert len(database.runs()) == 7
    by_size(database, files, Retention(bytes=(database.bytes + files.bytes) * 2 // 3))
    left = {row.run for row in database.runs()}
    assert "live-00000001" in left
    assert "r-00000005" in left
    assert "r-00000000" not in left
    assert files.runs() == left
    database.close()


def test_runs_of_the_user_with_most_make_room(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.open()
    kept.run(Training("theirs-00000001", "4242", ended=NOW - 9), 1)
    for number in range(6):
        kept.run(Training(f"flood-{number:08x}", second=1000 * number, ended=NOW + 1000 * number), 1)
    live = Training(every=2)
    kept.run(live, 500)
    kept.history.close()
    database, files = Database(kept.directory / "history.sqlite"), kept.history._files
    for number in range(1, 30):  # stalls of long ago
        files._segments._open.clear()
        files.append([("stalls/", "stalls", "x" * 50_000 + "\n")], number)
    before = files.bytes
    by_size(database, files, Retention(bytes=database.bytes + before - 1))
    assert files.bytes < before
    monkeypatch.setattr(retention, "ROOM", 0.99)
    monkeypatch.setattr(retention, "STALLS", 1.0)
    by_size(database, files, Retention(bytes=database.bytes + files.bytes - 1))
    left = {row.run for row in database.runs()}
    assert {"theirs-00000001", RUN, "flood-00000005"} <= left
    assert "flood-00000000" not in left
    (rank,) = database.ranks(RUN)
    database.close()
    assert len(rank.stalls) == len(stalls_in(kept.directory)) == 200
    assert len(live.stalls) == 250


def test_runs_that_go_on_for_ever_leave_the_others_theirs(kept: Kept) -> None:
    """Steps are written as long as a run lasts, of each of its ranks."""
    kept.open()
    kept.run(Training("theirs-00000001", "4242", ended=NOW - 9), 1)
    kept.run(Training("flood-00000001"), 1)
    kept.history.close()
    database, files = Database(kept.directory / "history.sqlite"), kept.history._files
    for number in range(1, 30):
        files.append([("steps/flood-00000001/0_step_", "steps", "x" * 50_000 + "\n")], number)
    before = files.size_of("flood-00000001")
    by_size(database, files, Retention(bytes=database.bytes + files.bytes - 600_000))
    assert {row.run for row in database.runs()} == {"theirs-00000001", "flood-00000001"}
    assert 0 < files.size_of("flood-00000001") < before
    database.close()


def test_ids_that_a_user_was_lent_are_one_user_of_the_history(kept: Kept) -> None:
    kept.open()
    kept.run(Training("theirs-00000001", "4242", ended=NOW - 9), 20)
    for number in range(6):
        kept.run(Training(f"flood-{number:08x}", f"{100_000 + number}", second=1000 * number, ended=NOW + number), 1)
    kept.history.close()
    database, files = Database(kept.directory / "history.sqlite"), kept.history._files
    sizes = {run: files.size_of(run) for run in files.runs()}
    assert sizes["theirs-00000001"] >= max(size for run, size in sizes.items() if run.startswith("flood"))
    limit = Retention(bytes=database.bytes + files.bytes - 1)
    by_size(database, files, limit, lambda uid: 1000 if uid >= 100_000 else uid)
    left = {row.run for row in database.runs()}
    assert "theirs-00000001" in left
    assert len(left) < 7
    database.close()


def test_bodies_of_runs_are_not_loaded_together(kept: Kept) -> None:
    kept.open()
    kept.run(Training(), 3)
    kept.history.close()
    database, batch = Database(kept.directory / "history.sqlite"), Batch()
    for number in range(300):
        run = f"r-{number:08x}"
        batch.runs[run] = RunRow(run, 4242, NOW, NOW, NOW + 999, "{}" + " " * 40_000)
    database.write(batch)
    del batch
    kept.history._database = database
    tracemalloc.start()
    try:
        kept.history._tidy()
        found = kept.history._read(database)
        by_size(database, kept.history._files, Retention(bytes=1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
    assert found.attempts[os.getuid()] == {RUN: 1}
    database.close()


def test_users_file_of_one_whose_runs_are_gone_goes_too(kept: Kept) -> None:
    kept.open()
    kept.run(Training(), 3)
    kept.history._files.publish_to(4242, [])
    kept.history._tidy_at = 0.0
    kept.run(Training(), 1)
    wait_until(lambda: not (kept.directory / "users" / "4242.json").exists())
    kept.history.close()
    assert (kept.directory / "users" / f"{uid_of(USER)}.json").exists()
