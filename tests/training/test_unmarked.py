"""A training without PyTorch: its steps by its calls of CUDA, and without those the rhythm of its ledger's waits."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from benchmarks.limits.fake_cuda import CALLERS
from benchmarks.programs import ROOT, environment, trainprobe

TRAINING = Path(__file__).with_name("unmarked_training.py")
LOOP = ROOT / "tests" / "kernel" / "programs" / "loop_gpu.py"
CAUSES = {"save": "checkpoint", "ask": "network"}
FOUND = 10.0
"""Seconds until the libraries are looked for again, and the call that comes once a step is known."""


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


@pytest.mark.timeout(120)
def test_steps_and_stalls_by_the_calls_of_cuda(cuda_libraries: Path, tmp_path: Path) -> None:
    """Counted but for the first seconds, and each stall with its cause and its seconds."""
    library, kind = random.choice(list(CALLERS)), random.choice(["waits", "graphs"])
    plants = {
        str(step): [what, random.uniform(0.5, 1.2)]
        for step, what in zip((700, 800, 900), random.sample(["save", "ask", "ask"], 3))
    }
    asked = {"folder": str(cuda_libraries), "library": library, "caller": CALLERS[library], "kind": kind}
    asked |= {"steps": 1000, "work": 0.025, "plants": plants, "gate": False}
    report = tmp_path / "report.json"
    command = [sys.executable, "-S", str(LOOP), json.dumps(asked)]
    ended = subprocess.run(
        trainprobe("run", "-o", str(report), "--", *command), env=environment(), cwd=tmp_path, capture_output=True,
        text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    truth = json.loads(ended.stdout.splitlines()[-1])
    (rank,) = json.loads(report.read_text())["runs"][0]["ranks"]
    steps, begins = rank["steps"], truth["begins"]
    assert steps["source"] == "gpu", steps
    missed = sum(at < begins[0] + FOUND for at in begins)
    assert 1000 - missed <= steps["count"] <= 1000, (kind, library, steps)
    assert steps["median_seconds"] == pytest.approx(median(b - a for a, b in pairwise(begins[missed:])), rel=0.05)
    assert len(truth["planted"]) == 3
    for planted in truth["planted"]:
        seconds = planted["end"] - planted["start"]
        near = [s for s in rank["stalls"] if s["start"] < planted["end"] and (s["end"] or 0) > planted["start"]]
        (told,) = [stall for stall in near if stall["cause"] == CAUSES[planted["what"]]]
        assert told["seconds"] == pytest.approx(seconds, rel=0.1, abs=0.15), (planted, rank["stalls"])
    assert set(rank["lost"]) <= {*CAUSES.values(), "cpu_contention", "unknown"}, rank["lost"]
