"""torch.compile on the CPU with real compilers: the first compile is a phase, each later one is lost time."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe

SCRIPT = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
step = torch.compile(model, dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for number in range(100):
    begun = time.monotonic()
    optimizer.zero_grad()
    step(torch.randn(40 if number == int(sys.argv[1]) else 16, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
    if number == int(sys.argv[1]):
        print(time.monotonic() - begun)
"""


@pytest.mark.timeout(200)
def test_a_batch_of_another_size_is_compiled_for_and_lost(tmp_path: Path, torch_python: str, seed: int) -> None:
    number = random.Random(seed).randrange(50, 80)
    script, report = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(SCRIPT)
    cache = tmp_path / "cache"
    command = trainprobe("run", "-o", str(report), "--", torch_python, str(script), str(number))
    more = environment(TORCHINDUCTOR_CACHE_DIR=str(cache))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, env=more, check=True)
    (run,) = json.loads(report.read_text())["runs"]
    (rank,) = run["ranks"]
    (stall,) = rank["stalls"]
    assert (stall["cause"], stall["first_step"], stall["steps"]) == ("recompile", number, 1)
    assert stall["seconds"] == pytest.approx(float(ended.stdout) - rank["steps"]["median_seconds"], rel=0.1)
    assert rank["verdict"]["cause"] == "recompile"
    assert rank["checkpoints"] == []
    phases = {span["phase"] for span in rank["phases"]}
    assert {"startup", "compile"} <= phases
