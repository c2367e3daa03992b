"""Workers that set the pace and are blocked: told whatever they compute, and nothing of equal runs."""

from __future__ import annotations

import random

import pytest

from tests.unit.advise.test_comparison import a_rank
from trainprobe.advise.comparison import Comparison, compare
from trainprobe.model.report import Rank, Workers

PAIRS = 200
BATCH, OWN, STEPS = 0.020, 0.010, 500


def ran(rng: random.Random, blocked: float = BATCH, workers: int = 1) -> Rank:
    """Workers that sleep for each batch, and compute between; how long is up to the caches, and changes by the run."""
    computes, number = rng.uniform(0.0006, 0.0016), workers
    lengths = [(blocked + computes * rng.uniform(0.9, 1.1)) / number * rng.uniform(0.995, 1.005) for _ in range(STEPS)]
    mean = sum(lengths) / STEPS
    rank = a_rank(lengths, None, {"compute": OWN / number, "data_wait": mean - OWN / number})
    rank.ordinary.fetches, rank.workers = 1.0, Workers(peak=workers)
    rank.ordinary.worker_cpu_seconds_per_batch = computes
    rank.ordinary.worker_blocked_seconds_per_batch = blocked * rng.uniform(0.9975, 1.0025)
    rank.ordinary.paces = [26e-6 * rng.uniform(0.995, 1.005) for _ in range(5)]
    return rank


def compared(a: Rank, b: Rank, samples: tuple[float, float] | None = None) -> Comparison:
    made = compare(a, b, samples)
    assert made is not None
    return made


def test_equal_runs_are_not_told_apart_though_their_workers_compute_longer(rng: random.Random) -> None:
    workers = rng.randint(1, 4)
    for _ in range(PAIRS):
        made = compared(ran(rng, workers=workers), ran(rng, workers=workers))
        assert (made.is_significant, made.parts_told) == (False, False), made


def test_five_per_cent_more_are_told_and_by_the_sample_too(rng: random.Random) -> None:
    workers = rng.randint(1, 4)
    for _ in range(PAIRS):
        made = compared(ran(rng, workers=workers), ran(rng, 1.05 * BATCH, workers))
        (wait,) = made.waits_told
        assert (wait.state, wait.call) == ("data_wait", "workers")
        assert made.waits_change == pytest.approx(0.05, abs=0.01)
        assert not (made.is_significant and made.change > 0)
    a, b = ran(rng), ran(rng, 1.05 * BATCH)
    assert compared(a, b, (8.0, 8.0)).waits_change == pytest.approx(compared(a, b).waits_change)


def test_idle_workers_of_an_evaluation_make_no_difference_smaller(rng: random.Random) -> None:
    a, b = ran(rng, workers=2), ran(rng, 1.05 * BATCH, workers=2)
    alone = compared(a, b).waits_change
    for rank, peak in ((a, 8), (b, 6)):
        rank.ordinary.workers, rank.workers = 2, Workers(peak=peak)
    assert compared(a, b).waits_change == pytest.approx(alone) == pytest.approx(0.05, abs=0.01)


def more_workers(rank: Rank) -> None:
    rank.workers = Workers(peak=2)


def computing(rank: Rank) -> None:
    rank.ordinary.worker_cpu_seconds_per_batch = 0.3 * BATCH


def hidden(rank: Rank) -> None:
    rank.ordinary.states = {"compute": BATCH, "data_wait": 0.0001}


@pytest.mark.parametrize("unlike", [more_workers, computing, hidden])
def test_what_they_are_blocked_for_tells_nothing_where_it_sets_no_pace(unlike: object, rng: random.Random) -> None:
    a, b = ran(rng), ran(rng, 1.05 * BATCH)
    assert compared(a, b).waits_told
    assert callable(unlike)
    unlike(b)
    assert not compared(a, b).waits
