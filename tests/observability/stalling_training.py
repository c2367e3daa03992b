"""A training that stalls on purpose, and says on standard output when it did, by its own clock. Needs torch.

Usage: stalling_training.py DIRECTORY SECONDS CAUSE=LENGTH …   (the stalls come in this order, evenly spread)
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset


def checkpoint(path: Path, seconds: float) -> None:
    """Writes and syncs until the time is over."""
    until = time.monotonic() + seconds
    with path.open("wb") as file:
        while time.monotonic() < until:
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())


def cpu_bound(_: Path, seconds: float) -> None:
    """Python that nobody asked for."""
    until = time.monotonic() + seconds
    total = 0
    while time.monotonic() < until:
        total += sum(range(1000))


def main() -> None:
    directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
    plan = [argument.split("=") for argument in sys.argv[3:]]
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(4096, 256)), batch_size=64)
    begun, step, done = time.monotonic(), 0, 0
    while time.monotonic() < begun + seconds:
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            step += 1
            time.sleep(0.02)
            if done < len(plan) and time.monotonic() > begun + seconds * (done + 1) / (len(plan) + 1):
                cause, length = plan[done]
                done += 1
                start = time.time()
                {"checkpoint": checkpoint, "cpu_bound": cpu_bound}[cause](directory / f"step{step}.pt", float(length))
                print(json.dumps({"cause": cause, "start": start, "end": time.time()}), flush=True)
            if time.monotonic() > begun + seconds:
                break
    print(json.dumps({"steps": step}), flush=True)


if __name__ == "__main__":
    main()
