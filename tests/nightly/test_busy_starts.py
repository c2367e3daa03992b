"""Trainings that begin beside busy processors: the loader is interrupted while it maps libtorch, and all have steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe

STARTS = int(os.environ.get("TRAINPROBE_STARTS", "100"))
STEPS = 30
SCRIPT = f"""
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({STEPS}):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def busy() -> Iterator[None]:
    """Two processes for each processor that never wait."""
    hogs = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.timeout(60 * STARTS)
@pytest.mark.usefixtures("busy")
def test_every_start_beside_busy_processors_has_its_steps(tmp_path: Path, torch_python: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def start(number: int) -> tuple[int, str]:
        """Steps that were counted, and why there were none."""
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            report = Path(folder, "report.json")
            command = trainprobe("run", "-o", str(report), "--", torch_python, str(script))
            subprocess.run(command, capture_output=True, timeout=300, env=environment(), check=True)
            (run,) = json.loads(report.read_text())["runs"]
            steps = run["ranks"][0]["steps"]
            return steps["count"], steps["reason"]

    with ThreadPoolExecutor(4 * (os.cpu_count() or 1)) as pool:  # they are in each other's way, too
        outcomes = list(pool.map(start, range(STARTS)))
    assert [outcome for outcome in outcomes if outcome != (STEPS, "")] == []
