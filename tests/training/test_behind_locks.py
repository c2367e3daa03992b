"""Trainings that wait at a lock, though it is data that they wait for."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe

PROGRAM = Path(__file__).with_name("locked_training.py")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("source", "told"), [("thread", "in decode (locked_training.py:"), ("pool", "workers spent")])
def test_whoever_makes_the_batch_behind_the_lock_is_told(
    tmp_path: Path, torch_python: str, source: str, told: str
) -> None:
    seconds = random.uniform(0.9, 1.4)
    report = tmp_path / "report.json"
    command = trainprobe("run", "-o", str(report), "--", torch_python, str(PROGRAM), source, str(seconds))
    subprocess.run(command, check=True, capture_output=True, timeout=100, env=environment(), stdin=subprocess.DEVNULL)
    (rank,) = json.loads(report.read_text())["runs"][0]["ranks"]
    assert rank["verdict"]["cause"] == "data_cpu", (rank["verdict"], rank["stalls"])
    stalls = [one for one in rank["stalls"] if one["cause"] == "data_cpu"]
    assert len(stalls) == 3
    for stall in stalls:  # up to four batches are made ahead meanwhile
        assert seconds - 0.25 <= stall["seconds"] <= seconds + 0.1
    assert any(told in stall["summary"] for stall in stalls), [stall["summary"] for stall in stalls]
