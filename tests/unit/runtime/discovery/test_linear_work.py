"""What a process more costs: operations are counted, no time is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc
from tests.unit.runtime.discovery.test_targets import FakeKernel, World
from trainprobe.collect.command import understand
from trainprobe.collect.mapping import Mapping
from trainprobe.collect.procfs import Proc
from trainprobe.config.schema import TargetsConfig
from trainprobe.model.event import Event, RunEnded
from trainprobe.model.moment import NS
from trainprobe.runtime.discovery.launch import Launches
from trainprobe.runtime.discovery.process_table import LaunchedRun, Table, WatchedProcess
from trainprobe.runtime.discovery.runs import Runs
from trainprobe.runtime.discovery.search import Search


class CountingTable(Table):
    looked_at = 0

    def __iter__(self) -> Iterator[WatchedProcess]:
        for process in super().__iter__():
            self.looked_at += 1
            yield process


def add(table: Table, pid: int, library: Mapping | None = None) -> WatchedProcess:
    process = WatchedProcess(pid, 1, pid, 0, "python", (), understand(()), library=library)
    table.put(process)
    return process


@pytest.mark.parametrize("processes", [100, 1000])
def test_libraries_that_wait_for_marks_are_compared_with_each_process_once_in_a_step(
    tmp_path: Path, processes: int
) -> None:
    proc: Proc = FakeProc(tmp_path).proc
    table, kernel = CountingTable(), FakeKernel(marks=None)
    search = Search(kernel, proc, table, TargetsConfig(auto=False), None, lambda process, event: None)
    for pid in range(1, processes + 1):
        search.mark(add(table, pid), Mapping(1, 2, (0, 1), pid, f"/{pid}/libtorch_cpu.so"), NS)
    table.looked_at = 0
    search.search(2 * NS)
    assert table.looked_at <= processes


def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many reads each request to a helper holds, from now on."""
    requests: list[int] = []
    ask = world.fake.proc.pool.ask
    monkeypatch.setattr(world.fake.proc.pool, "ask", lambda reads: requests.append(len(reads)) or ask(reads))
    return requests


def test_forks_of_a_watched_process_are_asked_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, TargetsConfig())
    world.step()
    world.train(50)
    world.step(world.row(50))
    requests = counted(world, monkeypatch)
    world.step(*(world.fork(pid, 50) for pid in range(100, 200)))
    assert max(requests) >= 100
    assert len(requests) < 10
    assert {process.ticks for process in world.targets._table if process.pid >= 100} == {
        stat.ticks for stat in world.fake.proc.stats(range(100, 200)).values()
    }


def test_runs_whose_drivers_have_ended_are_compared_with_each_process_once_in_a_step(tmp_path: Path) -> None:
    """One that lingers may have another rank, about to step."""
    proc: Proc = FakeProc(tmp_path).proc
    table, told = CountingTable(), list[Event]()
    runs = Runs(proc, table, Launches(proc, 1), told.append)
    for pid in range(1, 101):
        run = LaunchedRun(f"r{pid}", f"r{pid}", pid, "0.0", stepped=True, last_exit_ns=100 * NS)
        runs._runs[run.name] = run
        add(table, pid, Mapping(1, 2, (0, 1), pid, "/libtorch_cpu.so")).run = run
    table.looked_at = 0
    runs.end_those_over(101 * NS)
    assert table.looked_at <= 100
    assert told == []
    table.pop(7)
    runs.end_those_over(102 * NS)
    assert told == [RunEnded("r7", 100 * NS)]
    runs.end_those_over(111 * NS)
    assert len(told) == 100
