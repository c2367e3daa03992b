"""A training whose settings are its argument, JSON; prints how long its steps took, by its own clock."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 256
BATCH = 8


def sort(times: int) -> None:
    """Work as decoding does it: outside of the interpreter, the same amount each time."""
    block = np.random.default_rng(1).standard_normal(20_000)
    for _ in range(times):
        np.sort(block)


class Samples(Dataset[Any]):
    """A worker keeps ``private`` bytes of its own, as a cache does, and uses all of it.

    Items are collated into shared memory, as PyTorch does by default: batches that were made on a worker's heap would
    leave holes there, 128 batches long (torch keeps so many references to what was sent).
    """

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.cache: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return BATCH * int(self.wanted["steps"])

    def __getitem__(self, index: int) -> Any:
        if self.cache is None:
            self.cache = np.random.default_rng(index).integers(0, 255, self.wanted["private"], dtype=np.uint8)
        self.cache[::4096] += 1
        sort(self.wanted["batch_work"] // BATCH)
        return torch.randn(self.wanted["batch_bytes"] // 4 // FEATURES // BATCH, FEATURES)


def calibrate() -> None:
    """Prints the seconds of one piece of a batch's work and of one of a step's own."""
    matrix = torch.randn(256, 256)
    times = []
    for work in (lambda: sort(100), lambda: [(matrix @ matrix).clamp(-1, 1) for _ in range(100)]):
        work()
        begin = time.monotonic()
        work()
        times.append((time.monotonic() - begin) / 100)
    print(json.dumps(times))


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) < 2:
        calibrate()
        return
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 10))
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    extra = torch.zeros(wanted["save_bytes"] // 4)
    loader = DataLoader(Samples(wanted), batch_size=BATCH, num_workers=wanted["workers"])
    matrix = torch.randn(256, 256)
    folder = wanted["directory"]
    with open(os.path.join(folder, "train.log"), "a", buffering=1) as log:
        begin = time.monotonic()
        for step, data in enumerate(loader):
            optimiser.zero_grad()
            loss = model(data[:, :2]).square().mean()
            for _ in range(wanted["own_work"]):
                matrix = (matrix @ matrix).clamp(-1, 1)
            loss.backward()
            optimiser.step()
            if wanted["log_every"] and step % wanted["log_every"] == 0:
                lines = range(wanted["log_lines"])
                log.writelines(f"step {step} tensor {number} norm {step * number}\n" for number in lines)
            if wanted["save_every"] and step % wanted["save_every"] == wanted["save_every"] - 1:
                path = os.path.join(folder, "last.pt")
                with open(f"{path}.tmp", "wb") as file:
                    torch.save({"model": model.state_dict(), "extra": extra}, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(f"{path}.tmp", path)
        print(json.dumps({"seconds": time.monotonic() - begin}), flush=True)


if __name__ == "__main__":
    main()
