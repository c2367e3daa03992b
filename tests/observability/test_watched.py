"""The whole way, all of it real: a training that stalls, eBPF, the daemon, the exporter, Prometheus."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.programs import Daemon
from tests.observability.annotations import regions
from tests.observability.dashboards import panel_queries, with_values
from tests.observability.servers import Prometheus, prometheus
from tests.unit.exporters.programs import exporter
from trainprobe.model.cause import LOST

TRAINING = Path(__file__).with_name("stalling_training.py")
PLAN = ("checkpoint=1.5", "cpu_bound=0.5", "checkpoint=0.4", "cpu_bound=2.0")
SECONDS = 45
SCRAPE, STEP = 2, 5
LATE = 5 + SCRAPE + STEP
"""A daemon reports each 5 s at the latest, Prometheus asks, and a region ends a step after the growth that it shows."""

TOLD = (
    "Main cause", "Lost", "Productive", "Stalled now", "Phase", "Steps per second", "Ordinary step", "Stalls by cause",
    "Time lost per second, by cause", "Where the driving thread's time goes", "Stalls in the time range", "Step time",
    "Time in phases", "Length of a stall, p90", "Time in checkpoints, by operation", "Checkpoints that ended",
    "Memory of the ranks", "Open file descriptors, of the limit", "Sources", "Age of the report",
)  # fmt: skip
"""Panels that any training has something to show on."""


@pytest.mark.nightly
@pytest.mark.training
@pytest.mark.timeout(180)
def test_planted_stalls_of_a_real_training_are_regions_in_prometheus(tmp_path: Path, torch_python: str) -> None:
    with (
        Daemon(tmp_path) as daemon,
        exporter(daemon.directory) as running,
        prometheus(tmp_path, running.url.removeprefix("http://"), f"{SCRAPE}s") as server,
    ):
        # The daemon finds every training of this host; by its name this one is told from others of its kind.
        training = shutil.copy(TRAINING, tmp_path / f"stalling_{secrets.token_hex(4)}.py")
        run = f"{training.name}-.*"
        begun = time.time()
        command = [torch_python, str(training), str(tmp_path), str(SECONDS), *PLAN]
        output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        time.sleep(5 + SCRAPE)
        *stalls, end = [json.loads(line) for line in output.splitlines()]
        assert [stall["cause"] for stall in stalls] == [entry.partition("=")[0] for entry in PLAN]

        for cause in ("checkpoint", "cpu_bound"):
            planted = [stall for stall in stalls if stall["cause"] == cause]
            found = regions(server, run, cause, begun, time.time(), STEP)
            assert len(found) == len(planted), (cause, planted, found)
            for stall, (first, last) in zip(planted, found, strict=True):
                assert stall["start"] < first < stall["start"] + LATE
                assert stall["end"] - STEP < last < stall["end"] + LATE
            lost = server.value(f'trainprobe_stall_seconds_total{{run=~"{run}",cause="{cause}"}}')
            assert lost == pytest.approx(sum(stall["end"] - stall["start"] for stall in planted), rel=0.1, abs=0.1)
        selected = f'{{run=~"{run}"}}'
        by_cause = server.vector(f"trainprobe_stall_seconds_total{selected}", "cause")
        assert by_cause.keys() == set(map(str, LOST))

        assert server.value(f"trainprobe_steps_total{selected}") == end["steps"]
        assert server.value(f"sum(trainprobe_phase_active{selected})") == 0, "the training has ended"
        assert server.value(f'trainprobe_checkpoints_total{{run=~"{run}",outcome="complete"}}') == 2
        wall = server.value(f"trainprobe_run_wall_seconds_total{selected}")
        assert server.value(f"sum(trainprobe_state_seconds_total{selected})") == pytest.approx(wall, rel=0.01)
        _nothing_fell(server)
        _dashboards_tell_of_it(server, run, begun)


def _nothing_fell(server: Prometheus) -> None:
    for name in server.ask("/api/v1/label/__name__/values"):
        if name.startswith("trainprobe_") and name.endswith(("_total", "_count", "_sum")):
            assert server.ask("/api/v1/query", query=f"resets({name}[5m]) > 0")["result"] == [], name


def _dashboards_tell_of_it(server: Prometheus, run: str, begun: float) -> None:
    """No query of a panel fails on what a real daemon tells; those that any training has data for have an answer."""
    now = time.time()
    (name,) = server.vector(f'max by (run) (trainprobe_run_wall_seconds_total{{run=~"{run}"}})', "run")
    values = {"job": ".+", "host": ".+", "run": name, "rank": ".+", "__interval": f"{STEP}s"}
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
