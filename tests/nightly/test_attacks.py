"""What one user's processes do, minutes long, holds up no other user's training, and the daemon stays small."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import programs
from benchmarks.limits import fake_torch
from tests.builders.waiting import wait_until
from tests.nightly.attacks import (
    ATTACKER,
    ATTACKS,
    CLIENTS,
    SECONDS,
    SLOW_CLIENTS,
    THREADS,
    VICTIM,
    attack,
    cpu_seconds,
    rank,
    scrape_again_and_again,
    stop_again_and_again,
    theirs,
)
from tests.training.test_unanswered import as_user, group

pytestmark = pytest.mark.nightly

FEW_THREADS, MANY_THREADS, BESIDE_SECONDS = 100, 10_000, 20.0


class Daemon(programs.Daemon):
    @property
    def pid(self) -> int:
        return self.process.pid


@pytest.fixture
def place() -> Iterator[Path]:
    with theirs() as folder:
        yield folder


@pytest.mark.timeout(int(SECONDS) + 240)
@pytest.mark.parametrize("how", ATTACKS)
def test_a_stall_of_another_user_is_published_in_time_all_the_while(
    tmp_path: Path, place: Path, torch_python: str, how: str
) -> None:
    with Daemon(tmp_path) as daemon, attack(how, place, torch_python):
        time.sleep(5)
        seen = stop_again_and_again(daemon, place, torch_python, how)
        print(f"{how}: {seen}")
    assert daemon.process.returncode == 0, "it ended as it was told to, and not before"
    seen.hold(how)


@pytest.mark.timeout(int(SECONDS) + 240)
def test_slow_clients_keep_no_scrape_waiting(tmp_path: Path, place: Path, torch_python: str) -> None:
    with Daemon(tmp_path) as daemon, programs.Exporter(tmp_path, daemon.directory / "report.json") as exporter:
        with group(*as_user(VICTIM), torch_python, str(place / "train.py")) as training:
            wait_until(lambda: rank(daemon, training.pid), 60)
            address, port = exporter.url.removeprefix("http://").rsplit(":", 1)
            clients = ("/usr/bin/python3", str(place / SLOW_CLIENTS.name), address, port, str(CLIENTS))
            with group(*as_user(ATTACKER), *clients):
                time.sleep(5)
                seen = scrape_again_and_again(exporter.process.pid, lambda: exporter.get("/metrics"))
                print(f"slow clients: {seen}")
        assert exporter.process.poll() is None
    seen.hold()


@pytest.mark.timeout(180)
def test_ten_thousand_threads_that_step_cost_no_more_than_a_hundred(tmp_path: Path, place: Path) -> None:
    """Of one process: while they begin, and then."""
    begun, after = {}, {}
    for threads in (FEW_THREADS, MANY_THREADS):
        body = THREADS.format(library=str(place / fake_torch.NAME), threads=threads)
        (folder := tmp_path / str(threads)).mkdir()
        with Daemon(folder) as daemon, group(*as_user(ATTACKER), "/usr/bin/python3", "-c", body) as training:
            before = cpu_seconds(daemon.process.pid)
            wait_until(lambda: rank(daemon, training.pid), 20)
            time.sleep(5)
            assert len(os.listdir(f"/proc/{training.pid}/task")) > threads
            begun[threads] = cpu_seconds(daemon.process.pid) - before
            time.sleep(BESIDE_SECONDS)
            after[threads] = (cpu_seconds(daemon.process.pid) - before - begun[threads]) / BESIDE_SECONDS
            print(f"{threads} threads: {begun[threads]:.2f} s at their start, then {after[threads]:.1%} of a core")
    assert begun[MANY_THREADS] <= begun[FEW_THREADS] + 0.5
    assert after[MANY_THREADS] <= after[FEW_THREADS] + 0.01
