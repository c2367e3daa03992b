"""Proportional memory is read seldom: what the report says of it where it is outdated."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.derive.workers import WorkerPool
from trainprobe.model.frame import Frame
from trainprobe.model.sample import ProcessSample
from trainprobe.pipeline.rank.memory import MemoryState

MB = 1_000_000


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        (ProcessSample(7, 1, "driver", 0, rss_bytes=420 * MB, pss_bytes=390 * MB), 390 * MB),
        (ProcessSample(7, 1, "driver", 0, rss_bytes=420 * MB, pss_bytes=6 * MB, grown_bytes=200 * MB), 420 * MB),
        (ProcessSample(7, 1, "driver", 0, rss_bytes=420 * MB, pss_bytes=390 * MB, grown_bytes=20 * MB), 390 * MB),
        (ProcessSample(7, 1, "driver", 0, rss_bytes=420 * MB), None),
    ],
)
def test_a_reading_of_the_start_up_is_not_the_peak(sample: ProcessSample, told: int | None) -> None:
    memory = MemoryState(WorkerPool(7))
    memory.add_sample(sample)
    memory.read(0, 1)
    assert memory.pss_peak == told


@pytest.mark.parametrize("again", [False, True])
def test_a_reading_before_the_first_step_alone_is_no_peak_of_a_training(again: bool) -> None:
    """A run of some seconds: it was read before it had imported torch."""
    driver = Driver()
    driver.begin()
    pipeline = played(driver)
    for bytes_ in (7_000_000, *((900_000_000,) if again else ())):
        read = ProcessSample(driver.pid, 1, "driver", 0, pss_bytes=bytes_)
        pipeline.step(Frame(moment(driver.now), processes=(read,)))
        driver.train(20)
        pipeline = played(driver, pipeline)
    assert rank_of(pipeline, driver).memory.pss_peak_bytes == (900_000_000 if again else None)


def test_what_cuda_maps_is_no_batch_also_between_two_epochs() -> None:
    """No worker lives then, and nothing is open."""
    memory = MemoryState(WorkerPool(7))
    for held in (0, 50 * MB, 0):
        memory.add_sample(ProcessSample(7, 1, "driver", 0, shm_bytes=300 * MB, shm_held_bytes=held))
        memory.read(0, 1)
    assert memory.shm_peak == 50 * MB
