"""torchrun: two ranks over gloo. The first one saves, has the clock and carries the faults out."""

from __future__ import annotations

import os
import sys

import torch
from clock import Job, Net, loss_of
from torch import distributed
from torch.distributed import run
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    rank = int(os.environ["RANK"])
    if rank:
        sys.argv[sys.argv.index("--truth") + 1] += f".rank{rank}"
    job = Job()
    plan = job.plan
    distributed.init_process_group("gloo")
    data = job.held_out()
    loader = DataLoader(data, plan["batch"], sampler=DistributedSampler(data, shuffle=False))
    model = DistributedDataParallel(Net(plan), forward_sync_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    save = job.clocked(torch.save, "checkpoint")
    for number, (values, labels) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss_of(model, values, labels).backward()
        optimizer.step()
        if rank:
            continue
        job.faults(model.module)
        if number % plan.get("save_every", number + 1) == 0:
            save(model.module.state_dict(), f"{number}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        run.main(["--standalone", "--nproc-per-node", "2", __file__, *sys.argv[1:]])
