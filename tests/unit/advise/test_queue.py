"""A loader's queue replayed: what more batches made ahead would have saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainprobe.advise.loader import Loader
from trainprobe.advise.queue import NEW_EPOCH, LateBatch, ahead
from trainprobe.causes import waiting

LOAD = Loader(workers=2, own=0.05, wait=0.0, fetches=1.0, cpu=0.04, blocked=0.0, driver_cpu=0.05, cpus=4)


def test_without_late_batches_or_with_workers_that_do_not_keep_up_there_is_nothing_to_cover() -> None:
    assert ahead(LOAD, [], 2) is None
    assert ahead(replace(LOAD, cpu=0.2), [LateBatch(100, 1.0)], 2) is None


def test_a_queue_that_no_loader_has_is_not_replayed() -> None:
    assert ahead(replace(LOAD, workers=10**12), [LateBatch(100, 1.0)], 2) is None
    assert ahead(LOAD, [LateBatch(100, 1.0)], 10**12) is None


def test_a_late_batch_is_covered_by_as_much_as_the_queue_is_longer() -> None:
    """Two workers: each batch more that either is ahead covers two steps of 50 ms."""
    found = ahead(LOAD, [LateBatch(100, 0.4), LateBatch(300, 0.4)], 2)
    assert found is not None
    assert found.factor == 6
    assert found.saves == pytest.approx(1.0)


def test_neighbours_share_one_queue() -> None:
    """The second comes before the workers have made up for the first: alone it would be covered."""
    apart = ahead(LOAD, [LateBatch(100, 0.6), LateBatch(900, 0.6)], 2)
    close = ahead(LOAD, [LateBatch(100, 0.6), LateBatch(104, 0.6)], 2)
    assert apart is not None
    assert close is not None
    assert close.factor > apart.factor


def test_a_hang_is_covered_in_part_and_said_so() -> None:
    found = ahead(LOAD, [LateBatch(100, 5.0)], 2)
    assert found is not None
    assert found.factor == 16
    assert found.saves == pytest.approx(14 * 2 * 0.05 / 5.0, rel=0.1)


def test_what_is_far_longer_than_any_queue_gets_no_factor() -> None:
    assert ahead(LOAD, [LateBatch(100, 60.0)], 2) is None


def test_nobody_makes_the_first_batches_of_an_epoch_ahead() -> None:
    """Neither the first one's wait nor that for the one behind it is covered; later ones are."""
    firsts = [LateBatch(100, 0.4, first=True), LateBatch(300, 0.4, first=True)]
    assert ahead(LOAD, firsts, 2) is None
    behind = ahead(LOAD, [LateBatch(100, 0.4, first=True), LateBatch(103, 0.4)], 2)
    assert behind is None
    half = ahead(LOAD, [*firsts, LateBatch(400, 0.8)], 2)
    assert half is not None
    assert half.saves == pytest.approx(0.5, abs=0.02)


def test_the_evidence_of_a_new_epoch_is_found_by_its_key() -> None:
    assert waiting.NEW_EPOCH.id == NEW_EPOCH
