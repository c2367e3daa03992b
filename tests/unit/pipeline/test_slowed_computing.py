"""A step that waited for a CPU computes more slowly, too: others use the caches, and the other half of the core."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import Driver, moment, played
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Rank


def told(queued: float, forward: float, backward: float) -> Rank:
    """Of a training with one late step."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.fetch()
    driver.spend(0.024 + forward)
    driver.spend(queued, Leaf.RUNQUEUE)
    driver.backward(0.02 + backward)
    driver.optimizer()
    driver.train(20)
    (rank,) = played(driver).report(moment(driver.now)).runs[0].ranks
    return rank


def test_what_it_computed_longer_meanwhile_is_lost_to_the_same_others() -> None:
    queued = random.uniform(0.5, 3.0)
    slowed = queued * random.uniform(0.02, 0.2)
    part = random.random()
    rank = told(queued, slowed * part, slowed * (1 - part))
    assert rank.lost == {"cpu_contention": pytest.approx(queued + slowed, abs=0.01)}
    assert rank.stalls[0].cause == "cpu_contention"


def test_a_heavier_batch_that_also_waits_for_a_cpu_is_not_slowed_by_others() -> None:
    rank = told(0.5, 0.25, 0.25)
    assert rank.lost == {"cpu_contention": pytest.approx(0.5, abs=0.01)}
