"""What a batch costs a worker, where late ones are single ones and where all are dear."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.cells import Leaf
from trainprobe.pipeline import Pipeline


@pytest.mark.parametrize(("every", "each"), [(50, 0.004), (5, 0.36)])
def test_single_late_batches_say_nothing_of_the_others(every: int, each: float) -> None:
    """On a GPU with steps of 10 ms four batches of 1.8 s of 220 made the mean one ten times as dear: more workers were
    advised, which wait for a late batch as two do."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    for number in range(400):
        late = 1.8 if number % every == every - 1 and number > 40 else 0.0
        driver.work(late + 0.004)
        driver.fetch(late + 0.0002, Leaf.POLL)
        driver.spend(0.008)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["data_cpu"] > 10
    assert rank.ordinary.worker_cpu_seconds_per_batch == pytest.approx(each, rel=0.15)


def test_a_slow_first_epoch_stays_slow_storage_while_later_ones_compute() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    lost, pipeline = [], Pipeline()
    for epoch in range(6):
        for _ in range(200):
            driver.work(0.05 if epoch == 0 else 0.08)
            driver.work(0.3 if epoch == 0 else 0.0, Leaf.FILE_READ)
            driver.fetch(0.15 if epoch == 0 else 0.001, Leaf.POLL)
            driver.spend(0.02)
            driver.backward(0.03)
            driver.optimizer()
        lost.append(rank_of(played(driver, pipeline), driver).lost)
        driver.events.clear()
    assert lost[-1]["data_storage"] == pytest.approx(lost[0]["data_storage"], rel=0.02)
    assert lost[-1]["data_storage"] > 4 * lost[-1]["data_cpu"]
