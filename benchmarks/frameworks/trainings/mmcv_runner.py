"""mmcv 1: its EpochBasedRunner with its hooks, as the older OpenMMLab trainings have it."""

from __future__ import annotations

import logging
from typing import Any

import vision  # noqa: F401
import torch
from clock import Job, Net, loss_of
from mmcv.runner import CheckpointHook, EpochBasedRunner, EvalHook, Hook, OptimizerHook, TextLoggerHook
from torch import nn
from torch.utils.data import DataLoader


class Model(nn.Module):
    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__()
        self.inner = Net(plan)

    def forward(self, values: torch.Tensor, labels: torch.Tensor, return_loss: bool = True) -> torch.Tensor:
        return self.inner(values)  # type: ignore[no-any-return]

    def train_step(self, batch: Any, optimizer: Any) -> dict[str, Any]:
        loss = loss_of(self.inner, *batch)
        return {"loss": loss, "log_vars": {"loss": float(loss)}, "num_samples": len(batch[0])}


class Faults(Hook):  # type: ignore[misc]
    def __init__(self, job: Job) -> None:
        self.job = job

    def after_train_iter(self, runner: Any) -> None:
        self.job.faults(runner.model)


class Evaluation(EvalHook):  # type: ignore[misc]
    """By hand, as many projects have it: a loop under ``no_grad``."""

    def _do_evaluate(self, runner: Any) -> None:
        runner.model.eval()
        with torch.no_grad():
            for values, labels in self.dataloader:
                runner.model(values, labels)
        runner.model.train()


def main() -> None:
    job = Job()
    plan = job.plan
    model = Model(plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    runner = EpochBasedRunner(model, None, optimizer, "out", logging.getLogger("mmcv"), max_epochs=1)
    runner.register_hook(OptimizerHook())
    if plan.get("save_every"):
        runner.register_hook(CheckpointHook(plan["save_every"], by_epoch=False))
        runner.save_checkpoint = job.clocked(runner.save_checkpoint, "checkpoint")
    if plan.get("eval_every"):
        Evaluation._do_evaluate = job.clocked(Evaluation._do_evaluate, "evaluation")
        held_out = DataLoader(job.held_out(), batch_size=plan["batch"])
        runner.register_hook(Evaluation(held_out, interval=plan["eval_every"], by_epoch=False))
    runner.register_hook(TextLoggerHook(interval=plan.get("log_every", 50)))
    runner.register_hook(Faults(job), priority="LOW")
    runner.run([DataLoader(job.samples(), batch_size=plan["batch"], num_workers=plan["workers"])], [("train", 1)])


if __name__ == "__main__":
    main()
