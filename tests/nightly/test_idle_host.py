"""A daemon on a host where nobody trains lets go of what costs bystanders, and misses nothing of the next training."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.programs import Daemon
from trainprobe.bpf.attach.attachments import IDLE_NS

SAVES, EVERY = 6, 10
SCRIPT = f"""
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({SAVES * EVERY}):
    if step % {EVERY} == 0:
        torch.save(model.state_dict(), f"{{sys.argv[1]}}/{{step}}.pth")
    optimizer.zero_grad()
    model(torch.randn(256, 512)).sum().backward()
    optimizer.step()
"""


@pytest.mark.timeout(600)
def test_the_first_training_after_an_idle_time_has_its_first_save(tmp_path: Path, torch_python: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with Daemon(tmp_path) as daemon:
        attached = tracepoints(daemon.process.pid)
        end = time.monotonic() + 60 + 4 * IDLE_NS / 1e9  # a Python that starts meanwhile, somebody else's, puts it off
        while tracepoints(daemon.process.pid) > 16:
            assert time.monotonic() < end, f"{tracepoints(daemon.process.pid)} of {attached} are left"
            time.sleep(1)
        job = subprocess.Popen([torch_python, str(script), str(tmp_path)])
        assert job.wait(60) == 0
        time.sleep(2)
        found = daemon.rank_of(job.pid)
    assert found is not None
    _, rank = found
    assert rank["steps"]["count"] == SAVES * EVERY
    assert {Path(one["path"]).name for one in rank["checkpoints"]} == {f"{EVERY * n}.pth" for n in range(SAVES)}
    assert attached > 60


def tracepoints(pid: int) -> int:
    """Perf events that a process holds."""
    folder = f"/proc/{pid}/fd"
    return sum(os.readlink(f"{folder}/{name}") == "anon_inode:[perf_event]" for name in os.listdir(folder))
