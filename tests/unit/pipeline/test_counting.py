"""Waits and instructions of ordinary steps, as the report has them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

import pytest

from tests.builders.driver import PID, Driver, moment, played
from trainprobe.model.cause import Cause
from trainprobe.model.cells import Leaf
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import STALL_BUCKETS, OrdinaryStep
from trainprobe.model.sample import CountSample
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.report import counters
from trainprobe.pipeline.stalls import Durations, StallEntry, StallFigures


def trained(rng: random.Random, synced: float = 0.0, size: int = 0, slow_every: int = 0) -> OrdinaryStep:
    """A training that is looked at each two seconds; each of its steps computes 2e8 instructions in its 50 ms."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    since: int | None = None
    steps = 0
    for _ in range(20):
        for _ in range(rng.randint(36, 44)):
            driver.spend(0.01, Leaf.SLEEP)
            if size:
                driver.write("/out/log", size, 0.0, synced, created=False)
            if slow_every and steps % slow_every == 0:
                driver.spend(3.0)
            driver.step(0.014)
            steps += 1
        played(driver, pipeline)
        if since is not None:
            count = CountSample(PID, PID, since, driver.now, 4 * (driver.now - since))
            pipeline.step(Frame(moment(driver.now), counted=(count,)))
        wanted = pipeline.wants().count
        assert wanted in ((), ((PID, PID),))
        since = (since or driver.now) if wanted else None
    return pipeline.report(moment(driver.now)).runs[0].ranks[0].ordinary


def test_a_step_has_its_instructions_and_its_waits(rng: random.Random) -> None:
    ordinary = trained(rng)
    assert len(ordinary.instructions) >= 3
    assert ordinary.instructions == pytest.approx([2e8] * len(ordinary.instructions), rel=0.01)
    assert 16 <= ordinary.wait_stretches < 32
    assert ordinary.waits == {"sleep/sleep": pytest.approx([0.01] * ordinary.wait_stretches)}
    assert ordinary.written_calls == {}


def test_what_it_writes_is_told_by_state(rng: random.Random) -> None:
    ordinary = trained(rng, synced=0.005, size=1000)
    (key,) = set(ordinary.waits) - {"sleep/sleep"}
    assert key.endswith("/write")
    assert ordinary.waits[key] == pytest.approx([0.005] * ordinary.wait_stretches)
    assert ordinary.written_bytes == {key: pytest.approx([1000.0] * ordinary.wait_stretches)}


def test_windows_with_stalls_are_left_out(rng: random.Random) -> None:
    assert trained(rng, slow_every=20).instructions == []


def test_the_histogram_of_many_stalls_is_that_of_each(rng: random.Random) -> None:
    """One as long as a bucket is in it."""
    lengths = [*STALL_BUCKETS, *(rng.expovariate(0.1) for _ in range(200))]
    entries = [StallEntry(0, 1, seconds * NS, Cause.UNKNOWN, {}, 0, 0, 1) for seconds in lengths]
    gone, one_by_one = Durations([1] * (len(STALL_BUCKETS) + 1), 5.0), Durations([1] * (len(STALL_BUCKETS) + 1), 5.0)
    for entry in entries:
        one_by_one.add(entry.ns)
    figures = cast(StallFigures, SimpleNamespace(entries=entries, gone=gone))
    made = counters._durations(figures)
    assert made.counts == one_by_one.counts
    assert made.seconds == pytest.approx(one_by_one.seconds)
