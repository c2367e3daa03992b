"""One rank of a data-parallel training over gloo. One rank carries the planted faults out."""

from __future__ import annotations

import os

import torch
from models import perceptron
from planted import begin
from samples import Samples
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from truth_clock import now


def main() -> None:
    rank = int(os.environ["RANK"])
    plan, truth, faults = begin()
    distributed.init_process_group("gloo")
    dataset = Samples(plan, truth.path, plan["steps"] * distributed.get_world_size())
    loader = DataLoader(
        dataset,
        batch_size=plan["batch"],
        num_workers=plan["workers"],
        sampler=DistributedSampler(dataset, shuffle=False),
    )
    model = DistributedDataParallel(perceptron(plan["width"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mark, unblocked = now(), truth.unblocked()
    for step, (values, labels) in enumerate(loader):
        fetch, fetch_unblocked = now() - mark, truth.unblocked() - unblocked
        optimizer.zero_grad()
        functional.cross_entropy(model(values), labels).backward()
        stepping = now()
        optimizer.step()
        if rank == plan.get("faulty_rank", 0):
            faults.at("after", step, model.module)
        end = now()
        truth.iteration(step, mark, stepping, end, fetch, fetch_unblocked)
        mark, unblocked = end, truth.unblocked()
    truth.count(optimizer_steps=plan["steps"])
    distributed.barrier()
    distributed.destroy_process_group()
    faults.close()


if __name__ == "__main__":
    main()
