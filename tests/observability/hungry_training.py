"""A training that takes more memory than it has: it grows steadily, or goes again and again through swapped memory.

Usage: hungry_training.py SECONDS grow=BYTES_PER_SECOND | hungry_training.py SECONDS touch=BYTES   Needs torch.
"""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

PAGE = 4096
PART = 64 << 20  # gone through in a step


def main() -> None:
    seconds, (appetite, amount) = float(sys.argv[1]), sys.argv[2].split("=")
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(4096, 128)), batch_size=64)
    held = bytearray(int(amount)) if appetite == "touch" else bytearray()
    grown: list[bytes] = []
    begun, place = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            if appetite == "grow":
                while sum(map(len, grown)) < passed * int(amount):
                    grown.append(b"x" * (1 << 20))
            else:
                for at in range(place, min(place + PART, len(held)), PAGE):
                    held[at] = (held[at] + 1) % 256
                place = (place + PART) % max(len(held), 1)
            time.sleep(0.05)
            passed = time.monotonic() - begun
            if passed > seconds:
                break


if __name__ == "__main__":
    main()
