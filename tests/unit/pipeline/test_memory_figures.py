"""Proportional memory is read seldom: what the report says of it where it is outdated."""

from __future__ import annotations

import pytest

from trainprobe.derive.workers import WorkerPool
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
    memory.read(0)
    assert memory.pss_peak == told
