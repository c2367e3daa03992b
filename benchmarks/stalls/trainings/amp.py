"""Mixed precision with a GradScaler that skips some steps of the optimiser because their gradients overflowed."""

from __future__ import annotations

import torch
from models import perceptron
from planted import begin
from samples import Samples
from torch.nn import functional
from torch.utils.data import DataLoader
from truth_clock import now


def main() -> None:
    plan, truth, faults = begin()
    overflowing = set(plan.get("overflow", []))
    loader = DataLoader(Samples(plan, truth.path, plan["steps"]), batch_size=plan["batch"], num_workers=plan["workers"])
    model = perceptron(plan["width"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth.count_steps(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10_000)
    mark = now()
    for step, (values, labels) in enumerate(loader):
        fetch = now() - mark
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(plan.get("autocast"))):
            loss = functional.cross_entropy(model(values), labels)
        if step in overflowing:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        stepping = now()
        scaler.step(optimizer)
        scaler.update()
        faults.at("after", step, model)
        end = now()
        truth.iteration(step, mark, stepping, end, fetch)
        mark = end
    truth.count(skipped=len(overflowing))
    faults.close()


if __name__ == "__main__":
    main()
