"""Trainings whose steps become heavier, for one batch or for good, and hosts that become slow and are not learnt."""

from __future__ import annotations

import pickle
from functools import cache

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.model.sample import HostSample
from trainprobe.pipeline import Pipeline

RUN = "train.py-0123abcd"
LEARNT = 32
"""Steps until heavier ones are ordinary."""


def frozen_backbone(driver: Driver, times: float = 1.0) -> None:
    """A step of 84 ms: its backbone has gradients off, a small head is trained."""
    driver.fetch()
    driver.spend(0.06 * times, region=Region.NO_GRAD)
    driver.spend(0.004 * times)
    driver.backward(0.006 * times)
    driver.optimizer(seconds=0.003)


def teacher(driver: Driver) -> None:
    """A step of 140 ms: a teacher's forward pass without gradients comes before the student's."""
    driver.fetch()
    driver.spend(0.09, region=Region.NO_GRAD)
    driver.step()


def generate(driver: Driver, longer: bool) -> None:
    """Completions without gradients; longer ones take 0.6 s more."""
    driver.spend(0.4 + (0.6 if longer else 0.0), region=Region.NO_GRAD)


def learn(driver: Driver) -> None:
    """What the step of a training that generates does behind it."""
    driver.spend(0.02)
    driver.backward(0.03)
    driver.optimizer()


@pytest.mark.parametrize("looked", [False, True])
def test_a_heavier_batch_behind_a_frozen_backbone_is_work(looked: bool) -> None:
    """Whether or not a stack shows the forward pass."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    frames = ("<module> (train.py:60)", "main (train.py:9)", "encode (train.py:5)", "ViT.forward (vit.py:50)")
    for place in range(200):
        if looked and place % 17 == 16:
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        frozen_backbone(driver, 2.5 if place % 17 == 16 else 1.0)
        played(driver, pipeline)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["evaluation"] == 0.0


@pytest.mark.parametrize("region", [Region.NO_GRAD, Region.STEP])
def test_an_evaluation_or_other_work_behind_a_frozen_backbone_is_told(region: Region) -> None:
    driver = Driver()
    driver.begin()
    for place in range(160):
        if place % 40 == 39:
            driver.spend(0.8, region=region)
        frozen_backbone(driver)
    driver.exit()
    rank = rank_of(played(driver), driver)
    spent = pytest.approx(4 * 0.8, abs=0.02)
    if region is Region.NO_GRAD:
        assert (rank.lost, rank.counters.phase_seconds["evaluation"]) == ({}, spent)
    else:
        assert (rank.lost, rank.counters.phase_seconds["evaluation"]) == ({"cpu_bound": spent}, 0.0)


@pytest.mark.parametrize(("name", "phase"), [("predict_noise", False), ("step", False), ("evaluate", True)])
def test_a_heavier_batch_of_a_model_that_predicts_in_each_step_is_no_evaluation(name: str, phase: bool) -> None:
    """With gradients on; its functions are called so."""
    driver = Driver()
    driver.begin()
    for place in range(200):
        heavier = 4.0 if place % 17 == 16 else 1.0
        driver.fetch()
        for _ in range(2):
            driver.spend(0.1 * heavier)
            frames = ("<module> (train.py:60)", f"{name} (train.py:20)", "UNet.forward (unet.py:500)")
            if heavier > 1.0:
                driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
        driver.backward(0.2 * heavier)
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert (rank.counters.phase_seconds["evaluation"] > 0) == phase
    assert phase or rank.lost == {}


@pytest.mark.parametrize(
    ("inside", "lost", "phase"),
    [
        (("generate (utils.py:2200)", "Llama.forward (llama.py:500)"), {}, 0.0),
        (("generate (utils.py:2210)",), {}, 0.0),
        ((), {}, 0.0),
        (("evaluation_loop (trainer.py:4000)", "Llama.forward (llama.py:500)"), {}, 0.6),
        (("reward_by_rules (train.py:40)",), {"cpu_bound": 0.6}, 0.0),
    ],
)
def test_completions_that_are_longer_are_the_trainings_own_work(
    inside: tuple[str, ...], lost: dict[str, float], phase: float
) -> None:
    """Each step mostly generates what it trains on, without gradients."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for place in range(200):
        longer = place % 17 == 16
        driver.fetch()
        generate(driver, longer)
        if longer and inside:
            frames = ("<module> (grpo.py:60)", *inside)
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        learn(driver)
        played(driver, pipeline)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {cause: pytest.approx(11 * seconds, rel=0.05) for cause, seconds in lost.items()}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(11 * phase, rel=0.05)


def test_longer_completions_of_a_loop_that_is_named_like_an_evaluation_are_its_own_work() -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    loop = ("<module> (grpo.py:90)", "benchmark (grpo.py:60)")
    for place in range(200):
        longer = place % 17 == 16
        driver.fetch()
        generate(driver, longer)
        if longer or place % 10 == 5:
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, (*loop, "generate (utils.py:2200)")))
        if not longer and place > 10:
            pipeline.runs[RUN].ranks.by_pid[driver.pid][0].ordinary.lines_ns = driver.now
        learn(driver)
        played(driver, pipeline)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["evaluation"] < 1.5, "before its loop was known"


def test_a_teacher_that_is_switched_on_for_good_is_no_evaluation() -> None:
    driver = Driver()
    driver.begin()
    driver.train(100)
    for _ in range(300):
        teacher(driver)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(LEARNT * 0.091, abs=0.2)
    adds_up(rank)


def test_a_forward_pass_that_is_longer_for_good_is_a_stall_no_more() -> None:
    """A stall of single steps stays one, in the longer steps too."""
    driver = Driver()
    driver.begin()
    driver.train(100)
    for place in range(300):
        driver.step(0.024 + (0.06 if place < 200 else 0.36 if place % 30 == 29 else 0.06))
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"cpu_bound": pytest.approx(LEARNT * 0.06 + 4 * 0.3, abs=0.1)}
    adds_up(rank)


def with_barriers(driver: Driver, times: float = 1.0) -> None:
    """A step of 150 ms on processors: the driver waits for OpenMP's other threads in each pass."""
    driver.fetch()
    driver.spend(0.045 * times)
    driver.backward(0.08 * times)
    driver.spend(0.02 * times, Leaf.LOCK, Region.BACKWARD)
    driver.optimizer()


def test_barriers_of_a_heavier_batch_are_its_work() -> None:
    driver = Driver()
    driver.begin()
    for place in range(300):
        with_barriers(driver, 4.0 if place % 17 == 16 else 1.0)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert (rank.lost, rank.verdict.kind) == ({}, "none")


def test_a_wait_in_the_backward_that_nothing_else_grows_with_is_told() -> None:
    driver = Driver()
    driver.begin()
    for place in range(330):
        with_barriers(driver)
        if place % 40 == 39:
            driver.spend(0.5, Leaf.LOCK, Region.BACKWARD)
    driver.exit()
    assert rank_of(played(driver), driver).lost == {"unknown": pytest.approx(8 * 0.5, rel=0.02)}


def test_a_backward_with_more_barriers_for_good_is_learnt() -> None:
    driver = Driver()
    driver.begin()
    for place in range(400):
        with_barriers(driver)
        driver.spend(0.2 if place >= 100 else 0.0, Leaf.LOCK, Region.BACKWARD)
    driver.exit()
    assert rank_of(played(driver), driver).lost == {"unknown": pytest.approx(LEARNT * 0.2, rel=0.05)}


def slowed(leaf: Leaf, region: Region = Region.STEP, steps: int = 600) -> Rank:
    """Steps of 50 ms, then of 350 ms: 300 of them wait."""
    driver = Driver()
    driver.begin()
    driver.train(100)
    for _ in range(steps):
        driver.spend(0.3, leaf, region)
        driver.major_faults += 50
        driver.step()
    driver.exit()
    return rank_of(played(driver), driver)


@pytest.mark.parametrize(
    ("leaf", "region", "cause"),
    [
        (Leaf.SWAP, Region.STEP, "swap"),
        (Leaf.RECLAIM, Region.STEP, "memory_pressure"),
        (Leaf.FAULT, Region.STEP, "data_storage"),
        (Leaf.RUNQUEUE, Region.BACKWARD, "cpu_contention"),
        (Leaf.THROTTLED, Region.STEP, "cpu_throttled"),
        (Leaf.COLLECTOR, Region.STEP, "gc_pause"),
        (Leaf.LOCK, Region.STEP, "unknown"),
    ],
)
def test_steps_that_wait_one_after_the_other_stay_lost(leaf: Leaf, region: Region, cause: str) -> None:
    rank = slowed(leaf, region)
    assert rank.lost == {cause: pytest.approx(600 * 0.3, rel=0.02)}


def test_waits_at_a_lock_without_gradients_are_not_learnt() -> None:
    """For environments, say, from some step on. (The first one may be an evaluation.)"""
    assert slowed(Leaf.LOCK, Region.NO_GRAD).lost["unknown"] > 550 * 0.3


def test_steps_that_wait_for_slow_storage_one_after_the_other_stay_lost() -> None:
    """In workers, beside a forward pass that has become longer too."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(100)
    for _ in range(600):
        driver.work(0.3, Leaf.FILE_READ)
        driver.fetch(0.3, Leaf.POLL)
        driver.spend(0.06)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["data_storage"] == pytest.approx(600 * 0.3, rel=0.02)


@cache
def ordinary(steps: int) -> bytes:
    """A training after so many steps of 50 ms, and its pipeline, pickled."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for _ in range(steps):
        driver.work(0.01)
        driver.step()
    return pickle.dumps((driver, played(driver)))


def heavier(waited: float, more: float = 0.06, leaf: Leaf = Leaf.CPU, before: int = 100) -> Rank:
    """Steps of 50 ms, then 600 that do ``more`` and wait for their batches."""
    driver, pipeline = pickle.loads(ordinary(before))
    for _ in range(600):
        driver.work(waited + 0.05, leaf)
        driver.fetch(waited, Leaf.POLL)
        driver.spend(0.024 + more / 2)
        driver.backward(0.02 + more / 2)
        driver.optimizer()
    driver.exit()
    return rank_of(played(driver, pipeline), driver)


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.CPU, "data_cpu"), (Leaf.FILE_READ, "data_storage")])
@pytest.mark.parametrize("before", [100, 20_000])
def test_heavier_batches_that_are_waited_for_are_no_stall_for_good(leaf: Leaf, cause: str, before: int) -> None:
    """What they wait is lost in all of them, however many steps came before that waited for nothing."""
    rank = heavier(0.04, leaf=leaf, before=before)
    assert rank.lost == {cause: pytest.approx(600 * 0.04, rel=0.03)}
    assert [(stall.cause, stall.steps) for stall in rank.stalls] == [(cause, LEARNT)]
    assert [one.cause for one in rank.bottlenecks] == [cause]
    adds_up(rank)


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.CPU, "data_cpu"), (Leaf.FILE_READ, "data_storage")])
def test_heavier_batches_that_are_waited_for_most_of_the_time_cost_what_they_wait(leaf: Leaf, cause: str) -> None:
    """The waits are not learnt: the stall lasts as long as they do."""
    rank = heavier(0.3, leaf=leaf)
    assert rank.lost == {cause: pytest.approx(600 * 0.3, rel=0.01)}
    assert [(stall.cause, stall.steps) for stall in rank.stalls] == [(cause, 600)]


@pytest.mark.parametrize("more", [0.0, 0.01])
def test_slow_storage_beside_the_same_work_is_not_learnt(more: float) -> None:
    rank = heavier(0.2, more, Leaf.FILE_READ)
    assert rank.lost == {"data_storage": pytest.approx(600 * 0.2, rel=0.02)}
    assert [(stall.cause, stall.steps) for stall in rank.stalls] == [("data_storage", 600)]


def test_other_work_for_good_beside_waits_is_lost_until_it_is_learnt() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(100)
    for _ in range(600):
        driver.work(0.3, Leaf.FILE_READ)
        driver.fetch(0.3, Leaf.POLL)
        driver.step(0.024 + 0.06)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["data_storage"] == pytest.approx(600 * 0.3, rel=0.01)
    assert rank.lost["cpu_bound"] == pytest.approx(LEARNT * 0.06, rel=0.1)


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.RUNQUEUE, "cpu_contention"), (Leaf.RECLAIM, "memory_pressure")])
def test_work_that_a_busy_host_slows_down_is_not_learnt(leaf: Leaf, cause: str) -> None:
    """A quarter of what is lost shows as computing: it shares a core, or its caches."""
    driver = Driver()
    driver.begin()
    driver.train(100)
    for _ in range(600):
        driver.spend(0.1, leaf)
        driver.step(0.024 + 0.04)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost[cause] == pytest.approx(600 * 0.1, rel=0.02)
    assert rank.lost["cpu_bound"] == pytest.approx(600 * 0.04, rel=0.02)


def step_of(driver: Driver, times: float, waited: float, leaf: Leaf) -> None:
    """A step of 160 ms, so many times as much work; half of it is on the GPU, or on the CPU."""
    driver.work(1.9 * (waited + 0.16 * times))
    driver.fetch(waited, Leaf.POLL)
    driver.spend(0.05 * times, leaf)
    driver.backward(0.1 * times if leaf is Leaf.CPU else 0.01)
    driver.spend(0.1 * times if leaf is Leaf.GPU else 0.0, leaf)
    driver.optimizer(seconds=0.01)


@pytest.mark.parametrize("leaf", [Leaf.CPU, Leaf.GPU])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (1, 1.6, 2.6, 4)])
def test_images_that_become_larger_again_and_again_are_no_drift(
    sizes: tuple[float, ...], waits: bool, leaf: Leaf
) -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    waited = [0.3 * 0.16 * size if waits and size > 1 else 0.0005 for size in sizes]
    for size, seconds in zip(sizes, waited):
        for _ in range(400):
            step_of(driver, size, seconds, leaf)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == ({"data_cpu": pytest.approx(400 * sum(waited), rel=0.04)} if waits else {})
    adds_up(rank)


def test_batches_that_grow_below_the_limit_of_stalls_are_no_drift_beside_the_waits_for_them() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    sizes = (1, 1.3, 1.7, 2.2, 2.9)
    for size in sizes:
        for _ in range(400):
            step_of(driver, size, 0.3 * 0.16 * (size - 0.9), Leaf.CPU)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"data_cpu": pytest.approx(400 * 0.3 * 0.16 * (sum(sizes) - 4.5), rel=0.05)}


@pytest.mark.parametrize("leaf", [Leaf.CPU, Leaf.GPU])
def test_steps_that_grow_after_the_work_has_changed_drift(leaf: Leaf) -> None:
    driver = Driver()
    driver.begin()
    for place in range(2_000):
        driver.spend(max(0, place - 400) * 0.0001, Leaf.CPU)
        step_of(driver, 1 if place < 400 else 2.5, 0.0, leaf)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"drift": pytest.approx(1600 * 1600 * 0.0001 / 2, rel=0.15)}


def test_a_forward_pass_that_reads_swapped_memory_of_zram_is_not_learnt() -> None:
    """The kernel computes for the training thread, which counts as its own work; the host's counters show it."""
    driver, pages = Driver(), 1_000_000
    driver.begin()
    driver.train(100)
    pipeline = played(driver)
    for _ in range(200):
        driver.spend(0.2, region=Region.NO_GRAD)
        driver.major_faults += 5_000
        driver.swap_faults = (driver.swap_faults or 0) + 5_000
        driver.step()
        pages += 5_000
        told = tuple(driver.events)
        driver.events.clear()
        pipeline.step(Frame(moment(driver.now), told, host=HostSample(2, swap_in_pages=pages)))
    run = pipeline.report(moment(driver.now + NS)).runs[0].ranks[0]
    assert run.counters.phase_seconds["evaluation"] + sum(run.lost.values()) > 190 * 0.2


@pytest.mark.parametrize("waits", [0.0, 0.8, 2.0])
@pytest.mark.parametrize("inner", [1, 4])
def test_a_batch_that_several_steps_train_on_may_come_late(waits: float, inner: int) -> None:
    """Prompts are fetched once in a round; their completions are generated, and trained on in several steps."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for place in range(40):
        late = waits if place >= 20 and place % 5 == 0 else 0.0
        driver.work(late)
        driver.fetch(0.002 + late, Leaf.POLL)
        driver.spend(1.5, Leaf.CPU, Region.NO_GRAD)
        for _ in range(inner):
            learn(driver)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == ({"data_cpu": pytest.approx(4 * waits, rel=0.02)} if waits else {})
    adds_up(rank)
