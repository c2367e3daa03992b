"""Drift from rows to report, and the rank that the others wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import FileEventKind, MarkRow, RankSeen, StackSeen, StepFile
from trainprobe.model.frame import Frame
from trainprobe.model.sample import ProcessSample
from trainprobe.pipeline import Pipeline

EVALUATE_TOGETHER = "let each rank evaluate a part of the data, or evaluate more rarely or on less data"


def test_a_step_that_grows_is_drift_with_its_state_and_its_counter() -> None:
    driver = Driver()
    driver.begin()
    pipeline = played(driver)
    for step in range(900):
        driver.spend(max(0, step - 200) * 20e-6)
        driver.step()
        if step % 50 == 0:
            sample = ProcessSample(driver.pid, 1, "driver", 0, open_fds=20 + step, threads=4)
            played(driver, pipeline, processes=(sample,))
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.stalls == []
    assert rank.verdict.cause == "drift"
    (bottleneck,) = rank.bottlenecks
    assert bottleneck.seconds == pytest.approx(20e-6 * 700**2 / 2, rel=0.15)
    assert "what grew is compute, and with it open files" in bottleneck.summary
    assert bottleneck.advice
    adds_up(rank)


@pytest.mark.parametrize(
    ("computing", "launches", "gpu", "grown"),
    [
        (0.0, 0.0, 1.0, ""),
        (0.0, 0.5, 1.0, ""),
        (1.0, 0.0, 1.0, ""),
        (1.0, 0.0, 0.0, "compute"),
        (0.0, 1.0, 0.2, "lock"),
    ],
)
def test_a_gpu_that_has_more_and_more_to_do_is_no_drift(
    computing: float, launches: float, gpu: float, grown: str
) -> None:
    """Sequences become longer by a schedule, and launches wait for the GPU, which autograd's thread makes. But a list
    that becomes longer, or a graph that is kept, costs the training more and more."""
    driver = Driver()
    driver.begin()
    for step in range(900):
        more = max(0, step - 200) * 40e-6
        driver.fetch()
        driver.spend(0.01 + computing * more)
        driver.backward(0.002)
        driver.spend(0.01 + launches * more, Leaf.LOCK, Region.BACKWARD)
        driver.optimizer()
        driver.spend(0.02 + gpu * more, Leaf.GPU)
    driver.exit()
    rank = rank_of(played(driver), driver)
    if grown:
        assert rank.lost == {"drift": pytest.approx(40e-6 * 700**2 / 2, rel=0.15)}
        assert f"what grew is {grown}" in rank.verdict.summary
    else:
        assert (rank.lost, rank.verdict.kind) == ({}, "none")
    adds_up(rank)


@pytest.mark.parametrize(("larger", "drifts"), [(1.0, False), (0.6, False), (0.2, True), (0.0, True)])
def test_steps_that_grow_with_their_batches_are_no_drift(larger: float, drifts: bool) -> None:
    """Sequences become longer by a schedule, on processors: forward and backward grow to three times what they were.
    ``larger``: so much of that, in proportion, a batch in shared memory grows."""
    driver, shared = Driver(), 0
    driver.begin()
    pipeline = played(driver)
    for step in range(900):
        more = 2 * max(0, step - 200) / 700
        driver.fetch()
        driver.spend(0.01 * (1 + more))
        driver.backward(0.02 * (1 + more))
        driver.optimizer()
        shared += round(1_000_000 * (1 + larger * more))
        row = driver.events[-1]
        assert isinstance(row, MarkRow)
        driver.events[-1] = replace(row, shared_bytes=shared)
        if step % 50 == 0:
            played(driver, pipeline, processes=(ProcessSample(driver.pid, 1, "driver", 0, open_fds=20, threads=4),))
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert set(rank.lost) == ({"drift"} if drifts else set())
    assert not drifts or rank.bottlenecks[0].summary.endswith("what grew is compute")
    adds_up(rank)


@pytest.mark.parametrize(
    ("forward", "backward", "optimizer", "drifts"),
    [
        (1.0, 1.0, 0.0, False),
        (0.6, 1.0, 0.0, False),
        (1.0, 0.0, 0.0, True),  # a list that becomes longer
        (0.0, 1.0, 0.0, True),  # a graph that is kept
        (1.0, 1.0, 1.0, True),  # a slower machine
    ],
)
def test_a_curriculum_without_workers_is_no_drift(
    forward: float, backward: float, optimizer: float, drifts: bool
) -> None:
    """Sequences become longer by a schedule, and nobody knows how large a batch is. What grows to three times what it
    was, of what: the optimiser works on the same parameters."""
    driver = Driver()
    driver.begin()
    for step in range(900):
        more = 2 * max(0, step - 200) / 700
        driver.fetch(0.001 * (1 + more), inline=True)
        driver.spend(0.02 * (1 + forward * more))
        driver.backward(0.04 * (1 + backward * more))
        driver.optimizer(seconds=0.003 * (1 + optimizer * more))
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert set(rank.lost) == ({"drift"} if drifts else set())
    adds_up(rank)


@pytest.mark.parametrize("waited", [0.0, 0.1e-3])
def test_a_list_that_grows_is_drift_beside_waits_for_the_gpu_of_next_to_nothing(waited: float) -> None:
    """Those grow to several times what they were, as a value's copy may that is fetched for a log."""
    driver = Driver()
    driver.begin()
    for step in range(900):
        more = max(0, step - 200) / 700
        driver.fetch()
        driver.spend(0.02 + 0.02 * more)
        driver.backward()
        driver.optimizer()
        driver.spend(waited + 0.3e-3 * more, Leaf.GPU)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"drift": pytest.approx(0.0203 * 700 / 2, rel=0.15)}
    assert "what grew is compute" in rank.verdict.summary
    adds_up(rank)


def test_a_fifth_within_two_hundred_steps_is_named() -> None:
    """The run is over before two windows of long blocks agree."""
    driver = Driver()
    driver.begin()
    for step in range(208):
        driver.spend(0.01 + step * 70e-6)
        driver.step()
    driver.exit()
    rank = rank_of(played(driver), driver)
    (bottleneck,) = rank.bottlenecks
    assert bottleneck.cause == "drift"
    assert bottleneck.seconds == pytest.approx(70e-6 * 180**2 / 2, rel=0.15)  # of the window
    adds_up(rank)


def test_growth_of_a_state_that_has_a_cause_is_that_causes() -> None:
    driver = Driver()
    driver.begin()
    for step in range(900):
        driver.fetch(0.01 + max(0, step - 200) * 20e-6, Leaf.CPU, inline=True)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [found.cause for found in rank.bottlenecks] == ["data_inline"]
    adds_up(rank)


@pytest.mark.parametrize("leaf", [Leaf.RUNQUEUE, Leaf.THROTTLED])
def test_growing_waits_for_a_processor_are_no_drift(leaf: Leaf) -> None:
    """Others take a little more and more of the processors, or the quota does: no growth of the training."""
    for own in (0.0, 20e-6):
        driver = Driver()
        driver.begin()
        for step in range(900):
            grown = max(0, step - 200)
            driver.spend(grown * 5e-6, leaf)
            driver.spend(grown * own)
            driver.step()
        driver.exit()
        rank = rank_of(played(driver), driver)
        found = {one.cause: one for one in rank.bottlenecks}
        assert ("drift" in found) == bool(own)
        if own:
            assert found["drift"].seconds == pytest.approx(own * 700**2 / 2, rel=0.15)
            assert "what grew is compute" in found["drift"].summary
        adds_up(rank)


def two_ranks() -> tuple[Driver, Driver, Pipeline]:
    first, second = Driver(), Driver(pid=1001, tid=1001)
    first.begin()
    first.events.append(RankSeen("train.py-0123abcd", first.now, 1001, None, second.now, rank=1, world_size=2))
    second.spend(1.0)
    first.train(40)
    second.train(40)
    pipeline = Pipeline()
    events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
    pipeline.step(Frame(moment(first.now), tuple(events)))
    first.events.clear()
    second.events.clear()
    return first, second, pipeline


def test_steps_are_compared_where_there_are_several_ranks() -> None:
    """Their rows are not joined, whose waits are told apart by the step."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    alone, (*_, several) = played(driver), two_ranks()
    assert [one.compared for one in alone.armed()] == [False]
    assert [one.compared for one in several.armed()] == [True, True]


def test_the_rank_that_is_waited_for_is_named_with_its_cause() -> None:
    first, second, pipeline = two_ranks()
    for _ in range(2):
        second.spend(1.2)
        second.train(30)
        first.spend(1.2, Leaf.POLL, Region.BACKWARD)
        first.train(30)
        events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
        pipeline.step(Frame(moment(first.now), tuple(events)))
        first.events.clear()
        second.events.clear()
    ranks = pipeline.report(moment(first.now)).runs[0].ranks
    waiting = next(rank for rank in ranks if rank.pid == 1000)
    assert [stall.cause for stall in waiting.stalls] == ["collective_wait"] * 2
    for stall in waiting.stalls:
        assert stall.chain[0] == "training thread waits for other ranks"
        assert stall.chain[1] == "rank 1 (pid 1001) is the one that does not wait: cpu_bound"
        assert "rank 1 was late by cpu_bound" in stall.summary
    culprit = next(rank for rank in ranks if rank.pid == 1001)
    assert [stall.cause for stall in culprit.stalls] == ["cpu_bound"] * 2


@pytest.mark.parametrize("seconds", [4.0, 40.0])
@pytest.mark.parametrize("does", ["saves", "evaluates", "works on its GPU"])
def test_a_wait_for_the_gpu_while_another_rank_is_late_is_for_that_rank(does: str, seconds: float) -> None:
    """NCCL's kernel waits on the GPU, and the training for it. Where both have more to do there, nobody is late."""
    first, second, pipeline = two_ranks()
    leaf = {"saves": Leaf.FILE_WRITE, "evaluates": Leaf.CPU}.get(does, Leaf.GPU)
    region = Region.NO_GRAD if does == "evaluates" else Region.STEP
    opened = second.now
    if does == "saves":
        second.file(FileEventKind.OPENED, "/run/step-40.pt", opened=opened)
    for _ in range(int(2 * seconds)):
        first.spend(0.5, Leaf.GPU)
        second.spend(0.5, leaf, region)
        second.fetches += does == "evaluates"
        if does == "saves":
            second.files[1, 7] = StepFile(1, 7, second.now - opened, 0, second.now - opened)
        threads = (first.sample(Leaf.GPU), replace(second.sample(leaf), region=region))
        pipeline.step(Frame(moment(first.now), tuple(second.events), threads=threads))
        second.events.clear()
    if does == "saves":
        spent = second.now - opened
        second.file(FileEventKind.CLOSED, "/run/step-40.pt", opened=opened, size=spent, write=spent)
    first.train(30)
    second.train(30)
    events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
    pipeline.step(Frame(moment(first.now), tuple(events)))
    waiting, late = sorted(pipeline.report(moment(first.now)).runs[0].ranks, key=lambda rank: rank.pid)
    adds_up(waiting)
    if does == "works on its GPU":
        hung = {"unknown": pytest.approx(seconds, abs=0.1)} if seconds > 30 else {}
        assert (waiting.lost, late.lost) == (hung, hung)
        return
    assert waiting.lost == {"collective_wait": pytest.approx(seconds, abs=0.1)}
    assert waiting.stalls[0].summary.endswith(f"rank 1 was late by {'checkpoint' if does == 'saves' else 'evaluation'}")
    assert late.lost == ({"checkpoint": pytest.approx(seconds, abs=0.1)} if does == "saves" else {})


@pytest.mark.parametrize(
    ("leaf", "lost"), [(Leaf.SLEEP, "collective_wait"), (Leaf.FILE_META, "collective_wait"), (Leaf.LOCK, "")]
)
def test_what_a_rank_is_seen_to_do_is_its_own_reason_whether_it_has_a_cause_or_not(leaf: Leaf, lost: str) -> None:
    """It pauses, or writes files of its own. One that waits at a lock may wait for a rank elsewhere, as all do."""
    first, second, pipeline = two_ranks()
    for _ in range(8):
        first.spend(0.5, Leaf.GPU)
        second.spend(0.5, leaf)
        pipeline.step(Frame(moment(first.now), (), threads=(first.sample(Leaf.GPU), second.sample(leaf))))
    first.train(30)
    second.train(30)
    events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
    pipeline.step(Frame(moment(first.now), tuple(events)))
    waiting = next(rank for rank in pipeline.report(moment(first.now)).runs[0].ranks if rank.pid == first.pid)
    assert waiting.lost == ({lost: pytest.approx(4.0, abs=0.1)} if lost else {})
    adds_up(waiting)


@pytest.mark.parametrize("exits", [True, False])
def test_nobody_waits_for_a_rank_that_has_ended(exits: bool) -> None:
    """It was killed while it saved; what hangs on its GPU behind that has no known cause."""
    first, second, pipeline = two_ranks()
    second.file(FileEventKind.OPENED, "/run/step-40.pt", opened=second.now)
    for look in range(100):
        first.spend(0.5, Leaf.GPU)
        threads = [first.sample(Leaf.GPU)]
        if look < 4 or not exits:
            second.spend(0.5, Leaf.FILE_WRITE)
            second.files[1, 7] = StepFile(1, 7, second.now, 0, second.now)
            threads.append(second.sample(Leaf.FILE_WRITE))
        elif look == 4:
            second.exit(code=None, signal=9, shutdown=0.0)
        pipeline.step(Frame(moment(first.now), tuple(second.events), threads=tuple(threads)))
        second.events.clear()
    waiting = next(rank for rank in pipeline.report(moment(first.now)).runs[0].ranks if rank.pid == first.pid)
    assert set(waiting.lost) == ({"unknown"} if exits else {"collective_wait"})


def test_a_rank_that_evaluates_alone_is_named() -> None:
    """As rank 0 often does, while the others wait in the next step's collective."""
    first, second, pipeline = two_ranks()
    for _ in range(60):
        second.fetch(0.002, inline=True)
        second.spend(0.02, Leaf.CPU, Region.NO_GRAD)
    second.train(30)
    first.spend(1.3, Leaf.POLL, Region.BACKWARD)
    first.train(30)
    events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
    pipeline.step(Frame(moment(first.now), tuple(events)))
    ranks = pipeline.report(moment(first.now)).runs[0].ranks
    (stall,) = next(rank for rank in ranks if rank.pid == 1000).stalls
    assert stall.chain == [
        "training thread waits for other ranks",
        "rank 1 (pid 1001) is the one that does not wait: evaluation",
    ]
    assert "rank 1 was late by evaluation" in stall.summary
    assert [line.partition(":")[0] for line in stall.advice] == [EVALUATE_TOGETHER]
    assert not next(rank for rank in ranks if rank.pid == 1001).stalls


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_rank_that_holds_the_others_up_is_named_while_it_does(evaluates: bool) -> None:
    """An evaluation on one rank alone may take longer than anybody waits for its end."""
    first, second, pipeline = two_ranks()
    for _ in range(20):
        first.spend(0.5, Leaf.POLL, Region.BACKWARD)
        for _ in range(10):
            second.fetches += evaluates
            second.spend(0.05, Leaf.CPU, Region.NO_GRAD if evaluates else Region.STEP)
        region = Region.NO_GRAD if evaluates else Region.STEP
        threads = (replace(first.sample(Leaf.POLL), region=Region.BACKWARD), replace(second.sample(), region=region))
        pipeline.step(Frame(moment(first.now), (), threads=threads))
    ranks = pipeline.report(moment(first.now)).runs[0].ranks
    (stall,) = next(rank for rank in ranks if rank.pid == 1000).stalls
    assert stall.end is None
    assert stall.chain[1].endswith("does not wait: evaluation" if evaluates else "does not wait: cpu_bound")
    assert stall.advice[0].startswith(EVALUATE_TOGETHER if evaluates else "make the late rank faster")


def evaluate(driver: Driver, seconds: float) -> None:
    for _ in range(20):
        driver.fetch(seconds / 200)
        driver.spend(seconds * 9 / 200, Leaf.CPU, Region.NO_GRAD)


def save(driver: Driver, seconds: float) -> None:
    driver.write(f"/out/{driver.steps}.pt", 1_000_000_000, seconds, ino=driver.steps)


@pytest.mark.parametrize(
    ("alone", "all_evaluate", "late", "waited"),
    [
        ([(save, 1.0)], 3.0, "checkpoint", 1.0),
        ([(evaluate, 1.0)], 3.0, "evaluation", 1.0),
        ([(save, 2.0), (evaluate, 3.0)], 0.0, "evaluation", 5.0),
        ([(save, 3.0), (evaluate, 2.0)], 0.0, "checkpoint", 5.0),
        ([(evaluate, 3.0), (save, 2.0)], 0.0, "evaluation", 5.0),
        ([(evaluate, 0.5), (save, 0.6)], 3.0, "checkpoint", 1.1),
    ],
)
def test_what_one_rank_does_alone_is_what_the_others_wait_for(
    alone: list[tuple[Callable[[Driver, float], None], float]], all_evaluate: float, late: str, waited: float
) -> None:
    """Behind an evaluation of all ranks one saves; or it does both alone."""
    first, second, pipeline = two_ranks()
    for _ in range(2):
        for driver in (first, second) if all_evaluate else ():
            evaluate(driver, all_evaluate)
        for does, seconds in alone:
            does(second, seconds)
        first.spend(waited, Leaf.POLL, Region.BACKWARD)
        first.train(30)
        second.train(30)
        events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
        pipeline.step(Frame(moment(first.now), tuple(events)))
        first.events.clear()
        second.events.clear()
    waiting = next(rank for rank in pipeline.report(moment(first.now)).runs[0].ranks if rank.pid == first.pid)
    assert waiting.lost == {"collective_wait": pytest.approx(2 * waited, rel=0.02)}
    assert waiting.counters.phase_seconds["evaluation"] == pytest.approx(2 * all_evaluate, rel=0.02)
    assert all(f"rank 1 was late by {late}" in stall.summary for stall in waiting.stalls)
    adds_up(waiting)


@pytest.mark.parametrize(("seconds", "longer", "lost"), [(3.0, 0.1, False), (3.0, 0.5, True), (40.0, 1.5, True)])
def test_ranks_that_evaluate_alike_wait_a_little_for_each_other(seconds: float, longer: float, lost: bool) -> None:
    first, second, pipeline = two_ranks()
    evaluate(first, seconds)
    evaluate(second, seconds + longer)
    first.spend(longer, Leaf.POLL, Region.BACKWARD)
    first.train(30)
    second.train(30)
    events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
    pipeline.step(Frame(moment(first.now), tuple(events)))
    faster = next(rank for rank in pipeline.report(moment(first.now)).runs[0].ranks if rank.pid == first.pid)
    assert faster.lost == ({"collective_wait": pytest.approx(longer, abs=0.03)} if lost else {})
    adds_up(faster)


def test_while_all_wait_nobody_here_is_named() -> None:
    first, second, pipeline = two_ranks()
    for driver in (first, second):
        driver.spend(1.2, Leaf.POLL, Region.BACKWARD)
        driver.train(10)
    events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
    pipeline.step(Frame(moment(first.now), tuple(events)))
    for rank in pipeline.report(moment(first.now)).runs[0].ranks:
        assert [len(stall.chain) for stall in rank.stalls] == [1]


SCRIPT = ("<module> (train_distributed.py:90)", "evaluate (train_distributed.py:40)")
BARRIER = (*SCRIPT, "barrier (torch/distributed/distributed_c10d.py:4600)")
FORWARD = (*SCRIPT, "DistributedDataParallel.forward (torch/nn/parallel/distributed.py:1650)", "forward (net.py:9)")
SCORES = (*SCRIPT, "score (train_distributed.py:30)")


@pytest.mark.parametrize(("stack", "waits"), [(BARRIER, True), (FORWARD, False), (SCORES, False)])
def test_a_rank_at_a_barrier_within_its_evaluate_waits_for_the_rank_that_evaluates(
    stack: tuple[str, ...], waits: bool
) -> None:
    """``@torch.no_grad()`` is on the function, in which one rank alone does something; or all do."""
    first, second, pipeline = two_ranks()
    for _ in range(8):
        first.spend(0.5, Leaf.GPU, Region.NO_GRAD)
        for _ in range(10):
            second.fetch(0.005)
            second.spend(0.045, Leaf.CPU, Region.NO_GRAD)
        samples = first.sample(Leaf.GPU), second.sample(Leaf.CPU)
        threads = [replace(one, region=Region.NO_GRAD) for one in samples]
        first.events.append(StackSeen(first.now, first.pid, first.tid, stack))
        pipeline.step(Frame(moment(first.now), tuple(first.events), threads=tuple(threads)))
        first.events.clear()
    first.train(30)
    second.train(30)
    events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
    pipeline.step(Frame(moment(first.now), tuple(events)))
    rank = next(rank for rank in pipeline.report(moment(first.now)).runs[0].ranks if rank.pid == first.pid)
    assert rank.lost == ({"collective_wait": pytest.approx(4.0, abs=0.1)} if waits else {})
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.0 if waits else 4.0, abs=0.1)
    adds_up(rank)
