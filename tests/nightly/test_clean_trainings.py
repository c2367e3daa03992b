"""Clean trainings on the CPU with threads of their own, and as two ranks: next to nothing is lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe
from benchmarks.stalls import quiet
from tests.contract.contradictions import contradictions

SCRIPT = """
import os, sys, time, torch
from torch import nn
def busy():
    queued = int(open("/proc/thread-self/schedstat").read().split()[1])
    return time.thread_time() + queued / 1e9
ranks = int(os.environ.get("WORLD_SIZE", 1))
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
values, labels = torch.randn(256 // ranks, 1024), torch.randint(10, (256 // ranks,))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
began = busy()
for _ in range(400):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(values), labels).backward()
    optimizer.step()
print(busy() - began, file=open(sys.argv[1] + "-" + os.environ.get("RANK", "0"), "w"))
if ranks > 1:
    torch.distributed.destroy_process_group()
"""
STEPS, ROOM = 400, 0.01


@pytest.mark.parametrize("case", ["1", "2", "4", "ddp"])
def test_a_clean_training_loses_next_to_nothing(case: str, tmp_path: Path, torch_python: str) -> None:
    """What other programs take meanwhile is their contention, and counts as no loss here. Nor does a rank's wait for
    one that really took longer for the same work, by its own clock: two processors may be unequally fast."""
    script, report = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(SCRIPT)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if case == "ddp" else []
    threads = {"OMP_NUM_THREADS": "1" if case == "ddp" else case, "GLOO_SOCKET_IFNAME": "lo"}
    clock = tmp_path / "busy"
    command = trainprobe("run", "-o", str(report), "--", torch_python, *launcher, str(script), str(clock))
    before = quiet.now()
    subprocess.run(command, timeout=280, env=environment() | threads, check=True, capture_output=True)
    others = quiet.others(before, quiet.now())
    told = json.loads(report.read_text())
    busy = {int(file.name.rpartition("-")[2]): float(file.read_text()) for file in tmp_path.glob("busy-*")}
    assert contradictions(told) == []
    for rank in told["runs"][0]["ranks"]:
        wall, lost = rank["wall_seconds"], rank["lost"]
        contention = lost.get("cpu_contention", 0.0)
        slower = max(busy.values()) - busy[rank["rank"] or 0]
        waited = min(lost.get("collective_wait", 0.0), slower)
        print(
            f"{case}: {wall:.1f} s, {rank['steps']['count']} steps, lost {lost}, "
            f"another rank busy for {slower:.2f} s more, others {others:.2f} cores"
        )
        assert rank["steps"]["count"] == STEPS
        if case == "ddp" and others > quiet.DISTURBED:
            pytest.skip(f"others used {others:.2f} cores: a rank that they delay is waited for")
        assert sum(lost.values()) - contention - waited < ROOM * wall, lost
        assert contention < (ROOM + others) * wall
