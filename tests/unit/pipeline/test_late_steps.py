"""While a step is late: what hangs is told as it hangs, who stopped it, who is waited for and in which line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim
from trainprobe.causes.stalls.data_cpu import IN_ALL
from trainprobe.derive.python.stacks import Where
from trainprobe.model.cause import Cause
from trainprobe.model.cells import LEAVES, Leaf, Level, Region, ThreadState
from trainprobe.model.event import (
    HostStoodStill,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RunStarted,
    StackSeen,
    ThreadSample,
)
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.model.sample import DiskSample, HeldLock, HostSample, Inspection, IoLimitSample
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.bottlenecks import FoundBottleneck
from trainprobe.pipeline.pipeline import INSPECTED, _in_turn
from trainprobe.pipeline.rank.open_step import OpenStep
from trainprobe.pipeline.report.stalls import bottleneck

DEV = 7 << 20 | 3


def started() -> tuple[Driver, Pipeline]:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    return driver, played(driver)


def test_a_late_driver_is_asked_for_before_an_ordinary_one_of_an_older_run() -> None:
    """Stacks are taken one at a time: what stalls now does not wait for a look at what goes on."""
    even, late = Driver(), Driver(pid=300, tid=300)
    even.begin()
    late.begin()
    late.events = [replace(event, run="other") if hasattr(event, "run") else event for event in late.events]
    even.train(40)
    late.train(40)
    pipeline = played(late, played(even))
    late.spend(1.0, Leaf.SLEEP)
    even.train(20)
    pipeline = played(even, pipeline, threads=(late.sample(Leaf.SLEEP),))
    assert pipeline.wants().stacks == ((300, 300), (even.pid, even.tid))


def disks(written: int, read: int = 0) -> HostSample:
    return HostSample(cpus=4, disks=(DiskSample("loop3", DEV, 0, read, written, False),))


def blocked(driver: Driver, leaf: Leaf, path: str, since: int, dev: int = DEV) -> ThreadSample:
    return replace(
        driver.sample(leaf), run=ThreadState.BLOCKED, since_ns=since, path=path, dev=dev, ino=7 if dev else 0, syscall=1
    )


def worker(driver: Driver, leaf: Leaf, since: int, path: str = "", dev: int = 0) -> ThreadSample:
    cells = [0] * (5 * LEAVES)
    cells[leaf] = driver.now - since
    return ThreadSample(
        2000, 2000, Level.COARSE, ThreadState.BLOCKED, Region.STEP, leaf, since, 0, 0, 5, dev, 9, path, tuple(cells)
    )


def watched(
    driver: Driver, pipeline: Pipeline, seconds: float, leaf: Leaf, *, region: Region | None = None,
    written: float = 0.0, path: str = "/slow/step-40.pt", dev: int = DEV, wchan: str = "", at_path: str = "",
    workers: tuple[ThreadSample, ...] | None = None, worker_leaf: Leaf | None = None,
) -> Rank:  # fmt: skip
    """The driver blocked for a while, looked at twice a second; ``written``: bytes per second that its disk moves."""
    since = driver.now
    pipeline.step(Frame(moment(driver.now), host=disks(5_000_000)))
    for look in range(1, int(seconds * 2) + 1):
        driver.spend(0.5, leaf, region)
        threads = [blocked(driver, leaf, path, since, dev)]
        if worker_leaf is not None:
            threads.append(worker(driver, worker_leaf, since, path, dev))
        seen = Inspection(driver.pid, driver.tid, "D", wchan=wchan, path=at_path)
        pipeline.step(
            Frame(
                moment(driver.now),
                tuple(driver.events),
                threads=(*threads, *(workers or ())),
                inspections=(seen,),
                host=disks(5_000_000 + int(written * look * 0.5)),
            )
        )
        driver.events.clear()
    return rank_of(pipeline, driver)


def test_a_write_on_a_device_that_moves_no_byte_is_told_while_it_hangs() -> None:
    driver, pipeline = started()
    rank = watched(driver, pipeline, 3.0, Leaf.FILE_WRITE, wchan="percpu_rwsem_wait")
    stall = rank.stalls[-1]
    assert (stall.cause, stall.end) == ("storage_hang", None)
    assert stall.seconds == pytest.approx(3.0, abs=0.06)
    assert "/slow/step-40.pt" in stall.summary
    assert any("percpu_rwsem_wait" in link for link in stall.chain)
    driver.train(30)
    closed = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert closed.cause == "storage_hang"
    assert closed.seconds == pytest.approx(3.0, abs=0.06)


def test_a_device_that_a_cgroup_slows_down_does_not_hang() -> None:
    driver, pipeline = started()
    limits = (IoLimitSample("train.py-0123abcd", DEV, "/slurm/job7", read_bytes=1_000_000),)
    pipeline.step(Frame(moment(driver.now), io_limits=limits))
    assert watched(driver, pipeline, 3.0, Leaf.FILE_READ).stalls[-1].cause != "storage_hang"
    assert watched(driver, pipeline, 12.0, Leaf.FILE_READ).stalls[-1].cause == "storage_hang"


def test_a_long_fsync_on_a_device_that_moves_bytes_is_no_hang() -> None:
    driver, pipeline = started()
    rank = watched(driver, pipeline, 4.0, Leaf.FILE_SYNC, written=60e6)
    assert rank.stalls[-1].cause != "storage_hang"


def test_without_a_device_only_a_very_long_call_hangs() -> None:
    driver, pipeline = started()
    assert watched(driver, pipeline, 6.0, Leaf.FILE_READ, dev=0).stalls[-1].cause != "storage_hang"
    assert watched(driver, pipeline, 6.0, Leaf.FILE_READ, dev=0).stalls[-1].cause != "storage_hang"  # a wait of its own
    assert watched(driver, pipeline, 12.0, Leaf.FILE_READ, dev=0).stalls[-1].cause == "storage_hang"


def test_an_open_that_hangs_has_the_path_it_was_given() -> None:
    driver, pipeline = started()
    rank = watched(
        driver, pipeline, 2.0, Leaf.FILE_READ, dev=0, path="", wchan="percpu_rwsem_wait", at_path="/slow/new.pt"
    )
    assert rank.stalls[-1].cause == "storage_hang"
    assert "/slow/new.pt" in rank.stalls[-1].summary


def test_a_worker_on_a_dead_device_hangs_the_driver() -> None:
    driver, pipeline = started()
    driver.fetches += 1
    rank = watched(
        driver, pipeline, 3.0, Leaf.POLL, region=Region.FETCH, worker_leaf=Leaf.FILE_READ, path="/slow/shard-1.bin"
    )
    stall = rank.stalls[-1]
    assert stall.cause == "storage_hang"
    assert stall.chain[0] == "training thread waits for its workers"
    assert "worker 2000" in stall.chain[1]
    assert "/slow/shard-1.bin" in stall.chain[1]
    assert [(slow.path, slow.reads) for slow in rank.slow_files] == [("/slow/shard-1.bin", 1)]
    assert rank.slow_files[0].seconds == pytest.approx(2.5)


@pytest.mark.parametrize("limit", [None, 22_000_000, 900_000_000])
def test_slow_storage_names_worker_file_and_device(limit: int | None) -> None:
    """And the limit of the cgroup, where the device is about as fast as that."""
    driver, pipeline = started()
    if limit is not None:
        limits = (IoLimitSample("train.py-0123abcd", DEV, "/slurm/job7", read_bytes=limit),)
        pipeline.step(Frame(moment(driver.now), io_limits=limits))
    since = driver.now
    driver.fetches += 1
    pipeline.step(Frame(moment(driver.now), host=disks(0, 10_000_000)))
    for look in range(1, 5):
        driver.spend(0.5, Leaf.POLL, Region.FETCH)
        driver.work(0.5, Leaf.FILE_READ)
        threads = (blocked(driver, Leaf.POLL, "", since), worker(driver, Leaf.FILE_READ, since, "/data/a.tar", DEV))
        host = disks(0, 10_000_000 + look * 10_000_000)
        pipeline.step(Frame(moment(driver.now), threads=threads, host=host))
    driver.train(30)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == "data_storage"
    assert stall.chain[:2] == ["training thread waits for worker 2000", "worker 2000 in read on /data/a.tar"]
    assert stall.chain[2].startswith("device loop3: 20.0 MB/s")
    told = ["its cgroup /slurm/job7 lets the run read 22.0 MB/s from loop3"] if limit == 22_000_000 else []
    assert stall.chain[3:] == told
    assert any("io.max" in advice for advice in stall.advice) == bool(told)


@pytest.mark.parametrize(
    ("inspection", "signal", "expected"),
    [
        (Inspection(1000, 1000, "T"), 19, "by SIGSTOP from bash (77)"),
        (Inspection(1000, 1000, "t", tracer_pid=88, tracer_comm="gdb"), None, "by its tracer gdb (88)"),
        (Inspection(1000, 1000, "D", frozen=True), None, "by the cgroup freezer"),
    ],
)
def test_a_stop_says_by_whom(inspection: Inspection, signal: int | None, expected: str) -> None:
    driver, pipeline = started()
    if signal is not None:
        kind = ProcessEventKind.SIGNAL
        driver.events.append(
            ProcessEvent(kind, driver.now, driver.pid, signal=signal, sender_pid=77, sender_comm="bash", by_user=True)
        )
    driver.spend(2.0, Leaf.STOPPED)
    sample = replace(driver.sample(Leaf.STOPPED), run=ThreadState.BLOCKED)
    pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=(sample,), inspections=(inspection,)))
    driver.events.clear()
    driver.train(20)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.stalls[-1].cause == "suspended"
    assert expected in rank.stalls[-1].summary
    assert rank.exit is not None
    assert rank.exit.code == 0
    adds_up(rank)


def test_a_socket_is_told_with_its_peer() -> None:
    driver, pipeline = started()
    driver.spend(2.0, Leaf.SOCKET)
    seen = Inspection(driver.pid, driver.tid, "S", peer="10.0.0.7:443")
    pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.SOCKET),), inspections=(seen,)))
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == "network"
    assert "10.0.0.7:443" in stall.summary


def test_a_hog_is_told_with_its_function_its_samples_and_its_rhythm() -> None:
    driver, pipeline = started()
    for line in (30, 31, 33, 31):
        driver.spend(1.2)
        frames = ("<module> (main.py:400)", "optimal_sequence_search (main.py:212)", f"busy (samples.py:{line})")
        seen = StackSeen(driver.now, driver.pid, driver.tid, frames)
        pipeline.step(Frame(moment(driver.now), (seen,), threads=(driver.sample(),)))
        driver.train(30)
        played(driver, pipeline)
    stall = rank_of(pipeline, driver).stalls[-1]
    assert stall.cause == "cpu_bound"
    assert "in busy (samples.py:31); every 30 steps, median 1.20 s" in stall.summary
    assert stall.period is not None
    assert stall.period.steps == 30
    assert stall.period.seconds == pytest.approx(1.2 + 30 * 0.05, rel=0.05)


REWARD = ("<module> (train.py:9)", "train (train.py:70)", "reward (reward.py:31)")
MODEL = (
    "<module> (train.py:9)",
    "train (train.py:72)",
    "Module._call_impl (torch/module.py:1750)",
    "forward (net.py:12)",
)


@pytest.mark.parametrize(
    ("others", "where"),
    [
        (0, "reward (reward.py:31)"),
        (1, "reward (reward.py:31)"),
        (2, "train (train.py:70)"),
        (3, "forward (net.py:12)"),
    ],
)
def test_looks_that_find_the_model_do_not_hide_what_most_show(others: int, where: str) -> None:
    """Of four looks so many come when the step does what each step does, the last one among them."""
    driver, pipeline = started()
    for look in range(4):
        driver.spend(0.5)
        inner = MODEL if 4 - look <= others else (*REWARD, f"part{look} (reward.py:{50 + look})")
        seen = StackSeen(driver.now, driver.pid, driver.tid, inner, running=True)
        pipeline.step(Frame(moment(driver.now), (seen,), threads=(driver.sample(),)))
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    (stall,) = rank.stalls
    assert stall.cause == "cpu_bound"
    assert f" in {where}" in stall.summary
    assert f" {where}" in stall.advice[0]
    inner = "forward (net.py:12)" if others > 1 else "reward.py:"
    assert inner in stall.chain[0]
    assert stall.python_stack is not None
    assert inner in stall.python_stack[-1]


@pytest.mark.parametrize("crowded", [0.1, 0.55])
def test_without_marks_a_wait_is_told_on_a_crowded_host_too(crowded: float) -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    driver.events = [replace(e, marks="no libtorch mapped") if isinstance(e, RankSeen) else e for e in driver.events]
    for second in range(20):
        driver.spend(0.4 if second == 14 else 0.0, Leaf.SOCKET)
        driver.spend(crowded if second in (12, 14) else 0.0, Leaf.RUNQUEUE)
        driver.spend(0.0 if second == 14 else 1.0)
        played(driver, pipeline, threads=(driver.sample(),))
    (stall,) = rank_of(pipeline, driver).stalls
    assert stall.cause == "network"
    assert stall.shares == {"network": pytest.approx(0.4 + (0.1 if crowded < 0.4 else 0.0))}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(12, "s are too few to know which waits are usual"), (30, "s watched no unusual wait has a known cause")],
)
def test_without_marks_a_short_run_is_not_called_usual(seconds: int, said: str) -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    driver.events = [replace(e, marks="no libtorch mapped") if isinstance(e, RankSeen) else e for e in driver.events]
    for _ in range(seconds):
        driver.spend(1.0)
        played(driver, pipeline, threads=(driver.sample(),))
    driver.exit()
    assert rank_of(played(driver, pipeline), driver).verdict.summary.endswith(said)


def test_seconds_before_it_is_known_that_nothing_marks_steps_are_what_later_ones_are_held_against() -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    (seen,) = (event for event in driver.events if isinstance(event, RankSeen))
    for second in range(16):
        if second == 10:
            driver.events.append(replace(seen, at_ns=driver.now, marks="no libtorch mapped"))
        driver.spend(0.8 if second == 12 else 0.0, Leaf.SOCKET)
        driver.spend(0.2 if second == 12 else 1.0)
        played(driver, pipeline, threads=(driver.sample(),))
    rank = rank_of(pipeline, driver)
    (stall,) = rank.stalls
    assert stall.cause == "network"
    (startup,) = (span for span in rank.phases if span.phase == "startup")
    assert startup.end is not None
    assert startup.end - startup.start < 12.5


def test_stalls_that_come_by_the_clock_say_so() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    for forward in (0.024, 0.020, 0.030, 0.024):
        begin = driver.now
        driver.spend(1.0, Leaf.SOCKET)
        while driver.now - begin < 20_000_000_000:
            driver.step(forward)
    driver.train(10)
    period = rank_of(played(driver), driver).stalls[-1].period
    assert period is not None
    assert period.seconds == pytest.approx(20, rel=0.02)


def test_another_program_that_the_training_started_is_not_the_worker_that_hangs() -> None:
    """A monitor that sleeps since long before: the step waits for a worker that has just begun to."""
    driver, pipeline = started()
    driver.fork(2001)
    command = ("python", "-c", "import time; time.sleep(9)")
    driver.events.append(ProcessEvent(ProcessEventKind.EXEC, driver.now, 2001, comm="python", command=command))
    driver.spend(0.01)
    pipeline = played(driver, pipeline)
    since = driver.now
    driver.fetches += 1
    for _ in range(4):
        driver.spend(0.5, Leaf.POLL, Region.FETCH)
        driver.work(0.5, Leaf.SLEEP)
        monitor = replace(worker(driver, Leaf.SLEEP, since - 5_000_000_000), pid=2001, tid=2001)
        threads = (blocked(driver, Leaf.POLL, "", since), worker(driver, Leaf.SLEEP, since), monitor)
        pipeline.step(Frame(moment(driver.now), threads=threads))
    assert pipeline.wants().stacks == ((2000, 2000),)


def test_behind_a_queue_of_a_loaders_own_the_worker_that_computes_is_asked_for_its_line() -> None:
    """As batchgenerators has it: no mark tells a fetch, the driver waits in a queue of Python's."""
    driver, pipeline = started()
    since, asked = driver.now, []
    for _ in range(4):
        driver.spend(0.4, Leaf.LOCK)
        driver.work(0.4)
        busy = replace(worker(driver, Leaf.CPU, since), run=ThreadState.ON)
        events, driver.events = tuple(driver.events), []
        pipeline.step(Frame(moment(driver.now), events, threads=(blocked(driver, Leaf.LOCK, "", since), busy)))
        for pid, tid in pipeline.wants().stacks:
            asked.append(pid)
            process = "BaseProcess._bootstrap (python3.11/process.py:314)"
            of = {driver.pid: ("main (train.py:9)", "Queue.get (python3.11/queue.py:180)")}
            frames = of.get(pid, (process, "producer (augmenter.py:40)", "crop (data.py:33)"))
            driver.events.append(StackSeen(driver.now, pid, tid, frames))
    assert asked == [driver.pid, 2000]


def test_a_blocked_worker_is_asked_once_the_driver_is_seen_in_its_queue() -> None:
    driver, pipeline = started()
    since, asked = driver.now, []
    for _ in range(4):
        driver.spend(0.4, Leaf.POLL, Region.FETCH)
        driver.work(0.4, Leaf.SLEEP)
        threads = (blocked(driver, Leaf.POLL, "", since), worker(driver, Leaf.SLEEP, since))
        events, driver.events = tuple(driver.events), []
        pipeline.step(Frame(moment(driver.now), events, threads=threads))
        for pid, tid in pipeline.wants().stacks:
            asked.append(pid)
            frames = ("_worker_loop (worker.py:350)", "__getitem__ (data.py:33)")
            if pid == driver.pid:
                frames = ("main (train.py:9)", "Queue.get (python3.11/queue.py:180)")
            driver.events.append(StackSeen(driver.now, pid, tid, frames))
    assert sorted(asked) == [driver.pid, 2000]


def test_a_hung_worker_is_told_with_its_call_and_its_line() -> None:
    driver, pipeline = started()
    since = driver.now
    driver.fetches += 1
    for _ in range(4):
        driver.spend(0.5, Leaf.POLL, Region.FETCH)
        driver.work(0.5, Leaf.SLEEP)
        threads = (blocked(driver, Leaf.POLL, "", since), worker(driver, Leaf.SLEEP, since))
        pipeline.step(Frame(moment(driver.now), threads=threads))
    assert pipeline.wants().stacks == ((2000, 2000),)
    stack = StackSeen(driver.now, 2000, 2000, ("_worker_loop (worker.py:350)", "__getitem__ (data.py:33)"))
    driver.events.append(stack)
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == "worker_hang"
    assert stall.chain[0] == "training thread waits for worker 2000"
    assert "in a sleep" in stall.summary
    assert "__getitem__ (data.py:33)" in stall.summary
    assert stall.python_stack == list(stack.frames)


def test_late_drivers_are_looked_at_at_once_and_then_twice_a_second() -> None:
    driver, pipeline = started()
    asked = []
    for _ in range(10):
        driver.spend(0.1, Leaf.FILE_WRITE)
        pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.FILE_WRITE),)))
        asked.append(bool(pipeline.wants().inspect))
    assert [place for place, one in enumerate(asked) if one] == [0, 5]


def test_a_users_crowd_of_late_drivers_keeps_nobody_from_being_looked_at() -> None:
    """60 of one user, then two of another one."""
    pipeline, users = Pipeline(), ["crowd"] * 60 + ["ann"] * 2
    drivers = [Driver(pid=pid, tid=pid) for pid in range(10_000, 10_000 + len(users))]
    for driver, user in zip(drivers, users):
        driver.begin()
        name = f"run-{driver.pid}"
        driver.events = [
            replace(event, run=name, user=user) if isinstance(event, RunStarted) else replace(event, run=name)
            for event in driver.events
            if isinstance(event, (RunStarted, RankSeen))
        ]
        driver.train(40)
        played(driver, pipeline)
    looks: list[tuple[int, int]] = []  # at which turn, at whom
    for turn in range(50):
        for driver in drivers:
            driver.spend(0.1, Leaf.FILE_WRITE)
        threads = tuple(driver.sample(Leaf.FILE_WRITE) for driver in drivers)
        pipeline.step(Frame(moment(drivers[0].now), threads=threads))
        looks += [(turn, pid) for pid, _ in pipeline.wants().inspect]
    first = looks[0][0]
    for start in range(first, 45):
        assert len([turn for turn, _ in looks if start <= turn < start + 5]) <= INSPECTED
    for pid in (10_060, 10_061):
        turns = [turn for turn, looked in looks if looked == pid]
        assert turns[0] == first
        assert set(map(int.__sub__, turns[1:], turns)) == {5}, "twice a second"
    assert {pid for _, pid in looks} == {driver.pid for driver in drivers}, "each in its turn"


@pytest.mark.parametrize(("worked", "cause"), [(0.2, "deadlock"), (4.0, "data_cpu")])
def test_what_the_worker_does_behind_the_lock_is_told_by_how_long_it_takes(worked: float, cause: str) -> None:
    """A look that finds the worker on its way again, before the driver has its batch, takes nothing back."""
    driver, pipeline = started()
    since = driver.now
    driver.fetches += 1
    for _ in range(4):
        driver.spend(0.5, Leaf.PIPE_READ, Region.FETCH)
        threads = (blocked(driver, Leaf.PIPE_READ, "", since), worker(driver, Leaf.LOCK, since))
        pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=threads))
        driver.events.clear()
    assert rank_of(pipeline, driver).stalls[-1].cause == "deadlock"
    locked = driver.now - since
    for _ in range(round(worked / 0.2)):
        driver.spend(0.2, Leaf.PIPE_READ, Region.FETCH)
        driver.work(0.2)
        cells = [0] * (5 * LEAVES)
        cells[Leaf.LOCK], cells[Leaf.CPU] = locked, driver.now - since - locked
        going = replace(worker(driver, Leaf.CPU, since), run=ThreadState.ON, cells=tuple(cells))
        threads = (blocked(driver, Leaf.PIPE_READ, "", since), going)
        pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=threads))
        driver.events.clear()
    driver.train(20)
    closed = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert closed.cause == cause
    assert closed.seconds == pytest.approx(2.0 + worked, abs=0.05)


HELD = HeldLock(1, 9, 4711, "python", exclusive=True, path="/data/cache.lock")


@pytest.mark.parametrize(
    ("call", "leaf", "held", "frames", "summary"),
    [
        ("flock", Leaf.LOCK, (HELD,), (), " s for the lock /data/cache.lock, which process 4711 (python) holds"),
        ("fcntl", Leaf.LOCK, (), (), " s for the lock /data/cache.lock"),
        ("", Leaf.SLEEP, (HELD,), (), " s for the lock /data/cache.lock, which process 4711 (python) holds"),
        (
            "",
            Leaf.SLEEP,
            (),
            ("Set.__getitem__ (data.py:7)", "acquire (_api.py:511)"),
            " s for a lock file, in acquire (_api.py:511)",
        ),
    ],
)
def test_a_worker_at_a_files_lock_is_no_deadlock(
    call: str, leaf: Leaf, held: tuple[HeldLock, ...], frames: tuple[str, ...], summary: str
) -> None:
    """Its holder gives it back, which a lock that was held at the fork never is."""
    driver, pipeline = started()
    since, asked = driver.now, []
    driver.fetches += 1
    for _ in range(6):
        driver.spend(0.5, Leaf.PIPE_READ, Region.FETCH)
        threads = (blocked(driver, Leaf.PIPE_READ, "", since), replace(worker(driver, leaf, since), call=call))
        locked = "/data/cache.lock" if call else ""
        seen = Inspection(2000, 2000, "S", path=locked, locking=call, held_locks=held)
        stack = [StackSeen(driver.now, 2000, 2000, frames)] if frames else []
        inspections = (seen,) if (2000, 2000) in pipeline.wants().inspect else ()
        asked += inspections
        pipeline.step(Frame(moment(driver.now), (*driver.events, *stack), threads=threads, inspections=inspections))
        driver.events.clear()
    assert asked
    opened = rank_of(pipeline, driver).stalls[-1]
    driver.train(20)
    closed = rank_of(played(driver, pipeline), driver).stalls[-1]
    for stall in (opened, closed):
        assert stall.cause == "lock_wait"
        assert stall.summary.startswith("worker 2000 waited ")
        assert stall.summary.endswith(summary)
    assert closed.seconds == pytest.approx(3.0, abs=0.05)
    assert closed.chain[0] == "training thread waits for worker 2000"


@pytest.mark.parametrize("busy", [False, True])
def test_a_lock_that_nobody_gives_back_is_a_deadlock_unless_somebody_works(busy: bool) -> None:
    driver, pipeline = started()
    driver.fork(2001)
    driver.train(5)
    played(driver, pipeline)
    since = driver.now
    driver.fetches += 1
    for _ in range(6):
        driver.spend(0.5, Leaf.PIPE_READ, Region.FETCH)
        other = replace(worker(driver, Leaf.CPU if busy else Leaf.PIPE_READ, since), pid=2001, tid=2001)
        if busy:
            driver.work(0.5)
            other = replace(other, run=ThreadState.ON)
        threads = (blocked(driver, Leaf.PIPE_READ, "", since), worker(driver, Leaf.LOCK, since), other)
        pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=threads))
        driver.events.clear()
    opened = rank_of(pipeline, driver).stalls[-1]
    # When the driver is told that its step is over, the worker has long gone on.
    pipeline.step(Frame(moment(driver.now), threads=(worker(driver, Leaf.PIPE_READ, driver.now),)))
    driver.train(20)
    closed = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert (opened.cause == "deadlock", closed.cause == "deadlock") == (not busy, not busy)
    if not busy:
        assert closed.seconds == pytest.approx(3.0, abs=0.05)
        assert closed.chain[1] == "worker 2000 blocked in futex"


@pytest.mark.parametrize(
    ("share", "late", "cause"),
    [(0.3, 0.15, "cpu_contention"), (0.05, 0.15, "unknown"), (None, 0.15, "unknown"), (0.3, 4.0, "unknown")],
)
def test_a_timer_that_came_late_is_the_hypervisors_doing_as_far_as_it_took_processors(
    share: float | None, late: float, cause: str
) -> None:
    """Of two processors: what it kept is counted by the kernel, and more than that it does not explain."""
    driver, pipeline = started()
    began = driver.now
    for _ in range(4):
        driver.train(20)
        played(driver, pipeline)
        stolen = None if share is None else round(share * 2 * (driver.now - began))
        pipeline.step(Frame(moment(driver.now), host=HostSample(cpus=2, steal_ns=stolen)))
    driver.spend(late, Leaf.SLEEP)
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == cause
    assert stall.seconds == pytest.approx(late, abs=0.02)
    if cause == "cpu_contention":
        assert "the hypervisor took 30.0 % of the processors" in stall.summary


@pytest.mark.parametrize("leaf", [Leaf.SLEEP, Leaf.CPU, Leaf.POLL])
@pytest.mark.parametrize(("stood", "contended"), [(0.15, 0.15), (0.06, 0.06), (0.0, 0.0)])
def test_what_comes_late_while_the_host_stands_still_is_the_hosts_doing(
    leaf: Leaf, stood: float, contended: float
) -> None:
    """Its hypervisor took them; the kernel's timers end late. Who sleeps wakes late, who computes takes longer."""
    driver, pipeline = started()
    driver.train(60)
    played(driver, pipeline)
    driver.spend(0.15, leaf)
    if stood:
        driver.events.append(HostStoodStill(driver.now, round(stood * NS)))
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost.get("cpu_contention", 0.0) == pytest.approx(contended, abs=0.01)
    assert sum(rank.lost.values()) == pytest.approx(0.15, abs=0.02)
    if stood == 0.15:
        assert "stood still for 150 ms" in rank.stalls[-1].summary
        assert rank.stalls[-1].evidence[0].key == "cpu_contention.timers_late"


def test_a_standstill_before_a_late_step_or_behind_it_explains_nothing() -> None:
    driver, pipeline = started()
    driver.events.append(HostStoodStill(driver.now, NS // 10))
    driver.train(60)
    driver.spend(0.15, Leaf.SLEEP)
    driver.train(20)
    driver.events.append(HostStoodStill(driver.now, NS // 10))
    assert set(rank_of(played(driver, pipeline), driver).lost) == {"unknown"}


@pytest.mark.parametrize(("after", "told"), [(0.3, False), (0.8, True)])
def test_a_driver_that_waits_for_a_processor_may_be_ending(after: float, told: bool) -> None:
    """The interpreter's end takes half a second, more than that with others on its processors."""
    driver, pipeline = started()
    for _ in range(round(after / 0.1)):
        driver.spend(0.04)
        driver.spend(0.06, Leaf.RUNQUEUE)
        pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.RUNQUEUE),)))
    stalls = rank_of(pipeline, driver).stalls
    assert [stall.cause for stall in stalls] == ["cpu_contention"] * told


@pytest.mark.parametrize(("share", "told"), [(0.3, False), (0.0, True)])
def test_steps_that_grow_while_the_hypervisor_keeps_the_processors_are_no_drift(share: float, told: bool) -> None:
    driver, pipeline = started()
    began = driver.now
    for number in range(1000):
        driver.spend(0.02 * number / 1000)
        driver.train(1)
        if number % 20 == 0:
            played(driver, pipeline)
            stolen = round(share * 2 * (driver.now - began))
            pipeline.step(Frame(moment(driver.now), host=HostSample(cpus=2, steal_ns=stolen)))
    assert ("drift" in {one.cause for one in rank_of(pipeline, driver).bottlenecks}) == told


@pytest.mark.parametrize(("gone", "after", "told"), [(False, 1.0, True), (True, 1.0, False), (True, 4.0, True)])
def test_a_driver_whose_workers_have_just_gone_may_be_ending(gone: bool, after: float, told: bool) -> None:
    driver, pipeline = started()
    if gone:
        driver.die(2000)
    for _ in range(round(after / 0.1)):
        driver.spend(0.1)
        pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=(driver.sample(Leaf.CPU),)))
        driver.events.clear()
    assert [stall.cause for stall in rank_of(pipeline, driver).stalls] == ["cpu_bound"] * told


def test_batches_that_come_together_and_then_none_are_how_slow_data_is_fetched() -> None:
    """Four workers are blocked for each batch alike: every fourth step is late, and nobody hangs."""
    driver, pipeline = started()
    for number in range(200):
        late = 0.09 if number % 4 == 0 else 0.0001
        driver.work(4 * (late + 0.02), Leaf.SLEEP)
        driver.work(0.005)
        if number % 40 == 0:
            stack = ("_worker_loop (worker.py:350)", "__getitem__ (data.py:33)")
            driver.events.append(StackSeen(driver.now, 2000, 2000, stack))
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, ("main (a.py:1)", "poll (b.py:2)")))
        driver.fetch(late, Leaf.POLL)
        driver.spend(0.01)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert {stall.cause for stall in rank.stalls[-20:]} == {"unknown"}, "the first ones came after steps without any"
    assert "workers were blocked in a sleep" in rank.stalls[-1].summary
    assert "waiting for loader workers that are blocked cost" in rank.verdict.summary
    assert "poll (b.py:2)" not in rank.verdict.summary
    assert rank.ordinary.worker_blocked_seconds_per_batch == pytest.approx(4 * 0.0425, rel=0.2)


def test_what_workers_do_in_each_step_names_their_line() -> None:
    found = FoundBottleneck(Claim(Cause.DATA_CPU, {}, IN_ALL(seconds=37.6)), Cause.DATA_CPU, 5.5e9, 0.13)
    where = Where("busy (samples.py:29)", 4, 4)
    facts = {Cause.DATA_CPU: AdviceInput(where=where)}
    made = bottleneck(found, facts)
    assert made.summary == "workers spent 37.6 s of CPU on the batches of all ordinary steps, in busy (samples.py:29)"
    assert str(made.message) == made.summary
    assert ", in " not in bottleneck(found, {}).summary


def test_a_busy_worker_whose_stack_came_too_late_has_none() -> None:
    """Its batch was made by then: it waits in a queue, and is asked again when it is late again."""
    step = OpenStep()
    step.late.busy = 8
    loop = ("<module> (train.py:9)", "producer (augmenter.py:60)")
    step.add_stack(StackSeen(1, 8, 8, (*loop, "Queue.put (python3.11/queues.py:89)")), 7)
    assert step.late.stack_of(8) == ()
    step.add_stack(StackSeen(2, 8, 8, (*loop, "rotate (data.py:3)")), 7)
    assert step.late.stack_of(8) == (*loop, "rotate (data.py:3)")
    step.late.busy = None
    step.add_stack(StackSeen(3, 9, 9, (*loop, "Lock.acquire (python3.11/threading.py:9)")), 7)
    assert step.late.stack_of(9), "that is where another one is blocked"


def test_stacks_of_workers_in_late_steps_name_the_line_of_the_ordinary_ones() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    pipeline = played(driver)
    driver.events.append(StackSeen(driver.now, 2000, 2000, ("_worker_loop (worker.py:1)", "slow (data.py:3)")))
    played(driver, pipeline)
    (rank,) = (rank for run in pipeline.runs.values() for rank in run.ranks)
    assert list(rank.ordinary.of_workers.taken) == [("_worker_loop (worker.py:1)", "slow (data.py:3)")]


def test_files_are_looked_for_while_a_late_driver_sleeps_and_some_seconds_longer() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(0.5, Leaf.LOCK)
    played(driver, pipeline, threads=(driver.sample(Leaf.LOCK),))
    assert not pipeline.wants().looks
    driver.spend(0.5, Leaf.SLEEP)
    played(driver, pipeline, threads=(driver.sample(Leaf.SLEEP),))
    assert pipeline.wants().looks
    for looked in (True, False):
        driver.train(100)
        played(driver, pipeline)
        assert pipeline.wants().looks is looked
        driver.train(100)
        played(driver, pipeline)


def test_a_worker_that_is_blocked_for_seconds_in_an_evaluation_is_none_of_it() -> None:
    driver, pipeline = started()
    for _ in range(20):
        driver.fetch(0.002)
        driver.spend(0.02, Leaf.CPU, Region.NO_GRAD)
    since = driver.now
    for _ in range(6):
        driver.work(0.5, Leaf.SLEEP)
        driver.spend(0.5, Leaf.PIPE_READ, Region.FETCH)
        threads = (driver.sample(Leaf.PIPE_READ), worker(driver, Leaf.SLEEP, since))
        pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=threads))
        driver.events.clear()
    for _ in range(20):
        driver.fetch(0.002)
        driver.spend(0.02, Leaf.CPU, Region.NO_GRAD)
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert [stall.cause for stall in rank.stalls] == ["worker_hang"]
    assert rank.lost["worker_hang"] == pytest.approx(3.0, abs=0.1)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.88, abs=0.1)
    adds_up(rank)


def test_a_stall_before_it_is_known_what_marks_steps_has_its_own_step() -> None:
    """An optimiser without marks: the first 64 backwards are taken for steps all at once."""
    driver = Driver()
    driver.begin()
    for step in range(90):
        driver.spend(1.0 if step == 40 else 0.02)
        driver.backward()
    driver.exit()
    (stall,) = rank_of(played(driver), driver).stalls
    assert stall.first_step == 40


@pytest.mark.parametrize(
    ("frame", "cause"),
    [("D.__getitem__ (train.py:8)", "worker_hang"), ("wait (multiprocessing/connection.py:9)", "unknown")],
)
def test_a_worker_that_reads_a_pipe_of_its_own_hangs_and_an_idle_one_does_not(frame: str, cause: str) -> None:
    """Its stack tells them apart: it is asked for although it seems idle."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    pipeline = played(driver)
    since = driver.now
    for _ in range(6):
        driver.spend(0.5, Leaf.PIPE_READ, Region.FETCH)
        driver.work(0.5, Leaf.PIPE_READ)
        waits = StackSeen(driver.now, driver.pid, driver.tid, ("<module> (train.py:17)", "get (queues.py:113)"))
        asked = (2000, 2000) in pipeline.wants().stacks
        stacks = (waits, *([StackSeen(driver.now, 2000, 2000, ("_worker_loop (worker.py:3)", frame))] if asked else ()))
        threads = (driver.sample(Leaf.PIPE_READ), worker(driver, Leaf.PIPE_READ, since))
        pipeline.step(Frame(moment(driver.now), (*driver.events, *stacks), threads=threads))
        driver.events.clear()
    driver.train(30)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == cause
    assert cause == "unknown" or stall.summary.endswith(", in D.__getitem__ (train.py:8)")


@pytest.mark.parametrize(
    ("crowded", "seconds", "cause"),
    [(0.8, 0.3, "cpu_contention"), (0.1, 0.3, "unknown"), (0.8, 3.0, "unknown")],
)
def test_a_batch_that_idle_workers_hand_over_late_on_a_crowded_host(crowded: float, seconds: float, cause: str) -> None:
    """A thread of the worker does it, and gets no CPU: the kernel counts that some task waited for one."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    pipeline = played(driver)
    for _ in range(3):
        host = HostSample(cpus=2, pressure={"cpu.some": crowded * driver.now / NS})
        pipeline.step(Frame(moment(driver.now), host=host))
        driver.train(20)
        pipeline = played(driver, pipeline)
    driver.spend(seconds, Leaf.SOCKET, Region.FETCH)
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == cause
    assert stall.seconds == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize(
    ("queued", "waited", "told"),
    [(0.25, 0.08, {"cpu_contention": 0.33}), (0.04, 0.3, {"unknown": 0.34})],
)
def test_a_batch_that_comes_late_where_the_training_thread_waited_longer_for_a_cpu(
    queued: float, waited: float, told: dict[str, float]
) -> None:
    """Other programs came a moment ago: nothing was read of the host since. The thread's own waits show them."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    pipeline = played(driver)
    driver.spend(waited, Leaf.SOCKET, Region.FETCH)
    driver.spend(queued, Leaf.RUNQUEUE)
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.shares == {cause: pytest.approx(seconds, abs=0.02) for cause, seconds in told.items()}


@pytest.mark.parametrize(
    ("computed", "queued", "told"),
    [
        (0.3, 0.0, {"data_cpu": 0.3}),
        (0.15, 0.15, {"data_cpu": 0.3}),
        (0.05, 0.25, {"cpu_contention": 0.3}),
        (0.05, 0.0, {"unknown": 0.21, "data_cpu": 0.09}),
    ],
    ids=["computed", "half of it queued", "queued", "neither"],
)
def test_a_late_batch_is_told_by_what_its_worker_did(computed: float, queued: float, told: dict[str, float]) -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    pipeline = played(driver)
    driver.work(computed, Leaf.CPU)
    driver.work(queued, Leaf.RUNQUEUE)
    driver.fetch(0.3, Leaf.POLL)
    driver.spend(0.01)
    driver.backward()
    driver.optimizer()
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.shares == {cause: pytest.approx(seconds, abs=0.02) for cause, seconds in told.items()}


@pytest.mark.parametrize("running", [True, False])
def test_what_computes_is_named_by_a_stack_of_a_thread_that_ran(running: bool) -> None:
    """One that was on no CPU shows the pause before it."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.spend(0.6, Leaf.SLEEP)
    frames = ("<module> (train.py:9)", "pause (train.py:30)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=running))
    driver.spend(1.0)
    driver.train(30)
    (stall,) = rank_of(played(driver), driver).stalls
    assert stall.cause == "cpu_bound"
    assert ("pause" in stall.summary) == running
    assert bool(stall.python_stack) == running


@pytest.mark.parametrize(
    ("cpus", "stood", "contended"), [(2, (0,), 0.15), (8, (0, 1, 2), 0.0), (8, (0, 1, 2, 3), 0.15)]
)
def test_a_standstill_is_that_of_half_of_the_processors_and_counts_once(
    cpus: int, stood: tuple[int, ...], contended: float
) -> None:
    driver, pipeline = started()
    driver.train(60)
    pipeline.step(Frame(moment(driver.now), host=HostSample(cpus=cpus)))
    played(driver, pipeline)
    driver.spend(0.15, Leaf.SLEEP)
    driver.events += [HostStoodStill(driver.now, round(0.15 * NS), cpu) for cpu in stood]
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost.get("cpu_contention", 0.0) == pytest.approx(contended, abs=0.01)
    if contended:
        assert list(rank.stalls[-1].advice) == ["ask for dedicated CPUs: the hypervisor takes some away"]


def test_of_late_ranks_the_one_that_waits_for_no_rank_is_asked_first() -> None:
    """The others' stacks say no more than that they wait."""
    one, other = Driver(), Driver(pid=2500, tid=2500)
    one.begin()
    one.train(40)
    pipeline = played(one)
    other.events.append(
        RankSeen(next(iter(pipeline.runs)), other.now, other.pid, None, other.now, rank=1, world_size=2)
    )
    other.train(40)
    played(other, pipeline)
    one.region, other.region = Region.BACKWARD, Region.STEP
    one.spend(3.0, Leaf.LOCK)
    other.spend(3.0, Leaf.SOCKET)
    pipeline.step(Frame(moment(other.now), threads=(one.sample(Leaf.LOCK), other.sample(Leaf.SOCKET))))
    assert pipeline.wants().stacks == ((2500, 2500), (one.pid, one.tid))


def started_with_another_rank() -> tuple[Driver, Pipeline]:
    driver, pipeline = started()
    other = Driver(pid=2000, tid=2000)
    run = next(iter(pipeline.runs))
    other.events.append(RankSeen(run, other.now, other.pid, None, other.now, rank=1, world_size=2))
    other.train(5)
    played(other, pipeline)
    return driver, pipeline


@pytest.mark.parametrize("asks_ranks", [False, True])
def test_a_request_in_a_training_with_ranks_is_no_wait_for_them(asks_ranks: bool) -> None:
    driver, pipeline = started_with_another_rank()
    for _ in range(2):
        driver.spend(1.0, Leaf.SOCKET)
        frames = ("log (train.py:9)", "barrier (distributed_c10d.py:4)" if asks_ranks else "recv_into (ssl.py:1295)")
        stack = StackSeen(driver.now, driver.pid, driver.tid, frames)
        seen = Inspection(driver.pid, driver.tid, "S", peer="10.0.0.7:443")
        sample = driver.sample(Leaf.SOCKET)
        pipeline.step(Frame(moment(driver.now), (stack,), threads=(sample,), inspections=(seen,)))
    driver.train(20)
    played(driver, pipeline)
    (rank,) = (one for one in pipeline.report(moment(driver.now)).runs[0].ranks if one.pid == driver.pid)
    assert rank.stalls[-1].cause == ("collective_wait" if asks_ranks else "network")
    driver.spend(1.0, Leaf.SOCKET)  # of a stall that recurs no stack is taken
    seen = Inspection(driver.pid, driver.tid, "S", peer="10.0.0.7:443")
    pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.SOCKET),), inspections=(seen,)))
    driver.train(20)
    played(driver, pipeline)
    (rank,) = (one for one in pipeline.report(moment(driver.now)).runs[0].ranks if one.pid == driver.pid)
    assert [stall.cause for stall in rank.stalls[-2:]] == ["collective_wait" if asks_ranks else "network"] * 2


@pytest.mark.parametrize("computes", [0.0, 3.0])
@pytest.mark.parametrize("seen", ["", "main (train.py:9)", "evaluate (train.py:30)"])
def test_a_wait_for_ranks_with_gradients_off_is_no_evaluation(computes: float, seen: str) -> None:
    """FSDP gathers its parameters so. ``computes``: seconds of forward passes beside the wait, which are one. ``seen``:
    what calls the model in a stack of the wait."""
    driver, pipeline = started_with_another_rank()
    driver.train(60)
    driver.spend(1.0, Leaf.SOCKET, Region.NO_GRAD)
    if seen:
        frames = (seen, "Module._call_impl (torch/module.py:1)", "all_gather_single (torch/distributed_c10d.py:4394)")
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.spend(computes, Leaf.CPU, Region.NO_GRAD)
    driver.train(20)
    played(driver, pipeline)
    (rank,) = (one for one in pipeline.report(moment(driver.now)).runs[0].ranks if one.pid == driver.pid)
    evaluated = [phase for phase in rank.phases if phase.phase == "evaluation"]
    evaluates = bool(computes) or seen.startswith("evaluate")
    assert bool(evaluated) == evaluates
    assert evaluates or (rank.stalls[-1].cause, round(rank.stalls[-1].seconds, 1)) == ("collective_wait", 1.0)


@pytest.mark.parametrize("region", [Region.NO_GRAD, Region.STEP])
@pytest.mark.parametrize("waits", [0.5, 1.9, 2.5, 20.0])
def test_an_evaluation_is_known_however_long_it_waits_for_the_other_ranks_in_the_end(
    waits: float, region: Region
) -> None:
    """Without a stack and without a loader's batches: its own part was small, or gradients are on while it waits."""
    driver, pipeline = started_with_another_rank()
    for _ in range(3):
        driver.spend(2.0, region=Region.NO_GRAD)
        driver.spend(waits, Leaf.LOCK, region)
        driver.train(20)
    played(driver, pipeline)
    (rank,) = (one for one in pipeline.report(moment(driver.now)).runs[0].ranks if one.pid == driver.pid)
    evaluated = 2.0 + (waits if waits < 2.0 else 0.0)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(3 * evaluated, abs=0.1)
    assert rank.lost == ({} if waits < 2.0 else {"collective_wait": pytest.approx(3 * waits, abs=0.1)})


@pytest.mark.parametrize("first", ["computing", "evaluation"])
def test_what_a_step_loses_beside_an_evaluation_is_drawn_where_it_was(first: str) -> None:
    """Looks in between tell when gradients were off."""
    driver, pipeline = started()
    driver.train(60)
    played(driver, pipeline)
    begun = driver.now
    for part in ("computing", "evaluation") if first == "computing" else ("evaluation", "computing"):
        for _ in range(8):
            if part == "evaluation":
                driver.fetch(0.05)
                driver.spend(0.05, Leaf.CPU, Region.NO_GRAD)
            else:
                driver.spend(0.1)
            pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=(driver.sample(),)))
            driver.events.clear()
        if part == "computing":
            lines = ("<module> (train.py:1)", "plot (train.py:9)")
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, lines, running=True))
    ended = driver.now
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    (stall,) = rank.stalls
    assert stall.cause == "cpu_bound"
    assert stall.end is not None
    at = (begun if first == "computing" else ended - 0.8 * NS) / NS
    assert stall.start - moment(0).wall_ns / NS == pytest.approx(at, abs=0.12)
    assert stall.end - stall.start == pytest.approx(stall.seconds, abs=0.01)


@pytest.mark.parametrize(
    ("ran", "steal", "contended"), [(0.03, NS, 0.12), (0.03, 0, 0.0), (0.14, NS, 0.0), (None, NS, 0.0)]
)
def test_a_processor_that_did_not_run_the_thread_is_not_its_computing(
    ran: float | None, steal: int, contended: float
) -> None:
    """By the scheduler's own count, which leaves out what the hypervisor took, if only in short pieces."""
    driver, pipeline = started()
    driver.ran = 0.0
    driver.train(60)
    pipeline.step(Frame(moment(driver.now), host=HostSample(cpus=2, steal_ns=steal)))
    played(driver, pipeline)
    driver.spend(0.15)
    if ran is None:
        driver.ran = None
    else:
        driver.ran -= 0.15 - ran
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost.get("cpu_contention", 0.0) == pytest.approx(contended, abs=0.01)
    assert sum(rank.lost.values()) == pytest.approx(0.15, abs=0.02)
    if contended:
        assert rank.stalls[-1].evidence[0].key == "cpu_contention.not_run"


def test_threads_of_one_user_leave_places_for_anothers() -> None:
    eves = [("eve", (pid, pid)) for pid in range(100)]
    assert _in_turn([*eves, ("ann", (1000, 1000))])[:3] == ((0, 0), (1000, 1000), (1, 1))
