"""A training without DataLoader: ``locked_training.py thread|pool SECONDS``. Each 60th batch takes so long to make.

Batches come from a thread of the training or from a pool of processes; at both the training waits at a lock.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy
import torch

SHAPE, EVERY, STEPS = (32, 128), 60, 200


def decode(number: int, seconds: float) -> numpy.ndarray:
    end = time.monotonic() + seconds if number % EVERY == EVERY - 1 else 0.0
    square = numpy.ones((300, 300))
    while time.monotonic() < end:
        square @ square
    return numpy.ones(SHAPE, numpy.float32)


def by_thread(seconds: float) -> Iterator[numpy.ndarray]:
    batches: queue.Queue[numpy.ndarray] = queue.Queue(4)

    def load() -> None:
        for number in range(STEPS):
            batches.put(decode(number, seconds))

    threading.Thread(target=load, daemon=True).start()
    for _ in range(STEPS):
        yield batches.get()


def by_pool(seconds: float) -> Iterator[numpy.ndarray]:
    with ProcessPoolExecutor(2) as pool:
        asked = [pool.submit(decode, number, seconds) for number in range(4)]
        for number in range(STEPS):
            yield asked.pop(0).result()
            asked.append(pool.submit(decode, number + 4 if number + 4 < STEPS else 0, seconds))


def main() -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(SHAPE[1], SHAPE[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = {"thread": by_thread, "pool": by_pool}[sys.argv[1]](float(sys.argv[2]))
    for batch in batches:
        optimizer.zero_grad()
        model(torch.from_numpy(batch)).square().mean().backward()
        optimizer.step()
        time.sleep(0.03)


if __name__ == "__main__":
    main()
