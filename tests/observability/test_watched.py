"""The whole way, all of it real: a training that stalls, eBPF, the daemon, the exporter, Prometheus."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import Daemon
from tests.observability.alerting import alerting
from tests.observability.annotations import Region, regions
from tests.observability.dashboards import panel_queries, with_values
from tests.observability.servers import Prometheus
from tests.unit.exporters.programs import exporter
from trainprobe.model.cause import LOST

TRAINING = Path(__file__).with_name("stalling_training.py")
PLAN = ("checkpoint=1.5", "cpu_bound=0.5", "checkpoint=0.4", "cpu_bound=2.0")
PLANTED = {"checkpoint": 1.9, "cpu_bound": 2.5}  # seconds in all
SECONDS = 45
SCRAPE, STEP = 2, 5
LATE = 5 + SCRAPE + STEP
"""A daemon reports each 5 s at the latest, Prometheus asks, and a region ends a step after the growth that it shows."""

TOLD = (
    "Main cause", "Lost", "Productive", "Stalled now", "Phase", "Steps per second", "Ordinary step", "Stalls by cause",
    "Time lost per second, by cause", "Where the training thread's time goes", "Stalls in the time range", "Step time",
    "Time in phases", "Length of a stall, p90", "Time in checkpoints, by operation", "Checkpoints that ended",
    "Memory of the ranks", "Open file descriptors, of the limit", "Sources", "Age of the report",
)  # fmt: skip
"""Panels that any training has something to show on."""


@dataclass(frozen=True)
class Watched:
    """What a training that has ended says of itself, and the Prometheus that heard of it."""

    server: Prometheus
    run: str  # regular expression: the daemon watches every training of the host
    begun: float
    stalls: list[dict[str, Any]]
    steps: int

    def total(self, metric: str, *matchers: str) -> float:
        """A counter of the run, or the sum of several."""
        selector = ",".join((f'run=~"{self.run}"', *matchers))
        value = self.server.value(f"sum({metric}{{{selector}}})")
        assert value is not None, metric
        return value

    def regions(self, cause: str) -> list[Region]:
        return regions(self.server, self.run, cause, self.begun, time.time(), STEP)

    def planted(self, cause: str) -> list[dict[str, Any]]:
        return [stall for stall in self.stalls if stall["cause"] == cause]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, torch_python: str) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("watched")
    with (
        Daemon(directory) as daemon,
        exporter(daemon.directory) as running,
        alerting(directory, running.url.removeprefix("http://"), f"{SCRAPE}s") as (server, _),
    ):
        training = shutil.copy(TRAINING, directory / f"stalling_{secrets.token_hex(4)}.py")
        run = f"{training.name}-.*"
        begun = time.time()
        command = [torch_python, str(training), str(directory), str(SECONDS), *PLAN]
        output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        server.wait_for(f'sum(trainprobe_phase_active{{run=~"{run}"}}) == 0', 60)  # it has ended
        time.sleep(SCRAPE + STEP)
        *stalls, end = [json.loads(line) for line in output.splitlines()]
        yield Watched(server, run, begun, stalls, end["steps"])


@pytest.mark.training
@pytest.mark.timeout(300)
def test_a_real_training_is_in_prometheus_and_on_the_dashboards(watched: Watched) -> None:
    """Whatever else the host does: long stalls are regions, nothing falls, panels have what any training tells."""
    for stall in (stall for stall in watched.planted("checkpoint") if stall["end"] - stall["start"] > 1):
        drawn = watched.regions("checkpoint")
        assert any(a < stall["end"] + LATE and stall["start"] < b for a, b in drawn), (stall, drawn)
    assert watched.total("trainprobe_stall_seconds_total", 'cause="checkpoint"') >= 0.7 * PLANTED["checkpoint"]
    by_cause = watched.server.vector(f'trainprobe_stall_seconds_total{{run=~"{watched.run}"}}', "cause")
    assert by_cause.keys() == set(map(str, LOST))
    assert sum(by_cause.values()) >= 0.7 * sum(PLANTED.values())
    assert 0.5 * watched.steps <= watched.total("trainprobe_steps_total") <= watched.steps
    wall = watched.total("trainprobe_run_wall_seconds_total")
    assert watched.total("trainprobe_state_seconds_total") == pytest.approx(wall, rel=0.01)
    _nothing_fell(watched.server)
    _dashboards_tell_of_it(watched)


@pytest.mark.nightly
@pytest.mark.training
@pytest.mark.timeout(300)
def test_planted_stalls_of_a_real_training_are_regions_in_prometheus(watched: Watched) -> None:
    """Each of them, of its cause and at its time, and no other. A busy host stalls a training by itself."""
    for cause in PLANTED:
        planted, found = watched.planted(cause), watched.regions(cause)
        assert len(found) == len(planted), (cause, planted, found)
        for stall, (first, last) in zip(planted, found, strict=True):
            assert stall["start"] < first < stall["start"] + LATE
            assert stall["end"] - STEP < last < stall["end"] + LATE
        lost = watched.total("trainprobe_stall_seconds_total", f'cause="{cause}"')
        assert lost == pytest.approx(sum(stall["end"] - stall["start"] for stall in planted), rel=0.1, abs=0.1)
    assert watched.total("trainprobe_steps_total") == watched.steps
    assert watched.total("trainprobe_checkpoints_total", 'outcome="complete"') == len(watched.planted("checkpoint"))


def _nothing_fell(server: Prometheus) -> None:
    for name in server.ask("/api/v1/label/__name__/values"):
        if name.startswith("trainprobe_") and name.endswith(("_total", "_count", "_sum")):
            assert server.ask("/api/v1/query", query=f"resets({name}[5m]) > 0")["result"] == [], name


def _dashboards_tell_of_it(watched: Watched) -> None:
    """No query of a panel fails on what a real daemon tells; those that any training has data for have an answer."""
    now, server, begun = time.time(), watched.server, watched.begun
    (name,) = server.vector(f'max by (run) (trainprobe_run_wall_seconds_total{{run=~"{watched.run}"}})', "run")
    values = {"job": ".+", "host": ".+", "run": name, "rank": ".+", "__interval": f"{STEP}s"}
    values |= {"user": ".+", "price": "2.5"}
    values |= {"__rate_interval": f"{4 * STEP}s", "__range": f"{int(now - begun)}s"}
    window = {"start": str(begun), "end": str(now), "step": str(STEP)}
    empty = set()
    for asked in panel_queries():
        query = with_values(asked.expr, values)
        if asked.instant:
            found = server.ask("/api/v1/query", query=query)["result"]
        else:
            found = server.ask("/api/v1/query_range", query=query, **window)["result"]
        if not found:
            empty.add(str(asked))
    told = {f"trainprobe-stalls: {title} (A)" for title in TOLD} | {"trainprobe-fleet: Worst runs (A)"}
    assert told & empty == set()
