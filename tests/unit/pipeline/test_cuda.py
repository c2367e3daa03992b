"""What becomes of the time that a driver spends in calls of CUDA."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.builders.driver import PID, Driver, moment, ns, played
from trainprobe.model.cells import Leaf, Region, ThreadState
from trainprobe.model.event import CallFailed, FileEventKind, RankSeen, StepFile
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.model.sample import Inspection, ProcessSample, ThreadLook
from trainprobe.pipeline import Pipeline


def rank_of(pipeline: Pipeline, driver: Driver) -> Rank:
    (run,) = pipeline.report(moment(driver.now)).runs
    (rank,) = run.ranks
    return rank


def begun(steps: int = 40) -> Driver:
    """A training that waits for its GPU in each step."""
    driver = Driver()
    driver.begin()
    on_a_gpu(driver, steps)
    return driver


def on_a_gpu(driver: Driver, count: int, wait: float = 0.03, memory: float = 0.0, *, by_thread: bool = False) -> None:
    """Steps of 60 ms and what is waited longer for the GPU's work or memory."""
    for _ in range(count):
        driver.fetch()
        driver.spend(0.004)
        driver.backward()
        driver.spend(memory, *((Leaf.LOCK, Region.BACKWARD) if by_thread else (Leaf.GPU,)))
        if memory:
            spent, allocations, frees = driver.gpu_memory
            driver.gpu_memory = spent + ns(memory), allocations + 7, frees + 6
        driver.spend(wait, Leaf.GPU)
        driver.optimizer()


def test_a_gpu_that_has_more_to_do_loses_nothing() -> None:
    driver = begun()
    for seconds in (0.5, 4.0, 20.0):
        on_a_gpu(driver, 1, seconds)
        on_a_gpu(driver, 10)
    rank = rank_of(played(driver), driver)
    assert rank.lost == {}
    assert rank.verdict.kind == "none"
    assert rank.ledger["gpu_wait"] == pytest.approx(24.5 + 70 * 0.03)


def test_a_gpu_that_does_not_come_back_is_told() -> None:
    driver = begun()
    on_a_gpu(driver, 1, 45.0)
    on_a_gpu(driver, 10)
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"unknown": pytest.approx(45, rel=0.01)}
    assert "gpu_wait" in rank.verdict.summary


def by_autograds_thread(driver: Driver, count: int, backward: float = 0.03) -> None:
    """Steps of 70 ms whose backward is another thread's: the driver waits for it at a lock, then for the GPU."""
    for _ in range(count):
        driver.fetch()
        driver.spend(0.004)
        driver.backward(0.001)
        driver.spend(backward, Leaf.LOCK, Region.BACKWARD)
        driver.optimizer()
        driver.spend(0.03, Leaf.GPU)


def test_a_backward_of_autograds_thread_that_has_more_to_do_loses_nothing() -> None:
    """For single batches, and for good: layers are unfrozen."""
    driver = Driver()
    driver.begin()
    for seconds in (0.1, 0.5, 4.0):
        by_autograds_thread(driver, 20)
        by_autograds_thread(driver, 1, seconds)
    by_autograds_thread(driver, 100, 0.2)
    rank = rank_of(played(driver), driver)
    assert (rank.lost, rank.verdict.kind) == ({}, "none")


def test_a_backward_whose_thread_does_not_come_back_is_told() -> None:
    driver = Driver()
    driver.begin()
    by_autograds_thread(driver, 40)
    by_autograds_thread(driver, 1, 45.0)
    by_autograds_thread(driver, 10)
    assert rank_of(played(driver), driver).lost == {"unknown": pytest.approx(45, rel=0.01)}


@pytest.mark.parametrize(("state", "lost"), [("R", {}), ("S", {"unknown": pytest.approx(4.0, rel=0.02)})])
def test_a_backward_in_which_no_thread_computes_is_told(state: str, lost: dict[str, float]) -> None:
    driver = Driver()
    driver.begin()
    by_autograds_thread(driver, 40)
    pipeline = played(driver)
    driver.fetch()
    driver.spend(0.004)
    driver.backward(0.001)
    for _ in range(40):
        driver.spend(0.1, Leaf.LOCK, Region.BACKWARD)
        sample = replace(driver.sample(Leaf.LOCK), region=Region.BACKWARD, run=ThreadState.BLOCKED)
        looked = Inspection(PID, PID, "S", threads=(ThreadLook(1100, 1100, state),))
        played(driver, pipeline, threads=(sample,), inspections=(looked,))
    driver.optimizer()
    by_autograds_thread(driver, 10)
    assert rank_of(played(driver, pipeline), driver).lost == lost


def lost_by_a_rank(longer: Callable[[int], float], *, forward: bool) -> dict[str, float]:
    """What one of two ranks loses in 300 steps of 150 ms whose backward is another thread's, and so many times as long
    in some steps; the forward pass along with it, or not."""
    drivers, pipeline, run = (Driver(), Driver(pid=1001, tid=1001)), Pipeline(), "train.py-0123abcd"
    drivers[0].begin()
    drivers[1].spend(1.0)
    drivers[0].events += [
        RankSeen(run, driver.now, driver.pid, None, driver.now, rank=rank, world_size=2)
        for rank, driver in enumerate(drivers)
    ]
    for step in range(300):
        for driver in drivers:
            driver.fetch()
            driver.spend(0.05 * (longer(step) if forward else 1.0))
            driver.backward(0.004)
            driver.spend(0.07 * longer(step), Leaf.LOCK, Region.BACKWARD)
            driver.optimizer()
            driver.spend(0.02, Leaf.GPU)
        events = sorted((*drivers[0].events, *drivers[1].events), key=lambda event: event.at_ns)
        read = tuple(ProcessSample(driver.pid, 1, "driver", 0) for driver in drivers)
        pipeline.step(Frame(moment(drivers[0].now), tuple(events), processes=read))
        for driver in drivers:
            driver.events.clear()
    return next(one for one in pipeline.report(moment(drivers[0].now)).runs[0].ranks if one.pid == PID).lost


def test_a_heavier_batch_of_a_rank_on_a_gpu_is_no_wait_for_others() -> None:
    assert lost_by_a_rank(lambda step: 3.0 if step % 17 == 16 else 1.0, forward=True) == {}


def test_a_wait_of_a_rank_on_a_gpu_for_others_is_told() -> None:
    lost = lost_by_a_rank(lambda step: 3.0 if step % 17 == 16 else 1.0, forward=False)
    assert lost == {"collective_wait": pytest.approx(17 * 0.14, rel=0.05)}


def test_a_longer_backward_of_all_ranks_of_a_host_is_learnt() -> None:
    """Layers are unfrozen: nobody is late."""
    lost = lost_by_a_rank(lambda step: 3.0 if step >= 150 else 1.0, forward=False)
    assert lost == {"collective_wait": pytest.approx(32 * 0.14, rel=0.05)}


@pytest.mark.parametrize("leaf", [Leaf.RUNQUEUE, Leaf.SWAP])
def test_a_backward_of_a_thread_that_is_disturbed_as_the_driver_is_stays_lost(leaf: Leaf) -> None:
    driver, faults = Driver(), 0
    driver.begin()
    for _ in range(4):
        driver.swap_faults = faults
        by_autograds_thread(driver, 40)
        faults += 500 if leaf is Leaf.SWAP else 0
        driver.swap_faults = faults
        driver.spend(0.5, leaf)
        by_autograds_thread(driver, 1, 1.03)
    by_autograds_thread(driver, 10)
    lost = rank_of(played(driver), driver).lost
    assert sum(lost.values()) == pytest.approx(4 * 1.5, rel=0.02)


@pytest.mark.parametrize("by_thread", [False, True])
def test_memory_that_comes_and_goes_is_a_stall(by_thread: bool) -> None:
    """In the driver's own calls, or in those of the backward's threads that it waits for."""
    driver, seconds = begun(), random.uniform(0.2, 2.0)
    on_a_gpu(driver, 1, memory=seconds, by_thread=by_thread)
    on_a_gpu(driver, 20)
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"gpu_memory": pytest.approx(seconds, rel=0.02)}
    (stall,) = rank.stalls
    assert stall.summary.endswith("s in cudaMalloc and cudaFree: 7 allocations, 6 frees")
    assert {one.what: one.value for one in stall.evidence}["allocations of GPU memory"] == 7
    assert any("empty_cache" in text for text in stall.advice)


def test_memory_that_comes_and_goes_in_every_step_is_a_bottleneck() -> None:
    driver = begun(10)
    on_a_gpu(driver, 200, memory=0.02)
    rank = rank_of(played(driver), driver)
    (found,) = rank.bottlenecks
    assert (found.cause, rank.verdict.cause) == ("gpu_memory", "gpu_memory")
    assert found.seconds == pytest.approx(200 * 0.02, rel=0.1)


def test_a_save_waits_for_its_tensors_from_the_gpu() -> None:
    driver = begun()
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/ckpt/last.pt", opened=opened)
    driver.spend(0.8, Leaf.GPU)
    driver.spend(0.4, Leaf.FILE_WRITE)
    driver.files[1, 7] = StepFile(1, 7, ns(0.4), 0, 1 << 28)
    driver.file(FileEventKind.CLOSED, "/ckpt/last.pt", opened=opened, size=1 << 28, write=ns(0.4))
    on_a_gpu(driver, 20)
    rank = rank_of(played(driver), driver)
    assert max(rank.lost, key=lambda cause: rank.lost[cause]) == "checkpoint"
    assert rank.lost["checkpoint"] == pytest.approx(1.2, rel=0.05), rank.lost


def saved_every_three(driver: Driver, beside: str = "") -> float:
    """200 steps of 50 ms, of which each third begins with a save of 29 ms, and with what comes ``beside`` it: seconds
    in saves. The state is copied from the GPU before the first file is opened, and an older checkpoint is removed."""
    driver.begin()
    for step in range(200):
        driver.step()
        if step % 3 or step < 10:
            continue
        if beside == "evaluation":
            for _ in range(4):
                driver.fetch(0.0001)
                driver.spend(0.001, Leaf.CPU, Region.NO_GRAD)
                driver.spend(0.001, Leaf.GPU)
        elif beside == "forward without a loader":
            driver.spend(0.004, Leaf.CPU, Region.NO_GRAD)
            driver.spend(0.003, Leaf.GPU, Region.NO_GRAD)
        elif beside == "logging callback":
            driver.spend(0.008)
            driver.write("/run/metrics.log", 1000, 0.0005, ino=5, created=False)
        elif beside == "slow batch":
            driver.spend(0.008, Leaf.POLL, Region.FETCH)
        if beside not in ("evaluation", "forward without a loader"):
            driver.spend(0.002)
            driver.spend(0.005, Leaf.GPU)
        driver.write(f"/run/checkpoint-{step}/model.safetensors", 37_000_000, 0.008, ino=8)
        driver.spend(0.0005, Leaf.GPU)
        driver.write(f"/run/checkpoint-{step}/optimizer.pt", 19_000_000, 0.004, gap=0.007, ino=9)
        driver.spend(0.0025, Leaf.FILE_META)
    driver.optimizer()
    return 64 * (0.022 if beside in ("evaluation", "forward without a loader") else 0.029)


@pytest.mark.parametrize("beside", ["", "slow batch", "evaluation", "forward without a loader", "logging callback"])
def test_saves_of_ordinary_steps_wait_for_their_tensors_and_for_nobody_elses(beside: str) -> None:
    driver = Driver()
    seconds = saved_every_three(driver, beside)
    rank = rank_of(played(driver), driver)
    phases = sum(rank.counters.phase_seconds.values())
    assert rank.productive_seconds + phases + sum(rank.lost.values()) == pytest.approx(rank.wall_seconds)
    assert rank.lost["checkpoint"] == pytest.approx(seconds, rel=0.08)


@pytest.mark.parametrize("opened_after", [0.0, 0.1])
def test_a_save_that_removes_an_older_one_has_its_waits_for_the_gpu(opened_after: float) -> None:
    """Its calls take longer than its files are open; its tensors may be copied before."""
    driver = begun()
    driver.spend(opened_after, Leaf.GPU)
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/ckpt/last.pt", opened=opened)
    driver.spend(0.2, Leaf.GPU)
    driver.spend(0.4, Leaf.FILE_WRITE)
    driver.files[1, 7] = StepFile(1, 7, ns(0.7), 0, 1 << 28)
    driver.file(FileEventKind.CLOSED, "/ckpt/last.pt", opened=opened, size=1 << 28, write=ns(0.4))
    driver.spend(0.3, Leaf.FILE_META)
    on_a_gpu(driver, 20)
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"checkpoint": pytest.approx(0.9 + opened_after, rel=0.02)}


def refused(driver: Driver, count: int = 1) -> CallFailed:
    return CallFailed(driver.now, PID, PID, "cudaMalloc", 12, count)


@pytest.mark.parametrize("goes_on", [0, 1, 30])
def test_memory_that_was_refused(goes_on: int) -> None:
    """The end, where no step came after it; what a retry healed is none, though the training fails soon after."""
    driver = begun()
    driver.events.append(refused(driver))
    driver.spend(0.1)
    on_a_gpu(driver, goes_on)
    driver.exit(code=1)
    rank = rank_of(played(driver), driver)
    (warning,) = rank.warnings
    assert warning.cause == "gpu_memory"
    ended = (rank.verdict.kind, rank.verdict.cause) == ("end", "gpu_memory")
    assert ended == (not goes_on), rank.verdict
    assert ("went on" in warning.summary) == bool(goes_on)


def test_what_was_refused_is_told_at_once_and_anew_when_the_training_goes_on() -> None:
    driver = begun()
    pipeline = played(driver)
    driver.events.append(refused(driver))
    driver.spend(3.0)
    played(driver, pipeline)
    at_once = rank_of(pipeline, driver)
    assert [warning.summary for warning in at_once.warnings] == [
        "the GPU had no memory left (cudaMalloc: out of memory)"
    ]
    assert at_once.verdict.kind != "end"
    on_a_gpu(driver, 5)
    driver.spend(3.0)
    played(driver, pipeline)
    (warning,) = rank_of(pipeline, driver).warnings
    assert "no memory left once" in warning.summary
