"""L-BFGS: the optimiser calls the closure, so one step has many backwards inside it."""

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
    dataset = Samples(plan, truth.path, plan["steps"])
    loader = DataLoader(dataset, batch_size=plan["batch"], num_workers=plan["workers"])
    model = perceptron(plan["width"])
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=4, history_size=5)
    mark = now()
    for step, (values, labels) in enumerate(loader):
        fetch = now() - mark

        def closure(values: torch.Tensor = values, labels: torch.Tensor = labels) -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(values), labels)
            loss.backward()
            return loss

        stepping = now()
        optimizer.step(closure)  # type: ignore[arg-type]
        faults.at("after", step, model)
        end = now()
        truth.iteration(step, mark, stepping, end, fetch)
        mark = end
    truth.count(optimizer_steps=plan["steps"])
    faults.close()


if __name__ == "__main__":
    main()
