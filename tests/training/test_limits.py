"""How soon, and at what cost: the figures that the project promises, measured beside a real training."""

from __future__ import annotations

import random

import pytest

from benchmarks import footprint, latency, pace


@pytest.mark.timeout(180)
def test_a_workers_death_is_known_within_a_tenth_of_a_second(torch_python: str, seed: int) -> None:
    seconds = latency.measure(torch_python, 50, random.Random(seed))
    assert pace.within(latency.percentile(seconds, 0.99), latency.LIMIT_SECONDS), sorted(seconds)[-10:]


@pytest.mark.timeout(240)
def test_the_daemon_is_small_and_soon_ready(torch_python: str) -> None:
    found = footprint.measure(torch_python, 10, settle=5)
    footprint.show(found)
    assert found.rss_bytes <= footprint.RSS_LIMIT
    assert found.ready_seconds <= found.ready_limit


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("gpus", [0, 2])
def test_watching_costs_little(torch_python: str, gpus: int) -> None:
    """The whole bar, on a machine that does nothing else: shares of a processor say little beside other work."""
    found = footprint.measure(torch_python, 60, gpus=gpus)
    footprint.show(found)
    assert found.rss_bytes <= footprint.RSS_LIMIT
    assert found.ready_seconds <= footprint.READY_LIMIT
    assert found.cpu_share <= found.cpu_limit
    assert found.watched_share <= footprint.WATCHED_LIMIT
    assert found.unwatched_share <= footprint.UNWATCHED_LIMIT
