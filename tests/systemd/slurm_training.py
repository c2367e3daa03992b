"""One rank of a training under `srun`: steps with an all-reduce; rank 0 saves once, slowly. Needs torch.

Usage: slurm_training.py DIRECTORY SECONDS STALL
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def save(path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    with path.open("wb") as file:
        while time.monotonic() < until:
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())


def main() -> None:
    directory, seconds, stall = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    rank, ranks = int(os.environ.get("SLURM_PROCID", "0")), int(os.environ.get("SLURM_NTASKS", "1"))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("gloo")
    model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = int(seconds / 0.03)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, 128)).square().mean().backward()
        if ranks > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.025)
        if rank == 0 and step == steps * 2 // 3:
            save(directory / f"step{step}.pt", stall)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
