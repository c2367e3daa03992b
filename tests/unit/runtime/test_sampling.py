"""The collectors beside each other: what one learns of an event, another tells later."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect.source import Sources
from trainprobe.model.event import ProcessEvent, ProcessEventKind
from trainprobe.model.moment import NS, Moment
from trainprobe.runtime.sampling import Collectors
from trainprobe.runtime.target_table import Watched

DRIVER, WORKER, SECOND = 100, 101, 102


def watched(*roles: tuple[int, str]) -> list[Watched]:
    return [Watched(pid, pid * 10, FakeProc.started_ns(pid), role, "train.py-0") for pid, role in roles]


def exited(pid: int, at: int) -> ProcessEvent:
    return ProcessEvent(ProcessEventKind.EXIT, at, pid, ppid=1, signal=9)


@pytest.mark.parametrize("drivers", [1, 2])
def test_workers_of_a_trainer_that_lived_between_two_readings_are_its_orphans(tmp_path: Path, drivers: int) -> None:
    """With two drivers nobody knows whose they were."""
    fake = FakeProc(tmp_path)
    fake.add(1, comm="systemd", ppid=0)
    collectors, at = Collectors(Sources(), fake.proc), 1000 * NS
    collectors.read(Moment(at, at), watched())
    fake.add(DRIVER)
    fake.add(WORKER, comm="pt_data_worker", ppid=DRIVER)
    fake.add(SECOND)
    those = watched((DRIVER, "driver"), (WORKER, "worker"), *([(SECOND, "driver")] if drivers == 2 else []))
    collectors.read(Moment(at + NS, at), watched((DRIVER, "helper")))  # the next reading of processes is 5 s away
    collectors.read(Moment(at + 2 * NS, at), those)
    fake.remove(DRIVER)
    fake.add(WORKER, comm="pt_data_worker", ppid=1)
    told = ()
    for second in range(3, 60):
        events = (exited(DRIVER, at),) if second == 3 else ()
        now = at + second * NS
        told = collectors.read(Moment(now, now), watched((WORKER, "worker")), events).orphans or told
    assert [(orphan.pid, orphan.trainer) for orphan in told] == [(WORKER, DRIVER if drivers == 1 else None)]


@pytest.mark.parametrize(
    ("descriptors", "more", "readings"),
    [(10, 0, 6), (600, 0, 10), (10, 2, 6), pytest.param(10, 25, 10, id="soon full")],
)
def test_limits_are_read_each_second_where_half_of_one_is_used_or_will_be_soon(
    tmp_path: Path, descriptors: int, more: int, readings: int
) -> None:
    """Of 1 024 descriptors; turns are a little early or late."""
    fake = FakeProc(tmp_path)
    fake.add(DRIVER)
    collectors, told, made = Collectors(Sources(), fake.proc), 0, 0
    for second in range(1, 11):
        for number in range(made, descriptors + more * second):
            (fake.root / f"{DRIVER}/fd/{number}").touch()
        made = descriptors + more * second
        now = second * NS + random.randrange(-NS // 10, NS // 10)
        told += bool(collectors.read(Moment(now, now), watched((DRIVER, "driver"))).limits)
    assert told == readings
    assert collectors.far == (readings == 6), "else the looks have to come each second"


def test_what_is_full_within_seconds_is_read_four_times_a_second_and_not_for_long(tmp_path: Path) -> None:
    """A saw-tooth would otherwise be followed for ever."""
    fake = FakeProc(tmp_path)
    fake.add(DRIVER)
    collectors, at, read = Collectors(Sources(), fake.proc), 1000 * NS, []
    begin, made = at, 0
    while at < begin + 100 * NS:
        wanted = 100 + (60 * (at - begin) // NS % 600 if at > begin + 10 * NS else 0)
        for number in range(min(made, wanted), max(made, wanted)):
            path = fake.root / f"{DRIVER}/fd/{number}"
            path.touch() if made < wanted else path.unlink()
        made = wanted
        if collectors.read(Moment(at, at), watched((DRIVER, "driver"))).limits:
            read.append((at - begin) / NS)
        due = collectors.due_ns()
        at = min(at + NS, due) if due is not None else at + NS
    assert sum(1 for second in read if second < 10) <= 7
    assert sum(1 for second in read if 13 <= second < 17) >= 14
    assert sum(1 for second in read if 50 <= second < 90) <= 40
