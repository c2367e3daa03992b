"""Memory with other loader settings, and what is said where it is not sure."""

from __future__ import annotations

import pytest

from tests.unit.advise.test_settings import MB, a_rank
from trainprobe.advise.memory import Taken, measured, others, unsure
from trainprobe.model.report import Memory, PhaseSpan, Rank

BATCH = 10 * MB


def told(workers: int = 2, shm: int = 5 * BATCH, batch: float | None = BATCH, **more: float | None) -> Rank:
    """Workers of 200 MB each, in a run that takes a gigabyte of two."""
    rank = a_rank(workers)
    rank.memory = Memory(
        limit_bytes=2000 * MB, limit_scope="cgroup", shm_peak_bytes=shm, shm_bytes_per_batch=batch,
        worker_private_bytes=200 * MB, taken_peak_bytes=1000 * MB, read_after_seconds=60.0,
    )  # fmt: skip
    for name, value in more.items():
        setattr(rank.memory, name, value)
    rank.samples.pss_bytes = [900 * MB, 950 * MB]
    return rank


def reasons(rank: Rank) -> list[str]:
    memory = measured(rank)
    assert memory is not None
    return [str(why) for why in unsure(rank, memory)]


def test_a_worker_takes_its_own_pages_and_its_batches() -> None:
    """Two workers are two batches ahead each, one is worked on: 50 MB. So are four workers: 90 MB."""
    memory = measured(told())
    assert memory is not None
    assert memory.now == Taken(2, 2, 1000 * MB, "safe")
    assert others(memory) == (
        Taken(1, 2, (1000 - 200 - 20) * MB, "safe"),
        Taken(4, 2, (1000 + 400 + 40) * MB, "safe"),
        Taken(2, 4, (1000 + 40) * MB, "safe"),
    )
    assert memory.with_(5, 10) == (1000 + 600 + 460) * MB
    assert memory.verdict(memory.with_(5, 10)) == "out of memory"


@pytest.mark.parametrize(("seen", "prefetch"), [(5, 2), (9, 4), (3, 2), (0, 2)])
def test_more_batches_in_shared_memory_than_torch_makes_by_itself_tell_the_setting(seen: int, prefetch: int) -> None:
    memory = measured(told(shm=seen * BATCH))
    assert memory is not None
    assert memory.prefetch == prefetch
    assert memory.with_(2, 6) == (1000 + 130 - 10 * seen) * MB, "whatever is taken for the present setting"


def test_nothing_is_guessed_where_nothing_was_measured() -> None:
    assert measured(told(taken_peak_bytes=None)) is None
    without = measured(told(worker_private_bytes=None))
    assert without is not None
    assert others(without) == ()
    elsewhere = measured(told(shm=0, batch=None))
    assert elsewhere is not None
    assert [one.prefetch_factor for one in others(elsewhere)] == [2, 2], "batches may lie anywhere"
    alone = measured(told(workers=0))
    assert alone is not None
    assert others(alone) == ()
    assert reasons(told(workers=0)) == ["what a worker takes is not known: there was none"]


def test_why_it_may_be_wrong() -> None:
    assert reasons(told()) == []
    short = told()
    short.steps.count = 200
    assert reasons(short) == [
        "each worker has made 100 batches: it may grow until it has made 128; watch it for longer"
    ]
    growing = told()
    growing.samples.time = [1.0, 2.0, 3.0, 4.0, 5.0]
    growing.samples.pss_bytes = [None, 500 * MB, 600 * MB, 700 * MB, 800 * MB]
    assert reasons(growing) == [
        "memory still grew when it was last looked at, from 600 MB to 800 MB: all of this becomes more"
    ]
    growing.phases = [PhaseSpan("startup", 0.5, 4.0)]
    growing.samples.pss_bytes = [7 * MB, 90 * MB, 600 * MB, 800 * MB, 800 * MB]
    assert reasons(growing) == [], "what it takes at first is no growth"
    assert reasons(told(read_after_seconds=2.0)) == [
        "these figures may be too low: memory was last read 2.00 s after the workers were started"
    ]
    assert "further ones take less than shown" in reasons(told(workers=1))[0]
    assert "no batches were seen in shared memory" in reasons(told(batch=None))[0]
