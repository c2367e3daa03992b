"""Shared memory per batch: what workers made, over what was fetched."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import Driver
from trainprobe.derive.memory.batch_bytes import BatchBytes
from trainprobe.model.event import MarkRow


def fed(driver: Driver, found: BatchBytes | None = None) -> BatchBytes:
    found = found or BatchBytes()
    for event in driver.events:
        if isinstance(event, MarkRow):
            found.add_row(event)
    driver.events.clear()
    return found


def trained(batch: int, ahead: int, steps: int, *, inline: bool = False) -> Driver:
    """Workers are ``ahead`` batches ahead of what is fetched."""
    driver = Driver(batch=batch, ahead=ahead)
    for _ in range(steps):
        driver.fetch(inline=inline)
        driver.backward()
        driver.optimizer()
    return driver


def test_batches_on_their_way_do_not_count_twice() -> None:
    batch, ahead = random.randrange(5_000, 50_000_000), random.randrange(1, 40)
    assert fed(trained(batch, ahead, 200)).mean == pytest.approx(batch)


def test_too_few_batches_tell_nothing() -> None:
    assert fed(trained(4096, 4, 20)).mean is None


def test_a_driver_that_loads_by_itself_needs_none() -> None:
    assert fed(trained(0, 0, 200, inline=True)).mean is None


def test_recordings_from_before_this_was_counted() -> None:
    driver = Driver()
    driver.train(100)
    assert fed(driver).mean is None


def test_another_ledger_begins_anew() -> None:
    found = fed(trained(1_000_000, 4, 200))
    other = trained(3_000_000, 4, 200)
    other.now += 5
    assert fed(other, found).mean == pytest.approx(3_000_000)
