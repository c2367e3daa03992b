"""Twenty stalls of 0.3 to 20 s, scraped each 5 or 15 s: every one is a region of its cause, and nothing else is."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from math import exp, log
from pathlib import Path

import pytest

from tests.observability.annotations import Region, regions
from tests.observability.backfill import having_scraped
from tests.observability.servers import prometheus
from tests.observability.test_scraped import Daemon
from tests.unit.exporters.programs import exporter
from tests.unit.exporters.reports import a_report, a_run, a_stepping_rank
from trainprobe.model.cause import KINDS, Kind
from trainprobe.model.report import Report
from trainprobe_exporters.families import Family, SeriesTable

INTERVALS = (5.0, 15.0)
STALL_CAUSES = tuple(cause for cause, kinds in KINDS.items() if Kind.STALL in kinds)
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


def planted(rng: random.Random, begin: float, interval: float) -> list[Planted]:
    """Stalls of random causes and lengths, far enough apart to be told from each other at this interval."""
    stalls, at = [], begin + 4 * interval
    for _ in range(STALLS):
        at += rng.uniform(4 * interval, 6 * interval)
        length = exp(rng.uniform(log(SHORTEST), log(LONGEST)))
        stalls.append(Planted(rng.choice(STALL_CAUSES), at, at + length))
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
    series = SeriesTable()
    for number in count():
        at = begin + number * interval
        if at > end:
            return
        series.fold(report(at, begin, stalls))
        yield at, series.families(at, fresh=True)


@pytest.mark.parametrize("interval", INTERVALS)
def test_each_stall_is_one_region_of_its_cause(tmp_path: Path, interval: float, rng: random.Random) -> None:
    begin = time.time() - 4000 + rng.uniform(0, interval)
    stalls = planted(rng, begin, interval)
    end = stalls[-1].end + 4 * interval
    with having_scraped(tmp_path, scrapes(begin, end, interval, stalls)) as server:
        first = begin // interval * interval  # Grafana aligns to the step
        drawn = {cause: regions(server, ".+", cause, first, end, interval) for cause in STALL_CAUSES}
    shown = [(stall, _region_of(stall, drawn[stall.cause], interval)) for stall in stalls]
    missed = [stall for stall, region in shown if region is None]
    assert not missed, f"{len(missed)} of {STALLS} not drawn: {missed}"
    assert sum(map(len, drawn.values())) == STALLS, f"more is drawn than was planted: {drawn}"


def _region_of(stall: Planted, drawn: list[Region], interval: float) -> Region | None:
    """A growth is seen a report, a scrape and a step after it happened, at the latest."""
    late = REPORT_SECONDS + 2 * interval
    found = [(a, b) for a, b in drawn if stall.start <= a <= stall.start + late and a <= b <= stall.end + late]
    return found[0] if len(found) == 1 else None


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_each_stall_is_drawn_as_two_real_servers_scrape_it(tmp_path: Path, rng: random.Random) -> None:
    """The same in real time: one exporter, scraped each 5 s by one Prometheus and each 15 s by another."""
    daemon = Daemon(tmp_path / "report.json")
    daemon.publish()
    for interval in INTERVALS:
        (tmp_path / f"{interval:g}").mkdir()
    with ExitStack() as stack:
        target = stack.enter_context(exporter(tmp_path)).url.removeprefix("http://")
        servers = {
            interval: stack.enter_context(prometheus(tmp_path / f"{interval:g}", target, f"{interval:g}s"))
            for interval in INTERVALS
        }
        begin = time.time()
        daemon.train(2 * max(INTERVALS))
        stalls = []
        for cause in rng.sample(STALL_CAUSES, STALLS):  # each once, so that they need no time between them
            length = exp(rng.uniform(log(SHORTEST), log(LONGEST)))
            stalls.append(Planted(cause, *daemon.stall(cause, length)))
            daemon.train(rng.uniform(1, 6))
        daemon.train(2 * max(INTERVALS))
        for interval, server in servers.items():
            first = begin // interval * interval
            drawn = {cause: regions(server, ".+", cause, first, time.time(), interval) for cause in STALL_CAUSES}
            missed = [stall for stall in stalls if _region_of(stall, drawn[stall.cause], interval) is None]
            assert not missed, f"{interval:g} s: {len(missed)} of {STALLS} not drawn: {missed} in {drawn}"
            assert sum(map(len, drawn.values())) == STALLS, f"{interval:g} s: {drawn}"
