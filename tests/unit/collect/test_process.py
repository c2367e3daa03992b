from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect.process import Processes
from trainprobe.collect.procfs import TICK_NS
from trainprobe.model.moment import NS
from trainprobe.model.sample import ProcessSample


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes no time, however busy this machine is."""
    monkeypatch.setattr("trainprobe.collect.process.time.perf_counter_ns", lambda: 0)


@dataclass
class Of:
    pid: int
    ticks: int
    started_ns: int
    role: str = "driver"
    run: str = "train.py-1"


def of(pid: int, role: str = "driver") -> Of:
    """A driver was started an hour ago."""
    return Of(pid, pid * 10, FakeProc.started_ns(pid) if role == "worker" else -3600 * NS, role)


def rollup(fake: FakeProc, pid: int, kilobytes: int) -> None:
    (fake.root / f"{pid}/smaps_rollup").write_text(f"Pss: {kilobytes} kB\n")


def test_all_fields(fake: FakeProc) -> None:
    fake.add(7, ppid=3, comm="pt_data_worker")
    (fake.root / "7/fd/0").touch()
    (sample,) = Processes(fake.proc).read([of(7, "worker")], 0)
    assert sample == ProcessSample(
        pid=7, ppid=3, role="worker", started_ns=70 * TICK_NS, cpu_ns=150 * TICK_NS, rss_bytes=2560 * 4096,
        pss_bytes=2048 << 10, swap_bytes=12 << 10, shm_bytes=512 << 10, open_fds=1, max_fds=1024, threads=3,
        comm="pt_data_worker", shm_held_bytes=0, swap_share_bytes=4 << 10,
        pss_read_ns=0, major_faults=0,
    )  # fmt: skip


def test_the_dead_and_those_whose_pid_was_taken_give_no_sample(fake: FakeProc) -> None:
    fake.add(7)
    fake.add(8, state="Z")
    fake.add(9, ticks=12345)
    samples = Processes(fake.proc).read([of(7), of(8), of(9), of(10)], 0)
    assert [sample.pid for sample in samples] == [7]


def test_proportional_memory_is_read_seldom_and_repeated_meanwhile(fake: FakeProc) -> None:
    fake.add(7)
    processes = Processes(fake.proc)
    read = [processes.read([of(7)], at * NS)[0].pss_bytes for at in (0, 2)]
    rollup(fake, 7, 4096)
    read += [processes.read([of(7)], at * NS)[0].pss_bytes for at in (4, 8, 300)]
    assert read == [2048 << 10, 2048 << 10, 2048 << 10, 2048 << 10, 4096 << 10]


def test_a_driver_that_was_just_started_is_read_each_time_it_has_grown(fake: FakeProc) -> None:
    """What it took would be told too small if it ended after some seconds."""
    fake.add(7)
    processes, told = Processes(fake.proc), []
    for at in (1, 2, 4, 6, 8, 20):
        rollup(fake, 7, 1000 * at)
        fake.grow(7, 250 * at)
        told.append(processes.read([Of(7, 70, FakeProc.started_ns(7))], at * NS)[0].pss_bytes)
    assert told == [None, *(1000 * at << 10 for at in (2, 4, 6, 8, 20))], (
        "an interpreter that has just begun is no figure"
    )


def test_a_driver_that_was_just_started_is_not_read_while_its_memory_stays(fake: FakeProc) -> None:
    fake.add(7)
    processes, read = Processes(fake.proc), []
    for at in (2, 4, 6, 8):
        rollup(fake, 7, 1000 * at)
        fake.grow(7, 2560 if at < 6 else 2660)
        read.append(processes.read([Of(7, 70, FakeProc.started_ns(7))], at * NS)[0].pss_bytes)
    assert read == [2000 << 10, 2000 << 10, 6000 << 10, 6000 << 10]


def readings(fake: FakeProc, seconds: range, kilobytes: Callable[[int], int], pages: Callable[[int], int]) -> list[int]:
    """When the proportional memory of a process was read whose memory goes like this."""
    processes, read, last = Processes(fake.proc), [], None
    for at in seconds:
        fake.add(7, rss_pages=pages(at))
        rollup(fake, 7, kilobytes(at))
        told = processes.read([of(7)], at * NS)[0].pss_bytes
        if told != last:
            read.append(at)
        last = told
    return read


def test_a_reading_that_says_nothing_new_doubles_the_pause(fake: FakeProc) -> None:
    """One kilobyte more each second tells the readings apart, and is no move."""
    read = readings(fake, range(0, 200, 5), lambda at: 1 << 20 | at, lambda _: 2560)
    assert [later - earlier for earlier, later in itertools.pairwise(read)][:4] == [10, 20, 40, 60]


def test_memory_that_moves_is_read_every_ten_seconds(fake: FakeProc) -> None:
    read = readings(fake, range(0, 100, 5), lambda at: 1 << 20 | at << 15, lambda _: 2560)
    assert read == list(range(0, 100, 10))


def test_resident_memory_that_moves_ends_a_long_pause(fake: FakeProc) -> None:
    read = readings(fake, range(0, 200, 5), lambda at: 1 << 20 | at, lambda at: 2560 if at < 150 else 5000)
    assert read[:6] == [0, 10, 30, 70, 130, 150]


def test_it_is_read_for_a_few_at_a_time_and_everyone_has_its_turn(fake: FakeProc) -> None:
    pids = range(10, 20)
    for pid in pids:
        fake.add(pid)
    processes = Processes(fake.proc, pss_at_once=4)
    watched = [of(pid) for pid in pids]
    known = [sum(sample.pss_bytes is not None for sample in processes.read(watched, at * NS)) for at in (0, 2, 4)]
    assert known == [4, 8, 10]


def test_one_that_does_nothing_is_not_looked_into_each_time(fake: FakeProc) -> None:
    """It has opened nothing since; but the kernel counts time in ticks, so it is looked into now and then."""
    fake.add(7)
    processes, seen = Processes(fake.proc), []
    for at in range(0, 45, 5):
        (fake.root / f"7/fd/{at}").touch()
        seen.append(processes.read([of(7)], at * NS)[0].open_fds)
    assert seen == [1, 1, 1, 1, 5, 5, 5, 5, 9]


@pytest.mark.parametrize("near", [True, False])
def test_one_that_works_is_looked_into_each_time_and_so_is_anyone_near_a_limit(fake: FakeProc, near: bool) -> None:
    fake.add(7)
    processes, seen = Processes(fake.proc), []
    for at in (0, 5, 10):
        (fake.root / f"7/fd/{at}").touch()
        if not near:
            text = (fake.root / "7/stat").read_text()
            (fake.root / "7/stat").write_text(text.replace(f" 120 {30 + at} ", f" 120 {35 + at} "))
        seen.append(processes.read([of(7)], at * NS, near=near)[0].open_fds)
    assert seen == [1, 2, 3]


def test_all_are_read_again_after_a_worker_was_forked(fake: FakeProc) -> None:
    """What the driver had for itself it now shares: readings from before and after do not add up."""
    fake.add(7)
    processes = Processes(fake.proc)
    driver = of(7)
    assert processes.read([driver], 0)[0].pss_read_ns == 0
    fake.add(8)
    worker = Of(8, 80, NS, "worker")
    assert [s.pss_read_ns for s in processes.read([driver, worker], 2 * NS)] == [2 * NS, 2 * NS]
    assert [s.pss_read_ns for s in processes.read([driver, worker], 4 * NS)] == [2 * NS, 2 * NS]
    of_another_run = Of(9, 90, 5 * NS, "worker", "other.py-1")
    fake.add(9)
    assert [s.pss_read_ns for s in processes.read([driver, worker, of_another_run], 6 * NS)][:2] == [2 * NS, 2 * NS]


def test_what_came_since_the_last_reading_is_told_and_swapping_is_no_growth(fake: FakeProc) -> None:
    fake.add(7)
    processes = Processes(fake.proc)
    grown = []
    for at, (resident, swapped) in enumerate([(900, 100), (500, 500), (700, 500), (1000, 100)]):
        (fake.root / "7/status").write_text(f"RssAnon:\t{resident} kB\nVmSwap:\t{swapped} kB\n")
        grown.append(processes.read([of(7)], at, near=True)[0].grown_bytes >> 10)
    assert grown == [0, 0, 200, 100]


def test_a_new_process_with_an_old_pid_does_not_inherit_its_memory(fake: FakeProc) -> None:
    fake.add(7)
    processes = Processes(fake.proc)
    processes.read([of(7)], 0)
    fake.add(7, ticks=999)
    (fake.root / "7/smaps_rollup").unlink()
    (sample,) = processes.read([Of(7, 999, 0)], 1)
    assert sample.pss_bytes is None


@pytest.mark.parametrize(("moves", "pause"), [(True, 25), (False, 100)])
def test_however_many_processes_there_are_the_readings_take_no_more_time(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch, moves: bool, pause: int
) -> None:
    """Each takes 5 ms here: behind the first ones one in 25 s at most, in 100 s where memory is as it was."""
    clock = iter(range(0, 10**12, 5_000_000))
    monkeypatch.setattr("trainprobe.collect.process.time.perf_counter_ns", lambda: next(clock))
    pids = range(10, 16)
    processes = Processes(fake.proc)
    asked = 0
    for at in range(0, 1520, 5):
        for pid in () if at else pids:
            fake.add(pid)
        for pid in pids if moves else ():
            fake.grow(pid, 2560 + at * 20)
        before = next(clock)
        processes.read([of(pid) for pid in pids], at * NS)
        if at >= 20 + 20 * 13:
            asked += (next(clock) - before) // 10_000_000
    assert (1520 - 280) / pause - 5 <= asked <= (1520 - 280) / pause + 2


def test_all_processes_are_asked_for_together(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request wakes a helper, which costs more than what it reads."""
    for pid in range(300, 340):
        fake.add(pid)
    ask = fake.proc._ask
    asked: list[int] = []
    monkeypatch.setattr(fake.proc, "_ask", lambda reads: asked.append(len(reads)) or ask(reads))
    wanted = [of(pid) for pid in range(300, 340)]
    assert len(Processes(fake.proc, pss_at_once=0).read(wanted, 10**12)) == 40
    assert asked == [40, 3 * 40]
