"""A training whose steps wait for their data, and that ends as it is told:
``python ending_training.py HOW STEPS HANG LATE``, the last two in seconds.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

FETCH, COMPUTE = 0.04, 0.01  # seconds
HOW, STEPS, HANG, LATE = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
LOADER = HOW == "hang"


def busy(seconds: float) -> None:
    """Compute."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


class Samples(Dataset[torch.Tensor]):
    """Slow ones; with workers the one after the last step never comes."""

    def __len__(self) -> int:
        return STEPS + 1 if LOADER else 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(3600.0 if LOADER and index == STEPS else FETCH)
        return torch.randn(8)


def upload() -> None:
    """As trackers send what is left of their files: by a thread, to $UPLOAD_TO (a port), which takes it slowly."""
    with socket.create_connection(("127.0.0.1", int(os.environ["UPLOAD_TO"]))) as connection:
        connection.sendall(bytes(int(os.environ["UPLOAD_BYTES"])))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


def upload_beside() -> None:
    """Waits for it."""
    thread = threading.Thread(target=upload)
    thread.start()
    thread.join()


def last() -> None:
    """What comes after the last step."""
    if HOW == "raises":
        raise ValueError("a planted exception")
    if HOW == "kills itself":
        os.kill(os.getpid(), signal.SIGTERM)
    if HOW == "plots":
        busy(LATE)
    if HOW == "uploads":
        atexit.register(upload_beside)
    if HOW == "uploads at exit":
        atexit.register(upload)
    if HOW == "uploads now":
        upload()
    if HOW == "uploads by a process":
        process = multiprocessing.get_context("fork").Process(target=upload)
        process.start()
        process.join()


def main() -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = {"num_workers": 1, "timeout": HANG} if LOADER else {}
    for step, batch in enumerate(DataLoader(Samples(), batch_size=1, **workers), 1):
        busy(COMPUTE)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        print(step, flush=True)
        if step == STEPS and not LOADER and HOW != "goes on":
            break
    last()


if __name__ == "__main__":
    main()
