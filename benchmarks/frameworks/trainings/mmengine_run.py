"""MMEngine: its Runner with the default hooks."""

from __future__ import annotations

from typing import Any

import vision  # noqa: F401
import torch
from clock import Job, Net, loss_of
from mmengine.evaluator import BaseMetric
from mmengine.hooks import CheckpointHook, Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner, ValLoop


class Model(BaseModel):
    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__()
        self.inner = Net(plan)

    def forward(self, values: torch.Tensor, labels: torch.Tensor, mode: str = "tensor") -> Any:
        if mode == "loss":
            return {"loss": loss_of(self.inner, values, labels)}
        return (self.inner(values).argmax(1) == labels).tolist()


class Right(BaseMetric):
    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.extend(data_samples)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        return {"right": sum(results) / len(results)}


class Faults(Hook):
    def __init__(self, job: Job) -> None:
        self.job = job

    def after_train_iter(self, runner: Any, *_: Any, **__: Any) -> None:
        self.job.faults(runner.model)


def main() -> None:
    job = Job()
    plan = job.plan
    every = {"interval": plan["save_every"]} if plan.get("save_every") else {"interval": -1, "save_last": False}
    evaluates = plan.get("eval_every")
    sampler = {"type": "DefaultSampler", "shuffle": False}
    loader = {"batch_size": plan["batch"], "sampler": sampler, "collate_fn": {"type": "default_collate"}}
    CheckpointHook._save_checkpoint = job.clocked(CheckpointHook._save_checkpoint, "checkpoint")
    ValLoop.run = job.clocked(ValLoop.run, "evaluation")
    runner = Runner(
        Model(plan),
        "out",
        train_dataloader={"dataset": job.samples(), "num_workers": plan["workers"], **loader},
        train_cfg={"by_epoch": False, "max_iters": plan["steps"], "val_interval": evaluates or plan["steps"] + 1},
        optim_wrapper={"optimizer": {"type": "AdamW", "lr": 1e-4}},
        val_dataloader={"dataset": job.held_out(), "num_workers": 0, **loader} if evaluates else None,
        val_cfg={} if evaluates else None,
        val_evaluator=[Right()] if evaluates else None,
        default_hooks={
            "checkpoint": {"type": "CheckpointHook", "by_epoch": False, **every},
            "logger": {"type": "LoggerHook", "interval": plan.get("log_every", 50)},
        },
        custom_hooks=[Faults(job)],
        log_processor={"by_epoch": False},
        log_level="ERROR",
    )
    runner.train()


if __name__ == "__main__":
    main()
