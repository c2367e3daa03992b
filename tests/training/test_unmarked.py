"""A training without PyTorch has no steps to count: its waits are told by the rhythm of its ledger."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe

TRAINING = Path(__file__).with_name("unmarked_training.py")


@pytest.mark.nightly
@pytest.mark.timeout(150)
def test_waits_of_a_training_without_marks_are_told(torch_python: str, seed: int, tmp_path: Path) -> None:
    """Checkpoints and a server, each with its seconds; ordinary seconds are no stall."""
    report = tmp_path / "report.json"
    command = [torch_python, str(TRAINING), str(tmp_path), str(seed), "planted"]
    ended = subprocess.run(
        trainprobe("run", "-o", str(report), "--record", str(tmp_path / "recording.jsonl"), "--", *command),
        env=environment(OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=140, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    truth = json.loads((tmp_path / "truth.json").read_text())
    ranks = [rank for run in json.loads(report.read_text())["runs"] for rank in run["ranks"]]
    rank = next(rank for rank in ranks if rank["pid"] == truth["pid"])
    assert rank["steps"]["source"] == "rhythm", rank["steps"]
    told = rank["stalls"]
    for planted in truth["planted"]:
        if planted["seconds"] < 0.6:
            continue  # less than a rhythm of one second must tell
        near = [s for s in told if s["start"] < planted["end"] + 1.2 and (s["end"] or 0) > planted["start"] - 0.2]
        assert planted["cause"] in {stall["cause"] for stall in near}, (planted, told)
    spans = [(p["start"] - 1.3, p["end"] + 1.3) for p in truth["planted"]]
    false = [s for s in told if not any(a <= s["start"] <= b for a, b in spans)]
    assert false == [], truth
