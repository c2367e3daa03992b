"""Seconds of one training step for a width and a batch, so that a step can be made to take what is wanted."""

from __future__ import annotations

import sys
import time

import torch
from models import perceptron
from samples import FEATURES


def main() -> None:
    torch.set_num_threads(1)
    model, values = perceptron(int(sys.argv[1])), torch.randn(int(sys.argv[2]), FEATURES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    seconds = []
    for _ in range(20):
        begin = time.monotonic()
        optimizer.zero_grad()
        model(values).square().mean().backward()
        optimizer.step()
        seconds.append(time.monotonic() - begin)
    print(sorted(seconds)[len(seconds) // 2])


if __name__ == "__main__":
    main()
