"""Hugging Face's Trainer: its loop, its saves, its evaluation, its logs."""

from __future__ import annotations

from typing import Any

import vision  # noqa: F401
import torch
from clock import Job, Net
from torch import nn
from torch.utils.data import default_collate
from transformers import Trainer, TrainerCallback, TrainingArguments


class Classifier(nn.Module):
    """A model as Trainer wants it: the loss in its outputs."""

    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__()
        self.inner = Net(plan)

    def forward(self, values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.inner(values)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def collate(rows: list[Any]) -> dict[str, torch.Tensor]:
    values, labels = default_collate(rows)
    return {"values": values, "labels": labels}


class Faults(TrainerCallback):
    def __init__(self, job: Job) -> None:
        self.job = job

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.job.faults(given["model"])


def main() -> None:
    job = Job()
    plan = job.plan
    evaluates = plan.get("eval_every")
    trainer = Trainer(
        Classifier(plan),
        TrainingArguments(
            output_dir="out",
            max_steps=plan["steps"],
            per_device_train_batch_size=plan["batch"],
            per_device_eval_batch_size=plan["batch"],
            dataloader_num_workers=plan["workers"],
            save_strategy="steps" if plan.get("save_every") else "no",
            save_steps=plan.get("save_every", 500),
            save_total_limit=2,
            eval_strategy="steps" if evaluates else "no",
            eval_steps=evaluates,
            logging_steps=plan.get("log_every", 50),
            train_sampling_strategy="sequential",
            report_to="none",
            disable_tqdm=True,
            use_cpu=job.device == "cpu",
            remove_unused_columns=False,
        ),
        data_collator=collate,
        train_dataset=job.samples(),
        eval_dataset=job.held_out() if evaluates else None,
        callbacks=[Faults(job)],
    )
    trainer._save_checkpoint = job.clocked(trainer._save_checkpoint, "checkpoint")
    trainer.evaluate = job.clocked(trainer.evaluate, "evaluation")
    trainer.train()


if __name__ == "__main__":
    main()
