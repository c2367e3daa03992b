"""Hundreds of short runs: neither program keeps anything of a run that is over.

``TRAINPROBE_CHURN_SECONDS``: how long they come and go (600 unless set); the first half is a warm-up, in which tables
fill. The trainings are threads of a false libtorch, because PyTorch takes longer to start than such a run lasts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import programs
from benchmarks.limits import fake_torch
from benchmarks.programs import Daemon, Exporter
from benchmarks.soak.judge import rise

pytestmark = pytest.mark.nightly

SECONDS = float(os.environ.get("TRAINPROBE_CHURN_SECONDS", "600"))
WARM_UP = 0.5
AT_ONCE, LONGEST_SECONDS = 4, 6
SCRAPE_SECONDS = 2.0
LINGER = "run_linger_seconds: 10\n"
BYTES_PER_RUN = {"daemon": 20_000, "exporter": 10_000}
"""Of resident memory. What is over is let go; the rest is room that the allocator takes step by step, a table of the
interpreter among it."""
TRAINING = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
time.sleep(1)
library.start(1, 20)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="trainprobe-churn-") as name:
        fake_torch.built(Path(name))
        yield Path(name)


class Churn:
    """Trainings that come and go, each with a script of its own."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._running: list[subprocess.Popen[bytes]] = []
        self.begun = 0

    def go_on(self) -> None:
        for process in [one for one in self._running if one.poll() is not None]:
            self._running.remove(process)
            shutil.rmtree(str(process.args[1].parent))  # type: ignore[index,union-attr]
        while len(self._running) < AT_ONCE:
            self.begun += 1
            folder = self._place / f"run{self.begun}"
            folder.mkdir()
            script = folder / f"train{self.begun}.py"
            script.write_text(TRAINING)
            lasts = 2 + self.begun % (LONGEST_SECONDS - 1)
            command = ["/usr/bin/python3", script, str(self._place / fake_torch.NAME), str(lasts)]
            self._running.append(subprocess.Popen(command, cwd=folder))

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.mark.timeout(int(SECONDS) + 120)
def test_neither_program_grows_with_the_runs_that_have_ended(tmp_path: Path, place: Path) -> None:
    churn = Churn(place)
    samples: dict[str, list[tuple[float, float]]] = {"daemon": [], "exporter": []}
    files: dict[str, list[int]] = {"daemon": [], "exporter": []}
    with Daemon(tmp_path) as daemon, Exporter(tmp_path, daemon.directory / "report.json") as exporter:
        (tmp_path / "exporter.yaml").write_text(LINGER)
        exporter.process.send_signal(signal.SIGHUP)
        began = time.monotonic()
        seen: set[str] = set()
        try:
            while (lasted := time.monotonic() - began) < SECONDS:
                churn.go_on()
                time.sleep(SCRAPE_SECONDS)
                exporter.get("/metrics")
                exporter.get(f"/api/v1/report?token={exporter.token()}")
                seen |= {run["run"] for run in daemon.report()["runs"]}
                for name, process in (("daemon", daemon.process), ("exporter", exporter.process)):
                    if lasted >= WARM_UP * SECONDS:
                        samples[name].append((len(seen), programs.resident(process.pid)))
                        files[name].append(len(os.listdir(f"/proc/{process.pid}/fd")))
        finally:
            churn.end()
        assert daemon.process.poll() is None
        assert exporter.process.poll() is None
    grown = {name: rise(of) for name, of in samples.items()}
    for name, of in samples.items():
        (first, begin), (last, end) = of[0], of[-1]
        print(
            f"{name}: {begin / 1e6:.2f} MB after {first:.0f} runs, {end / 1e6:.2f} MB after {last:.0f},"
            f" {grown[name]:.0f} bytes a run, {files[name][0]} then {files[name][-1]} descriptors"
        )
    assert len(seen) > 0.8 * churn.begun
    for name in samples:
        assert grown[name] <= BYTES_PER_RUN[name]
        assert files[name][-1] <= files[name][0] + 8
