"""Twenty stalls of 0.3 to 20 s, scraped each 5 or 15 s: every one is a region of its cause, and nothing else is."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import exp, log
from pathlib import Path

import pytest

from grafana.causes import STALL_CAUSES
from tests.observability.annotations import Region, regions
from tests.observability.backfill import having_scraped
from tests.unit.exporters.reports import a_report, a_run, a_stepping_rank
from trainprobe.model.report import Report
from trainprobe_exporters.families import Family, Series

SHORTEST, LONGEST, STALLS = 0.3, 20.0, 20
REPORT_SECONDS = 1.0  # the daemon publishes each second; the exporter tells the latest of these


@dataclass(frozen=True)
class Planted:
    cause: str
    start: float
    end: float

    def seconds(self, at: float) -> float:
        """How much of it is over at a time."""
        return min(max(0.0, at - self.start), self.end - self.start)


def planted(draw: random.Random, begin: float, interval: float) -> list[Planted]:
    """Stalls of random causes and lengths, far enough apart to be told from each other at this interval."""
    stalls, at = [], begin + 4 * interval
    for _ in range(STALLS):
        at += draw.uniform(4 * interval, 6 * interval)
        length = exp(draw.uniform(log(SHORTEST), log(LONGEST)))
        stalls.append(Planted(draw.choice(STALL_CAUSES), at, at + length))
        at += length
    return stalls


def report(at: float, begin: float, stalls: list[Planted]) -> Report:
    """What the daemon published last before a time."""
    at = begin + (at - begin) // REPORT_SECONDS * REPORT_SECONDS
    seconds: dict[str, float] = {}
    for stall in stalls:
        if stall.start < at:
            seconds[stall.cause] = seconds.get(stall.cause, 0.0) + stall.seconds(at)
    rank = a_stepping_rank(wall=at - begin, stall_seconds=seconds)
    return a_report(a_run("train.py-3f2a91c0", rank, started=begin), at=at)


def scrapes(begin: float, end: float, interval: float, stalls: list[Planted]) -> Iterator[tuple[float, list[Family]]]:
    series = Series()
    for number in count():
        at = begin + number * interval
        if at > end:
            return
        series.fold(report(at, begin, stalls))
        yield at, series.families(at, fresh=True)


@pytest.mark.parametrize("interval", [5.0, 15.0])
def test_each_stall_is_one_region_of_its_cause(tmp_path: Path, interval: float) -> None:
    seed = os.environ.get("TRAINPROBE_SEED") or str(random.randrange(10**6))
    draw = random.Random(f"{seed} {interval}")
    begin = time.time() - 4000 + draw.uniform(0, interval)
    stalls = planted(draw, begin, interval)
    end = stalls[-1].end + 4 * interval
    with having_scraped(tmp_path, scrapes(begin, end, interval, stalls)) as server:
        first = begin // interval * interval  # Grafana aligns to the step
        drawn = {cause: regions(server, ".+", cause, first, end, interval) for cause in STALL_CAUSES}
    shown = [(stall, _region_of(stall, drawn[stall.cause], interval)) for stall in stalls]
    missed = [stall for stall, region in shown if region is None]
    assert not missed, f"seed {seed}: {len(missed)} of {STALLS} not drawn: {missed}"
    assert sum(map(len, drawn.values())) == STALLS, f"seed {seed}: more is drawn than was planted: {drawn}"


def _region_of(stall: Planted, drawn: list[Region], interval: float) -> Region | None:
    """A growth is seen a report, a scrape and a step after it happened, at the latest."""
    late = REPORT_SECONDS + 2 * interval
    found = [(a, b) for a, b in drawn if stall.start <= a <= stall.start + late and a <= b <= stall.end + late]
    return found[0] if len(found) == 1 else None
