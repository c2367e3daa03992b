"""Trainings whose steps become heavier, for one batch or for good, and hosts that become slow and are not learnt."""

from __future__ import annotations

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
