"""The edge of an epoch: a new iterator, workers that start again, a sampler that shuffles, and the first batch."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf
from trainprobe.model.event import StackSeen

SAMPLER = ("<module> (train.py:9)", "DataLoader.__iter__ (torch/utils/data/dataloader.py:440)")
SHUFFLES = (*SAMPLER, "RandomSampler.__iter__ (torch/utils/data/sampler.py:170)")
PICKLES = (*SAMPLER, "Popen._launch (popen_spawn_posix.py:62)")


def renew(driver: Driver, first: int, count: int, apart: float = 0.01) -> None:
    """The workers end, ten numbers before, and as many new ones are started."""
    for pid in range(first - 10, first - 10 + count):
        driver.die(pid)
    for pid in range(first, first + count):
        driver.fork(pid)
        driver.spend(apart)


def started(count: int = 4) -> Driver:
    driver = Driver()
    driver.begin()
    for pid in range(2000, 2000 + count):
        driver.fork(pid)
    driver.train(40)
    return driver


def test_a_sampler_that_shuffles_behind_the_forks_is_no_start_of_workers() -> None:
    """Workers that live on would not end that: each new iterator asks its sampler again."""
    driver = started()
    for first in (2010, 2020, 2030):
        renew(driver, first, 4)
        driver.spend(3.0)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, SHUFFLES, running=True))
        driver.fetch(0.4, Leaf.POLL)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["cpu_bound"] == pytest.approx(9.0, abs=0.3)
    assert rank.lost["worker_startup"] == pytest.approx(1.3, abs=0.3)
    assert "RandomSampler.__iter__" in rank.stalls[-1].summary
    adds_up(rank)


@pytest.mark.parametrize("count", [4, 1])
def test_what_the_training_computes_to_start_its_workers_is_their_start(count: int) -> None:
    """A data set that is pickled for each. Of a single worker only a stack shows it."""
    driver = started(count)
    for first in (2010, 2020):
        renew(driver, first, count, 0.5)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, PICKLES, running=True))
        driver.fetch(0.4, Leaf.POLL)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == pytest.approx({"worker_startup": 2 * (0.5 * count + 0.4)}, abs=0.1)
