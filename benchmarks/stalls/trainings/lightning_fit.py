"""The same job given to Lightning itself, where it is installed: its loops, its callbacks, its checkpoint writer."""

from __future__ import annotations

import warnings
from typing import Any

import lightning
import torch
from models import perceptron
from planted import DriverFaults, begin
from samples import Samples
from torch.nn import functional
from torch.utils.data import DataLoader
from truth_clock import Truth, now


class Module(lightning.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = perceptron(width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.net(values)  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        values, labels = batch
        return functional.cross_entropy(self(values), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Hooks(lightning.Callback):
    """Keeps the training's clock and carries the faults out where Lightning calls its callbacks."""

    def __init__(self, truth: Truth, faults: DriverFaults, dataset: Samples) -> None:
        self.truth, self.faults, self.dataset = truth, faults, dataset
        self.mark = now()
        self.fetch = self.stepping = self.step = 0

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        """Forward and backward are inside the optimiser's call here: a step has begun with it, whatever ends it."""
        self.truth.count_steps(*trainer.optimizers)

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self.dataset.epoch = trainer.current_epoch

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.fetch = now() - self.mark
        self.faults.at("before", self.step, module)

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.stepping = now()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.faults.at("after", self.step, module)
        end = now()
        self.truth.iteration(self.step, self.mark, self.stepping, end, self.fetch)
        self.mark = end
        self.step += 1


def main() -> None:
    plan, truth, faults = begin()
    warnings.simplefilter("ignore")
    dataset = Samples(plan, truth.path, plan.get("epoch_steps") or plan["steps"])
    loader = DataLoader(
        dataset,
        batch_size=plan["batch"],
        num_workers=plan["workers"],
        multiprocessing_context=plan.get("context") if plan["workers"] else None,
    )
    hooks = Hooks(truth, faults, dataset)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=plan["steps"],
        callbacks=[hooks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(plan["width"]), loader)
    faults.close()


if __name__ == "__main__":
    main()
