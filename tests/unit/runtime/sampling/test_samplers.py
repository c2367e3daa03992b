"""The collectors beside each other: what one learns of an event, another tells later."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect import descriptors
from trainprobe.collect.cgroup import Cgroups, Throttling
from trainprobe.collect.filesystem_stats import FilesystemStats
from trainprobe.collect.limits import LimitReader
from trainprobe.collect.shared_memory import SharedMemoryReader
from trainprobe.collect.source import Sources
from trainprobe.collect.watched import Watched
from trainprobe.model.event import CallFailed, ProcessEvent, ProcessEventKind
from trainprobe.model.moment import NS, Moment
from trainprobe.model.sample import SharedSample, WrittenFile
from trainprobe.runtime.sampling.samplers import Collectors

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


def test_an_orphan_that_somebody_ends_is_soon_told_of_no_longer(tmp_path: Path) -> None:
    """Nobody watches it: its trainer had ended before we came."""
    fake = FakeProc(tmp_path)
    fake.add(1, comm="systemd", ppid=0)
    fake.add(WORKER, comm="pt_data_worker", ppid=1)
    collectors, told = Collectors(Sources(), fake.proc), {}
    for second in range(300):
        if second == 100:
            fake.remove(WORKER)
        found = collectors.read(Moment(second * NS, second * NS), []).orphans
        if found is not None:
            told[second] = [orphan.pid for orphan in found]
    assert [told[second] for second in told if 30 < second < 100] == [[WORKER]]
    assert {pid for second in told if second > 170 for pid in told[second]} == set()
    assert min(second for second in told if second >= 100) <= 170
    assert len([second for second in told if second > 170]) <= 1, "where there is none it costs little"


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


@pytest.mark.parametrize(("processes", "seconds"), [(20, 5), (1000, 10)])
def test_processes_are_read_the_more_seldom_the_more_there_are(tmp_path: Path, processes: int, seconds: int) -> None:
    fake = FakeProc(tmp_path)
    for pid in range(DRIVER, DRIVER + 20):  # the number of those that are watched counts, whether they live or not
        fake.add(pid)
    those = watched(*((pid, "helper") for pid in range(DRIVER, DRIVER + processes)))
    collectors = Collectors(Sources(), fake.proc)
    begin = 1000 * NS  # they are old by then
    read = [bool(collectors.read(Moment(at, at), those).processes) for at in range(begin, begin + 21 * NS, NS)]
    assert read == [second % seconds == 0 for second in range(21)]


def test_processes_that_fail_for_want_of_descriptors_in_a_loop_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells of each ten times a second, and each may have thousands of descriptors. One of another user, who
    fails once, is looked at then."""
    fake, looks, limits = FakeProc(tmp_path), Counter[int](), list[int]()
    those = watched(*((pid, "driver") for pid in range(DRIVER, DRIVER + 30)))
    for process in those:
        fake.add(process.pid)
    monkeypatch.setattr(fake.proc.pool, "owner", lambda pid: 1000 if pid > DRIVER else 1001)
    monkeypatch.setattr(descriptors, "kinds", lambda proc, pid: looks.update([pid]) or time.sleep(0.006))
    read = LimitReader.read
    monkeypatch.setattr(LimitReader, "read", lambda *args, **more: limits.append(1) or read(*args, **more))
    collectors, begin = Collectors(Sources(), fake.proc), 1000 * NS
    for turn in range(20):
        at = begin + turn * NS // 10
        failing = those if turn == 10 else those[1:]
        events = [CallFailed(at, one.pid, one.pid, "openat", 24) for one in failing]
        before = looks.total()
        collectors.read(Moment(at, at), those, events)
        assert looks.total() - before <= 10
    assert looks[DRIVER] == 1
    assert looks.total() <= 2 * 30 + 1
    assert len(limits) <= 9


def test_shared_memory_is_read_as_it_runs_out_whenever_it_was_read_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that begins fails within seconds and is gone. One that fails in a loop costs a reading each 10 s."""
    fake = FakeProc(tmp_path)
    fake.add(DRIVER)
    monkeypatch.setattr(SharedMemoryReader, "samples_with_leaks", lambda *_: (SharedSample("0:9", "host", 9, 9, ()),))
    collectors, begin = Collectors(Sources(), fake.proc), 1000 * NS

    def read(second: int, *, fails: bool) -> bool:
        at = begin + second * NS
        events = [CallFailed(at, DRIVER, DRIVER, "fallocate", 28, tmpfs=True)] if fails else []
        return bool(collectors.read(Moment(at, at), watched((DRIVER, "driver")), events).shared)

    assert [second for second in range(100) if read(second, fails=second in (3, 95))] == [0, 3, 33, 63, 93, 95]
    assert sum(read(second, fails=True) for second in range(100, 200)) <= 13


def test_files_of_one_user_that_are_asked_for_delay_neither_the_loop_nor_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand ranks may save somewhere else, and have eight logs."""
    fake, seen = FakeProc(tmp_path), list[tuple[str, int]]()
    fake.add(DRIVER)
    monkeypatch.setattr(fake.proc.pool, "owner", lambda pid: 1000 if pid > DRIVER else 1001)
    monkeypatch.setattr(FilesystemStats, "room", lambda self, pid, path: seen.append((path, pid)) or time.sleep(0.002))
    monkeypatch.setattr(FilesystemStats, "size", lambda self, file: seen.append(("log", file.pid)) or time.sleep(0.002))
    many = range(DRIVER + 1, DRIVER + 400)
    directories = tuple((pid, f"/{pid}") for pid in (*many, DRIVER))
    files = tuple(WrittenFile(pid, f"/{pid}/log", 1, pid) for pid in (*many, DRIVER))
    collectors = Collectors(Sources(), fake.proc)
    rounds = []
    for second in range(0, 40, 10):
        at = (1000 + second) * NS
        collectors.look_at(directories, files)
        collectors.read(Moment(at, at), watched((DRIVER, "driver")))
        rounds.append(set(seen))
        assert len(seen) <= 60
        assert {("/100", DRIVER), ("log", DRIVER)} <= rounds[-1]
        seen.clear()
    every = [one for each in rounds for one in each if one[1] != DRIVER]
    assert len(every) == len(set(every)), "those that were left out come first"


def test_a_quota_is_read_once_for_all_runs_of_a_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeProc(tmp_path)
    read: list[str] = []

    def throttling(_: Cgroups, cgroups: str) -> Throttling:
        read.append(cgroups)
        return Throttling(9, 4, 70_000, 0.5, cgroups.strip().removeprefix("0::"))

    monkeypatch.setattr(Cgroups, "throttling", throttling)
    runs = {f"train.py-{number}": random.choice(("/a", "/b")) for number in range(8)} | {"train.py-8": "/a"}
    for pid, path in enumerate(runs.values(), DRIVER):
        fake.add(pid, cgroup=f"0::{path}\n")
    those = [Watched(pid, pid * 10, FakeProc.started_ns(pid), "driver", run) for pid, run in enumerate(runs, DRIVER)]
    told = Collectors(Sources(), fake.proc).read(Moment(NS, NS), those).quotas
    assert {quota.run: quota.cgroup for quota in told} == runs
    assert sorted(read) == sorted({f"0::{path}\n" for path in runs.values()})
