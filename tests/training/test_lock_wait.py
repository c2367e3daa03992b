"""Real locks that another process holds: by flock(2), by fcntl(2), and as files, of torch's builds and of a script."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import threading
import time
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe

FILES = ("baton", "exists", "excl")
"""Waits for a file that is there as long as it is locked."""
SCRIPT = """
import fcntl, os, sys, time, torch
from torch.utils.file_baton import FileBaton
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

def flock():
    with open("flock.lock", "w") as file: fcntl.flock(file, fcntl.LOCK_EX)

def record_lock():
    with open("record.lock", "w") as file: fcntl.lockf(file, fcntl.LOCK_EX)

def baton():
    FileBaton("baton.lock").wait()

def exists():
    while os.path.exists("exists.lock"): time.sleep(0.1)

def excl():
    while True:
        try: return os.close(os.open("excl.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError: time.sleep(0.1)

waits = {40: flock, 60: record_lock, 80: baton, 100: exists, 120: excl}
for number in range(140):
    optimizer.zero_grad()
    model(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
    if wait := waits.get(number):
        open(f"asked-{wait.__name__}", "w").close()
        begun = time.monotonic()
        wait()
        print(time.monotonic() - begun, flush=True)
"""


@pytest.mark.timeout(120)
def test_each_lock_is_named_with_its_holder(tmp_path: Path, torch_python: str, seed: int) -> None:
    draw = random.Random(seed)
    lengths = {name: draw.uniform(1.2, 2.4) for name in ("flock", "record_lock", *FILES)}
    (tmp_path / "train.py").write_text(SCRIPT)
    for name in FILES:
        (tmp_path / f"{name}.lock").touch()
    ended = threading.Event()

    def release(name: str, file: int) -> None:
        """Some time after the training asked for it."""
        while not (tmp_path / f"asked-{name}").exists() and not ended.wait(0.01):
            pass
        time.sleep(lengths[name])
        os.close(file)
        if name in FILES:
            (tmp_path / f"{name}.lock").unlink()

    holders = []
    for name, lock in (("flock", fcntl.flock), ("record_lock", fcntl.lockf), *((one, None) for one in FILES)):
        file = os.open(tmp_path / f"{name.partition('_')[0]}.lock", os.O_WRONLY | os.O_CREAT)
        if lock is not None:
            lock(file, fcntl.LOCK_EX)
        holders.append(threading.Thread(target=release, args=(name, file)))
        holders[-1].start()
    try:
        report = tmp_path / "report.json"
        command = trainprobe("run", "-o", str(report), "--", torch_python, "train.py")
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=90, env=environment(), check=True
        )
    finally:
        ended.set()
        for holder in holders:
            holder.join()
    (run,) = json.loads(report.read_text())["runs"]
    stalls = [stall for stall in run["ranks"][0]["stalls"] if stall["cause"] != "cpu_contention"]
    assert [stall["cause"] for stall in stalls] == ["lock_wait"] * 5
    for stall, waited in zip(stalls, done.stdout.split(), strict=True):
        assert stall["seconds"] == pytest.approx(float(waited), rel=0.05, abs=0.05)
    by_flock, by_fcntl, by_baton, *by_loop = (stall["summary"] for stall in stalls)
    assert f"the lock {tmp_path}/flock.lock, which process {os.getpid()} (" in by_flock
    assert f"the lock {tmp_path}/record.lock, which process {os.getpid()} (" in by_fcntl
    assert f"the lock {tmp_path}/baton.lock, a file that is the lock as long as it exists" in by_baton
    for name, summary in zip(("exists", "excl"), by_loop, strict=True):
        assert f"the lock {tmp_path}/{name}.lock, a file that is the lock as long as it exists" in summary


LOADER = """
import fcntl, time, torch
from filelock import FileLock
torch.set_num_threads(1)

def by_call():
    with open("by_call.lock", "w") as file: fcntl.flock(file, fcntl.LOCK_EX)

def by_loop():
    with FileLock("by_loop.lock"): pass

class Samples(torch.utils.data.Dataset):
    def __len__(self): return 140

    def __getitem__(self, index):
        time.sleep(0.01)
        if wait := {50: by_call, 90: by_loop}.get(index):
            open(f"asked-{wait.__name__}", "w").close()
            wait()
        return torch.randn(64)

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
last, longest = None, {}
for number, batch in enumerate(torch.utils.data.DataLoader(Samples(), 1, num_workers=1)):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
    now = time.monotonic()
    longest[number] = now - (last or now)
    last = now
print(max(longest[number] for number in range(40, 60)), max(longest[number] for number in range(80, 100)))
"""


@pytest.mark.timeout(120)
def test_a_worker_at_a_files_lock_is_told_with_the_lock(tmp_path: Path, torch_python: str, seed: int) -> None:
    draw = random.Random(seed)
    (tmp_path / "train.py").write_text(LOADER)
    ended = threading.Event()

    def release(name: str, file: int, seconds: float) -> None:
        while not (tmp_path / f"asked-{name}").exists() and not ended.wait(0.01):
            pass
        time.sleep(seconds)
        os.close(file)

    holders = []
    for name in ("by_call", "by_loop"):
        file = os.open(tmp_path / f"{name}.lock", os.O_WRONLY | os.O_CREAT)
        fcntl.flock(file, fcntl.LOCK_EX)
        holders.append(threading.Thread(target=release, args=(name, file, draw.uniform(1.6, 3.2))))
        holders[-1].start()
    try:
        command = trainprobe("run", "-o", str(tmp_path / "report.json"), "--", torch_python, "train.py")
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=90, env=environment(), check=True
        )
    finally:
        ended.set()
        for holder in holders:
            holder.join()
    (run,) = json.loads((tmp_path / "report.json").read_text())["runs"]
    stalls = [stall for stall in run["ranks"][0]["stalls"] if stall["seconds"] > 1]
    assert [stall["cause"] for stall in stalls] == ["lock_wait"] * 2
    for stall, step in zip(stalls, done.stdout.split(), strict=True):
        assert stall["seconds"] == pytest.approx(float(step), rel=0.05, abs=0.1)
    by_call, by_loop = (stall["summary"] for stall in stalls)
    assert f"for the lock {tmp_path}/by_call.lock, which process {os.getpid()} (" in by_call
    assert "for a lock file, in by_loop (train.py:10)" in by_loop
