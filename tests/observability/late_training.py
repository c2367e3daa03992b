"""A distributed training of which one rank is made late, under torchrun. Needs torch.

Usage: late_training.py DIRECTORY FAULT SECONDS

The rank whose LOCAL_RANK is $LATE_LOCAL_RANK is late once DIRECTORY/late exists; it writes its number to
DIRECTORY/rank. All end after SECONDS, or once DIRECTORY/stop exists. ``none``: no fault, and no other ranks are needed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SIZE = 384
PACE_SECONDS = 0.03
SLOW_SAMPLES_SECONDS = 0.15
SAVE_SECONDS = 1.0
PARAMETERS = b"\1" * (16 << 20)


class Samples(Dataset[torch.Tensor]):
    """Random ones, that come late while ``slow`` says so."""

    slow = False

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, _: int) -> torch.Tensor:
        if self.slow:
            time.sleep(SLOW_SAMPLES_SECONDS / 8)
        return torch.randn(SIZE)


def save(path: Path) -> None:
    """A checkpoint on a slow disk: writes and syncs until the time is over."""
    until = time.monotonic() + SAVE_SECONDS
    with path.open("wb") as file:
        while time.monotonic() < until:
            file.seek(0)
            file.write(PARAMETERS)
            file.flush()
            os.fsync(file.fileno())


def compute() -> None:
    """As much of a CPU as the others sleep: a rank that only sleeps is given the CPU before those who use all of it."""
    until = time.thread_time() + PACE_SECONDS
    while time.thread_time() < until:
        torch.ones(SIZE).sum()


def main() -> None:
    directory, fault, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    rank, is_late = int(os.environ["RANK"]), os.environ.get("LATE_LOCAL_RANK") == os.environ["LOCAL_RANK"]
    os.sched_setaffinity(0, {os.cpu_count() - 1 if is_late and fault == "hog" else 0} if fault == "hog" else {0, 1})
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    if is_late:
        (directory / "rank").write_text(str(rank))
    model = torch.nn.Sequential(*[torch.nn.Linear(SIZE, SIZE) for _ in range(4)])
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pace = compute if is_late and fault == "hog" else lambda: time.sleep(PACE_SECONDS)
    samples, stop, begun = Samples(), torch.zeros(1), time.monotonic()
    for step, batch in enumerate(DataLoader(samples, batch_size=8)):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        pace()
        planted = is_late and (directory / "late").exists()
        samples.slow = planted and fault == "loader"
        if planted and fault == "checkpoint" and step % 5 == 0:
            save(directory / "model.pt")
        if step % 10 == 9:
            stop[0] = float((directory / "stop").exists() or time.monotonic() - begun > seconds)
            distributed.all_reduce(stop)
            if stop.item():
                break
    distributed.barrier()
    os._exit(0)  # gloo's threads may abort the process that takes their group down


if __name__ == "__main__":
    main()
