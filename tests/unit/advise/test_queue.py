"""A loader's queue replayed: what more batches made ahead would have saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainprobe.advise.loader import Loader
from trainprobe.advise.queue import ahead

LOAD = Loader(workers=2, own=0.05, wait=0.0, fetches=1.0, cpu=0.04, blocked=0.0, driver_cpu=0.05, cpus=4)


def test_without_late_batches_or_with_workers_that_do_not_keep_up_there_is_nothing_to_cover() -> None:
    assert ahead(LOAD, [], 2) is None
    assert ahead(replace(LOAD, cpu=0.2), [(100, 1.0)], 2) is None


def test_a_late_batch_is_covered_by_as_much_as_the_queue_is_longer() -> None:
    """Two workers: each batch more that either is ahead covers two steps of 50 ms."""
    found = ahead(LOAD, [(100, 0.4), (300, 0.4)], 2)
    assert found is not None
    assert found.factor == 6
    assert found.saves == pytest.approx(1.0)


def test_neighbours_share_one_queue() -> None:
    """The second comes before the workers have made up for the first: alone it would be covered."""
    apart, close = ahead(LOAD, [(100, 0.6), (900, 0.6)], 2), ahead(LOAD, [(100, 0.6), (104, 0.6)], 2)
    assert apart is not None
    assert close is not None
    assert close.factor > apart.factor


def test_a_hang_is_covered_in_part_and_said_so() -> None:
    found = ahead(LOAD, [(100, 5.0)], 2)
    assert found is not None
    assert found.factor == 16
    assert found.saves == pytest.approx(14 * 2 * 0.05 / 5.0, rel=0.1)


def test_what_is_far_longer_than_any_queue_gets_no_factor() -> None:
    assert ahead(LOAD, [(100, 60.0)], 2) is None
