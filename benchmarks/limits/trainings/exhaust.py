"""A training that uses something up, a little more with each step."""

from __future__ import annotations

import argparse
import resource
import threading
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, width: int) -> None:
        self.width = width

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        return torch.randn(self.width), index % 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.03)
    parser.add_argument("--leak-bytes", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="keep the batches")
    parser.add_argument("--descriptors", type=int, default=0, help="RLIMIT_NOFILE")
    parser.add_argument("--save", default="", help="directory for a checkpoint every --every steps")
    parser.add_argument("--save-bytes", type=int, default=0)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--threads", action="store_true", help="each step starts one that goes on")
    wanted = parser.parse_args()
    if wanted.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted.descriptors, wanted.descriptors))
    torch.set_num_threads(1)
    model = nn.Linear(wanted.width, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Samples(wanted.width), wanted.batch, num_workers=wanted.workers,
        prefetch_factor=wanted.prefetch if wanted.workers else None,
    )  # fmt: skip
    kept: list[Any] = []
    for step, (values, labels) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(values), labels).backward()
        optimizer.step()
        if wanted.leak_bytes:
            kept.append(bytearray(b"x") * wanted.leak_bytes)
        if wanted.keep:
            kept.append((values, labels))
        if wanted.threads:
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        if wanted.save and step % wanted.every == wanted.every - 1:
            torch.save({"extra": torch.zeros(wanted.save_bytes // 4)}, f"{wanted.save}/step-{step}.pt")
        time.sleep(wanted.pause)
        if step + 1 == wanted.steps:
            break


if __name__ == "__main__":
    main()
