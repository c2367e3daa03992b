"""The busiest processes between two looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect import top_cpu_processes
from trainprobe.collect.procfs import TICK_NS
from trainprobe.collect.top_cpu_processes import Rivals
from trainprobe.model.moment import NS


def used(fake: FakeProc, pid: int, ticks: int) -> None:
    """Let a process have used so much processor time."""
    path = Path(fake.root) / str(pid) / "stat"
    front, _, back = path.read_text().rpartition(") ")
    fields = back.split()
    fields[11] = str(ticks)
    path.write_text(f"{front}) {' '.join(fields)}\n")


def test_who_used_most_comes_first_and_the_idle_are_left_out(fake: FakeProc) -> None:
    for pid, comm in ((10, "stress"), (11, "half) 1 2"), (12, "idle")):
        fake.add(pid, comm=comm, ticks=1)
    rivals = Rivals(fake.proc)
    assert rivals.read(100 * NS) == ()
    second = NS // TICK_NS
    for pid, ticks in ((10, 120 + 4 * second), (11, 120 + 2 * second), (12, 120)):
        used(fake, pid, ticks)
    assert [(r.pid, r.comm, round(r.cpus, 2)) for r in rivals.read(104 * NS)] == [
        (10, "stress", 1.0),
        (11, "half) 1 2", 0.5),
    ]


def test_looks_too_close_and_too_far_apart_say_nothing(fake: FakeProc) -> None:
    fake.add(10, comm="stress", ticks=1)
    rivals = Rivals(fake.proc)
    rivals.read(100 * NS)
    used(fake, 10, 100_000)
    assert rivals.read(100 * NS + NS // 10) == ()
    assert rivals.read(200 * NS) == ()
    used(fake, 10, 200_000)
    assert [r.pid for r in rivals.read(201 * NS)] == [10]
    used(fake, 10, 300_000)
    assert rivals.read(202 * NS) == ()


def test_a_process_that_began_meanwhile_counts_from_its_start(fake: FakeProc) -> None:
    rivals = Rivals(fake.proc)
    fake.add(9, ticks=1)
    rivals.read(100 * NS)
    fake.add(10, comm="new", ticks=101 * NS // TICK_NS)
    used(fake, 10, 3 * NS // TICK_NS)
    assert [r.comm for r in rivals.read(104 * NS)] == ["new"]


def test_a_user_with_thousands_of_processes_hides_nobodys(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_cpu_processes, "PROCESSES", 8)
    monkeypatch.setattr(fake.proc.pool, "owner", lambda pid: 1000 if pid < 90 else 1001)
    for pid in (*range(10, 60), 90):
        fake.add(pid, comm="stress" if pid == 90 else "sleep", ticks=1)
    rivals = Rivals(fake.proc)
    rivals.read(100 * NS)
    used(fake, 90, 4 * NS // TICK_NS)
    assert [one.pid for one in rivals.read(104 * NS)] == [90]
