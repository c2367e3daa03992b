"""The whole way, all of it real: a training that stalls, eBPF, the daemon, the exporter, Prometheus."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.programs import Daemon
from tests.observability.annotations import regions
from tests.observability.servers import Prometheus, prometheus
from tests.unit.exporters.programs import exporter
from trainprobe.model.cause import LOST

TRAINING = Path(__file__).with_name("stalling_training.py")
PLAN = ("checkpoint=1.5", "cpu_bound=0.5", "checkpoint=0.4", "cpu_bound=2.0")
SECONDS = 45
LATE = 6.5
"""A busy daemon reports each 5 s, Prometheus asks each second, the region ends a step later."""


@pytest.mark.training
@pytest.mark.timeout(180)
def test_planted_stalls_of_a_real_training_are_regions_in_prometheus(tmp_path: Path, torch_python: str) -> None:
    with (
        Daemon(tmp_path) as daemon,
        exporter(daemon.directory) as running,
        prometheus(tmp_path, running.url.removeprefix("http://")) as server,
    ):
        begun = time.time()
        command = [torch_python, str(TRAINING), str(tmp_path), str(SECONDS), *PLAN]
        output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        time.sleep(7)
        *stalls, end = [json.loads(line) for line in output.splitlines()]
        assert [stall["cause"] for stall in stalls] == [entry.partition("=")[0] for entry in PLAN]

        for cause in ("checkpoint", "cpu_bound"):
            planted = [stall for stall in stalls if stall["cause"] == cause]
            found = regions(server, cause, begun, time.time(), 1)
            assert len(found) == len(planted), (cause, planted, found)
            for stall, (first, last) in zip(planted, found, strict=True):
                assert stall["start"] - 1 < first < stall["start"] + LATE
                assert stall["end"] - 1 < last < stall["end"] + LATE
            lost = server.value(f'trainprobe_stall_seconds_total{{cause="{cause}"}}')
            assert lost == pytest.approx(sum(stall["end"] - stall["start"] for stall in planted), rel=0.1, abs=0.1)
        others = server.vector("trainprobe_stall_seconds_total", "cause")
        assert others.keys() == set(map(str, LOST))
        assert sum(seconds for cause, seconds in others.items() if cause not in ("checkpoint", "cpu_bound")) < 0.3

        assert server.value("trainprobe_steps_total") == end["steps"]
        assert server.value("sum(trainprobe_phase_active)") == 0, "the training has ended"
        assert server.value('trainprobe_checkpoints_total{outcome="complete"}') == 2
        wall = server.value("trainprobe_run_wall_seconds_total")
        states = server.value("sum(trainprobe_state_seconds_total)")
        assert states == pytest.approx(wall, rel=0.01)
        _nothing_fell(server)


def _nothing_fell(server: Prometheus) -> None:
    for name in server.ask("/api/v1/label/__name__/values"):
        if name.startswith("trainprobe_") and name.endswith(("_total", "_count", "_sum")):
            assert server.ask("/api/v1/query", query=f"resets({name}[5m]) > 0")["result"] == [], name
