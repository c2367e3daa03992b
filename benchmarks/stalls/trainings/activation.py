"""Activation checkpointing: the forward is repeated in the backward, reentrant (a backward in the backward) or not."""

from __future__ import annotations

import torch
from models import perceptron
from planted import begin
from samples import Samples
from torch.nn import functional
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.data import DataLoader
from truth_clock import now


def main() -> None:
    plan, truth, faults = begin()
    reentrant = plan.get("variant") == "reentrant"
    loader = DataLoader(Samples(plan, truth.path, plan["steps"]), batch_size=plan["batch"], num_workers=plan["workers"])
    model = perceptron(plan["width"])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-3)
    step = 0
    mark = now()
    for values, labels in loader:
        fetch = now() - mark
        optimizer.zero_grad()
        output = checkpoint_sequential(model, 3, values.requires_grad_(), use_reentrant=reentrant)
        functional.cross_entropy(output, labels).backward()
        stepping = now()
        optimizer.step()
        faults.at("after", step, model)
        end = now()
        truth.iteration(step, mark, stepping, end, fetch)
        mark = end
        step += 1
    truth.count(optimizer_steps=step)
    faults.close()


if __name__ == "__main__":
    main()
