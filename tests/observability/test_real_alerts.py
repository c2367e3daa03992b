"""Real trainings that run out of memory, watched by real eBPF: the alert is with a real Alertmanager in time."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.advice import host
from benchmarks.limits import groups
from benchmarks.programs import Daemon
from benchmarks.stalls.host import CannotHere
from tests.observability.alerting import alerting
from tests.unit.exporters.programs import exporter

TRAINING = Path(__file__).with_name("hungry_training.py")
LIMIT = 900 << 20
GROWTH = 6 << 20  # bytes a second: a minute and a half to the limit
SWAPPED = 1200 << 20
SWAP = 1 << 30
SCRAPE = "2s"

pytestmark = [pytest.mark.nightly, pytest.mark.training, pytest.mark.timeout(300)]


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup of LIMIT bytes, its directory."""
    try:
        with groups.memory(f"trainprobe-test-{os.getpid()}-{secrets.token_hex(2)}", LIMIT) as made:
            yield made
    except CannotHere as reason:
        pytest.skip(str(reason))


@pytest.fixture
def swap() -> Iterator[None]:
    """Swap in compressed memory, where this host has none."""
    if host.has_swap():
        pytest.skip("there is swap already")
    try:
        with host.swap(SWAP):
            yield
    except CannotHere as reason:
        pytest.skip(str(reason))


@contextmanager
def hungry(directory: Path, python: str, group: Path, appetite: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The training in the cgroup; its script's name, by which its run is called, and its process."""
    script = shutil.copy(TRAINING, directory / f"hungry_{secrets.token_hex(4)}.py")
    into = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(group)]
    process = subprocess.Popen([*into, python, str(script), "240", appetite])
    try:
        yield script.name, process
    finally:
        process.kill()
        process.wait()


def test_a_ramp_to_the_limit_is_told_before_the_kill(tmp_path: Path, torch_python: str, group: Path) -> None:
    with (
        Daemon(tmp_path) as daemon,
        exporter(daemon.directory) as running,
        alerting(tmp_path, running.url.removeprefix("http://"), SCRAPE) as (_, alertmanager),
        hungry(tmp_path, torch_python, group, f"grow={GROWTH}") as (run, process),
    ):
        told = alertmanager.wait_for_run("TrainingOOMRisk", run, 120)
        assert process.poll() is None, "it was told too late"
        assert told.labels["severity"] == "critical"
        assert " runs out of memory in " in told.summary
        process.wait(120)
        assert process.returncode == -9, "the ramp ended in a kill, as was told"
        killed = alertmanager.wait_for_run("TrainingOOMKill", run, 30)
        assert "limit of the cgroup" in killed.summary


def test_memory_that_comes_back_from_swap_is_told(tmp_path: Path, torch_python: str, group: Path, swap: None) -> None:
    with (
        Daemon(tmp_path) as daemon,
        exporter(daemon.directory) as running,
        alerting(tmp_path, running.url.removeprefix("http://"), SCRAPE) as (prometheus, alertmanager),
        hungry(tmp_path, torch_python, group, f"touch={SWAPPED}") as (run, process),
    ):
        told = alertmanager.wait_for_run("TrainingSwapIn", run, 150)
        assert process.poll() is None
        assert "major faults a second" in told.summary
        assert (prometheus.value("rate(trainprobe_swap_in_pages_total[1m])") or 0) > 100
