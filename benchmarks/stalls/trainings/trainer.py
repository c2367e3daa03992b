"""A Trainer class with callbacks, in the manner of the frameworks: the loop knows nothing of what hangs on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from models import perceptron
from planted import DriverFaults, begin
from samples import Samples
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from truth_clock import Truth, now


class Module(nn.Module):
    """Model, loss and optimiser in one, as the frameworks want it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = perceptron(width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.net(values)  # type: ignore[no-any-return]

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        values, labels = batch
        return functional.cross_entropy(self(values), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-4)


class Callback:
    def on_fit_start(self, trainer: Trainer) -> None: ...
    def on_batch_fetched(self, trainer: Trainer) -> None: ...
    def on_batch_start(self, trainer: Trainer) -> None: ...
    def on_before_step(self, trainer: Trainer) -> None: ...
    def on_batch_end(self, trainer: Trainer) -> None: ...


class Clock(Callback):
    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.mark = now()
        self.fetch = self.stepping = 0

    def on_fit_start(self, trainer: Trainer) -> None:
        self.truth.count_steps(trainer.optimizer)

    def on_batch_fetched(self, trainer: Trainer) -> None:
        self.fetch = now() - self.mark

    def on_before_step(self, trainer: Trainer) -> None:
        self.stepping = now()

    def on_batch_end(self, trainer: Trainer) -> None:
        end = now()
        self.truth.iteration(trainer.global_step, self.mark, self.stepping, end, self.fetch)
        self.mark = end


class Planted(Callback):
    def __init__(self, faults: DriverFaults) -> None:
        self.faults = faults

    def on_batch_start(self, trainer: Trainer) -> None:
        self.faults.at("before", trainer.global_step, trainer.module)

    def on_batch_end(self, trainer: Trainer) -> None:
        self.faults.at("after", trainer.global_step, trainer.module)


class Trainer:
    def __init__(self, max_steps: int, callbacks: list[Callback]) -> None:
        self.max_steps = max_steps
        self.callbacks = callbacks
        self.global_step = 0
        self.module: Module
        self.optimizer: torch.optim.Optimizer

    def call(self, hook: str) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self)

    def fit(self, module: Module, loader: DataLoader[Any], dataset: Samples) -> None:
        self.module = module
        self.optimizer = module.configure_optimizers()
        self.call("on_fit_start")
        epoch = 0
        while self.global_step < self.max_steps:
            dataset.epoch = epoch
            self._epoch(iter(loader))
            epoch += 1

    def _epoch(self, batches: Iterator[Any]) -> None:
        while self.global_step < self.max_steps:
            batch = next(batches, None)
            if batch is None:
                return
            self.call("on_batch_fetched")
            self.call("on_batch_start")
            loss = self.module.training_step(batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.call("on_before_step")
            self.optimizer.step()
            self.call("on_batch_end")
            self.global_step += 1


def main() -> None:
    plan, truth, faults = begin()
    dataset = Samples(plan, truth.path, plan.get("epoch_steps") or plan["steps"])
    loader = DataLoader(
        dataset,
        batch_size=plan["batch"],
        num_workers=plan["workers"],
        multiprocessing_context=plan.get("context") if plan["workers"] else None,
    )
    trainer = Trainer(plan["steps"], [Planted(faults), Clock(truth)])
    trainer.fit(Module(plan["width"]), loader, dataset)
    faults.close()


if __name__ == "__main__":
    main()
