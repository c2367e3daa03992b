"""Gradient accumulation: several small batches and backwards for each step of the optimiser."""

from __future__ import annotations

import torch
from models import perceptron
from planted import begin
from samples import Samples
from torch import nn
from torch.utils.data import DataLoader
from truth_clock import now


def main() -> None:
    plan, truth, faults = begin()
    pieces = plan.get("accumulate", 4)
    dataset = Samples(plan, truth.path, plan["steps"] * pieces)
    batches = iter(DataLoader(dataset, batch_size=plan["batch"], num_workers=plan["workers"]))
    model = perceptron(plan["width"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()
    mark = now()
    for step in range(plan["steps"]):
        fetch = 0
        for _ in range(pieces):
            asked = now()
            values, labels = next(batches)
            fetch += now() - asked
            (loss_of(model(values), labels) / pieces).backward()
        stepping = now()
        optimizer.step()
        optimizer.zero_grad()
        faults.at("after", step, model)
        end = now()
        truth.iteration(step, mark, stepping, end, fetch)
        mark = end
    truth.count(optimizer_steps=plan["steps"])
    faults.close()


if __name__ == "__main__":
    main()
