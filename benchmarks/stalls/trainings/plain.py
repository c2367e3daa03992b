"""The loop as tutorials write it: a DataLoader, SGD, an epoch at a time."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator

import torch
from models import perceptron
from planted import begin
from samples import Samples
from torch import nn
from torch.utils.data import DataLoader
from truth_clock import now


def in_groups(loader: Iterable[list[torch.Tensor]], pieces: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Batches of several fetches each."""
    taken: list[list[torch.Tensor]] = []
    for fetched in loader:
        taken.append(fetched)
        if len(taken) == pieces:
            yield tuple(torch.cat(part) for part in zip(*taken)) if pieces > 1 else tuple(fetched)
            taken = []


LINE = b"x" * 63 + b"\n"


def main() -> None:
    plan, truth, faults = begin()
    steps, per_epoch = plan["steps"], plan.get("epoch_steps") or plan["steps"]
    pieces = plan.get("pieces", 1)  # fetches that the loop puts together to a batch
    dataset = Samples(plan, truth.path, per_epoch)
    loader = DataLoader(
        dataset,
        batch_size=plan["batch"] // pieces,
        num_workers=plan["workers"],
        multiprocessing_context=plan.get("context") if plan["workers"] else None,
        persistent_workers=bool(plan.get("persistent")),
    )
    model = perceptron(plan["width"])
    if plan.get("compile"):
        model.compile()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    truth.count_steps(optimizer)
    jitter = random.Random(plan["seed"])
    writes = plan.get("writes", 0)
    log = os.open(f"{plan['scratch']}/lines", os.O_WRONLY | os.O_CREAT, 0o600) if writes else -1
    step = 0
    mark = now()
    while step < steps:
        dataset.epoch = step // per_epoch
        for values, labels in in_groups(loader, pieces):
            fetch = now() - mark
            faults.at("before", step, model)
            if plan.get("jitter"):
                keep = int(len(values) * (1 - plan["jitter"] * jitter.random()))
                values, labels = values[:keep], labels[:keep]
            optimizer.zero_grad()
            loss = criterion(model(values), labels)
            loss.backward()
            stepping = now()
            optimizer.step()
            for _ in range(writes):  # small ones, to the same place: they fill no disk
                os.pwrite(log, LINE, 0)
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            faults.at("after", step, model)
            end = now()
            truth.iteration(step, mark, stepping, end, fetch)
            mark = end
            step += 1
            if step == steps:
                break
    faults.close()


if __name__ == "__main__":
    main()
