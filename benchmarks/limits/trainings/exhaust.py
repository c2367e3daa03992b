"""A training that uses something up, a little more with each step."""

from __future__ import annotations

import argparse
import os
import resource
import threading
import time
from collections import deque
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAGE = 4096


class Samples(Dataset[Any]):
    """``late``: from this item on one takes ``late_seconds``, in which a worker looks for nobody."""

    def __init__(self, width: int, late: int, late_seconds: float) -> None:
        self.width, self.late, self.late_seconds = width, late, late_seconds

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        if self.late and index >= self.late:
            time.sleep(self.late_seconds)
        return torch.randn(self.width), index % 2


class Memory:
    """Memory that is kept: looked at again now and then, or only ever more of it."""

    def __init__(self, held: int, touched: int, fresh: int) -> None:
        self.held = memoryview(incompressible(held))
        self.touched, self.fresh = touched, fresh
        self.place = 0
        self.bursts: deque[bytearray] = deque(maxlen=3)

    def step(self) -> None:
        """The next part of what was there from the start, and some more of which the oldest is given back."""
        for _ in range(0, self.touched, PAGE):
            self.held[self.place] = 1
            self.place = (self.place + PAGE) % len(self.held)
        if self.fresh:
            self.bursts.append(incompressible(self.fresh))


def incompressible(size: int) -> bytearray:
    """Pages that swap in memory cannot make smaller; made about as fast as memory is copied."""
    return bytearray(os.urandom(PAGE)) * (size // PAGE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.03)
    parser.add_argument("--leak-bytes", type=int, default=0)
    parser.add_argument("--leak-steps", type=int, default=1 << 62, help="the first ones; then no more")
    parser.add_argument("--keep", action="store_true", help="keep the batches")
    parser.add_argument("--descriptors", type=int, default=0, help="RLIMIT_NOFILE")
    parser.add_argument("--save", default="", help="directory for a checkpoint every --every steps")
    parser.add_argument("--save-bytes", type=int, default=0)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--threads", action="store_true", help="each step starts one that goes on")
    parser.add_argument("--hold-bytes", type=int, default=0, help="of memory, from the start")
    parser.add_argument("--touch-bytes", type=int, default=0, help="of these, every --every steps from --first on")
    parser.add_argument("--fresh-bytes", type=int, default=0, help="of new memory, at the same steps")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--late-item", type=int, default=0, help="from this one on a sample takes --late-seconds")
    parser.add_argument("--late-seconds", type=float, default=0.0)
    wanted = parser.parse_args()
    if wanted.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted.descriptors, wanted.descriptors))
    torch.set_num_threads(1)
    model = nn.Linear(wanted.width, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Samples(wanted.width, wanted.late_item, wanted.late_seconds), wanted.batch, num_workers=wanted.workers,
        prefetch_factor=wanted.prefetch if wanted.workers else None,
    )  # fmt: skip
    kept: list[Any] = []
    memory: Memory | None = None
    for step, (values, labels) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(values), labels).backward()
        optimizer.step()
        if wanted.leak_bytes and step < wanted.leak_steps:
            kept.append(bytearray(b"x") * wanted.leak_bytes)
        if wanted.keep:
            kept.append((values, labels))
        if wanted.threads:
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        if memory is None:  # workers, which have been forked by now, have no part in it
            memory = Memory(wanted.hold_bytes, wanted.touch_bytes, wanted.fresh_bytes)
        if step >= wanted.first and step % wanted.every == 0:
            memory.step()
        if wanted.save and step % wanted.every == wanted.every - 1:
            torch.save({"extra": torch.zeros(wanted.save_bytes // 4)}, f"{wanted.save}/step-{step}.pt")
        time.sleep(wanted.pause)
        if step + 1 == wanted.steps:
            break


if __name__ == "__main__":
    main()
