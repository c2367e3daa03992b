"""Batches that are fetched and not trained on: an evaluation's, or dropped ones, whose waits are the loader's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import StackSeen
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline

LATE = 0.8
"""Seconds that each epoch's first batch is waited for."""


def late_batch(driver: Driver) -> None:
    driver.spend(LATE, Leaf.POLL, Region.FETCH)
    driver.work(1.9 * LATE)


def accumulated(driver: Driver, epoch: int, batches: int) -> None:
    """By 4, as ``if (i + 1) % 4 == 0: step()`` does: what is left over is in the next epoch's first step."""
    for place in range(batches):
        if place == 0 and epoch:
            late_batch(driver)
        driver.work(0.05)
        driver.fetch()
        driver.spend(0.02)
        driver.backward(0.03)
        if place % 4 == 3:
            driver.optimizer()
    driver.fetches += 1  # finds the end of the loader


def zipped(driver: Driver, epoch: int, batches: int) -> None:
    """``zip(target, source)``: the last of the longer loader is dropped."""
    for place in range(batches):
        if place == 0 and epoch:
            late_batch(driver)
        driver.work(0.05)
        driver.fetch()
        driver.fetch()
        driver.spend(0.04)
        driver.backward(0.05)
        driver.optimizer()
    driver.fetch()
    driver.fetches += 1
    driver.spend(0.02)  # the epoch's figures are printed


def skipped(driver: Driver, epoch: int, batches: int) -> None:
    """Batches without boxes: ``continue``."""
    driver.train(batches)
    driver.fetches += 3
    if epoch < 6:
        late_batch(driver)
        driver.spend(0.01, region=Region.NO_GRAD)  # an average of the weights


EPOCHS = {"100 batches": (accumulated, 100), "101": (accumulated, 101), "102": (accumulated, 102),
          "103": (accumulated, 103), "zip": (zipped, 40), "skipped": (skipped, 40)}  # fmt: skip


@pytest.mark.parametrize("kind", EPOCHS)
def test_waits_for_batches_of_which_some_are_dropped_are_for_data(kind: str) -> None:
    epoch_of, batches = EPOCHS[kind]
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    for epoch in range(7):
        epoch_of(driver, epoch, batches)
    driver.finalize()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds.get("evaluation", 0.0) == 0.0
    assert rank.lost == {"data_cpu": pytest.approx(6 * LATE, rel=0.15)}  # six backwards count as two steps
    adds_up(rank)


def of_one_batch(driver: Driver) -> None:
    driver.fetch()
    driver.spend(0.1, region=Region.NO_GRAD)
    driver.fetches += 1


def late_and_launched(driver: Driver) -> None:
    """On a GPU: the forward pass of each batch is only launched, and its batches come late."""
    for _ in range(20):
        driver.fetch(0.1, Leaf.POLL)
        driver.spend(0.004, region=Region.NO_GRAD)
    driver.fetches += 1


def with_gradients(driver: Driver) -> None:
    for _ in range(20):
        driver.fetch(0.02, Leaf.POLL)
        driver.spend(0.02)
    driver.fetches += 1


def late_and_smaller(driver: Driver) -> None:
    """Its batches are a tenth of the training's, and come from slow storage."""
    for _ in range(10):
        driver.fetch(0.03, Leaf.POLL)
        driver.spend(0.0024, region=Region.NO_GRAD)
    driver.fetches += 1


def late_and_named(driver: Driver) -> None:
    """A stack shows it, whatever its model takes."""
    for batch in range(5):
        driver.fetch(0.1, Leaf.POLL)
        driver.spend(0.001, region=Region.NO_GRAD)
        if batch == 3:
            frames = ("<module> (train.py:60)", "evaluate (train.py:20)", "DataLoader.__next__ (torch/dataloader.py:9)")
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.fetches += 1


@pytest.mark.parametrize("of", [of_one_batch, late_and_launched, with_gradients, late_and_smaller, late_and_named])
def test_batches_that_a_model_ran_on_are_an_evaluation(of: Callable[[Driver], None]) -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    spent = 0.0
    for _ in range(4):
        driver.train(40)
        began = driver.now
        of(driver)
        spent += (driver.now - began) / 1e9
    driver.train(20)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(spent, rel=0.05)
    adds_up(rank)


def beside_targets_on_a_cpu(driver: Driver, forward: float, average: float = 0.0) -> Rank:
    """In each step a CPU assigns targets for longer than the model runs, which needs none in an evaluation of a dozen
    batches. ``average``: seconds of the weights' average behind these."""
    driver.begin()
    driver.fork(2000)
    for epoch in range(6):
        for _ in range(40):
            driver.step(forward=0.25)
        for _ in range(12 if epoch < 5 else 0):
            driver.fetch(0.05, Leaf.POLL)
            driver.work(0.09)
            driver.spend(forward, region=Region.NO_GRAD)
        driver.spend(average, region=Region.NO_GRAD)
    driver.finalize()
    driver.exit()
    return rank_of(played(driver), driver)


def test_an_evaluation_counts_beside_steps_that_compute_more_than_the_model() -> None:
    rank = beside_targets_on_a_cpu(Driver(), 0.008)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(5 * 12 * 0.058, rel=0.05)


def test_a_dozen_batches_that_are_dropped_are_no_evaluation() -> None:
    rank = beside_targets_on_a_cpu(Driver(), 0.0, average=0.01)
    assert rank.lost["data_cpu"] == pytest.approx(5 * 12 * 0.05, rel=0.1)
    assert rank.counters.phase_seconds["evaluation"] == 0.0


def test_batches_dropped_after_the_last_step_are_no_evaluation() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    for _ in range(4):
        driver.fetch(0.01, Leaf.POLL)
    driver.finalize()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds.get("evaluation", 0.0) == 0.0


def test_the_wait_for_a_batch_that_is_trained_on_is_no_part_of_an_evaluation() -> None:
    """Forward passes without gradients on data that no loader fetches, then a late batch. No stack was taken."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for _ in range(3):
        driver.train(40)
        driver.spend(0.9, region=Region.NO_GRAD)
        late_batch(driver)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(2.7, abs=0.05)
    assert rank.lost == {"data_cpu": pytest.approx(3 * LATE, abs=0.05)}
    adds_up(rank)


def test_an_evaluation_of_two_batches_is_one() -> None:
    """Two more fetches find the ends of both loaders, and its own workers have to start."""
    driver = Driver()
    driver.begin()
    for _ in range(20):
        driver.train(20)
        driver.fetch(0.3, Leaf.POLL)
        driver.spend(0.024, region=Region.NO_GRAD)
        driver.fetch()
        driver.spend(0.024, region=Region.NO_GRAD)
        driver.fetches += 2
    driver.train(2)
    rank = rank_of(played(driver), driver)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(20 * 0.35, rel=0.05)


@pytest.mark.parametrize("file", ["data.py", "dataloader.py", "my_dataloader.py"])
def test_a_file_of_the_users_own_that_is_called_as_the_loaders_is_no_fetch(file: str) -> None:
    """What it computes behind an evaluation is not the evaluation's."""
    driver = Driver()
    driver.begin()
    driver.train(60)
    for _ in range(3):
        for batch in range(20):
            driver.fetch()
            driver.spend(0.05, region=Region.NO_GRAD)
            if batch in (8, 16):
                frames = ("<module> (train.py:60)", "validate (train.py:20)", "Net.forward (model.py:3)")
                driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        driver.fetches += 1
        for _ in range(3):
            driver.spend(0.5)
            frames = ("<module> (train.py:60)", f"build_epoch ({file}:30)")
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
        driver.train(40)
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"cpu_bound": pytest.approx(4.5, abs=0.1)}
    assert "build_epoch" in rank.stalls[-1].summary


def test_stacks_of_an_evaluation_say_nothing_of_the_work_behind_it() -> None:
    """A fold's model is built: nobody looked then, and the garbage collector is no candidate."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    validates = ("<module> (cv.py:60)", "validate (cv.py:20)", "Net.forward (model.py:3)")
    for epoch in range(8):
        driver.train(40)
        for batch in range(20):
            driver.fetch()
            driver.spend(0.05, region=Region.NO_GRAD)
            if batch == 10:
                driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, validates))
        driver.fetches += 1
        driver.spend(1.5 if epoch in (3, 6) else 0.0)
        played(driver, pipeline)
    driver.train(2)
    rank = rank_of(played(driver, pipeline), driver)
    found = [line for stall in rank.stalls for line in stall.advice]
    assert rank.lost == {"cpu_bound": pytest.approx(3.0, rel=0.05)}
    assert not any("collector" in line for line in found)
