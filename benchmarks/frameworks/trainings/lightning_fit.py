"""Lightning: its loops, its ModelCheckpoint, its validation."""

from __future__ import annotations

import warnings
from typing import Any

import vision  # noqa: F401
import lightning
import torch
from clock import Job, Net, loss_of
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__()
        self.inner = Net(plan)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = loss_of(self.inner, *batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("held_out", loss_of(self.inner, *batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Faults(lightning.Callback):
    def __init__(self, job: Job) -> None:
        self.job = job

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.job.faults(module)


def main() -> None:
    job = Job()
    plan = job.plan
    warnings.simplefilter("ignore")
    callbacks: list[lightning.Callback] = [Faults(job)]
    if plan.get("save_every"):
        callbacks.append(ModelCheckpoint("saves", every_n_train_steps=plan["save_every"], save_top_k=-1))
    trainer = lightning.Trainer(
        accelerator=job.device,
        max_steps=plan["steps"],
        callbacks=callbacks,
        logger=CSVLogger(".") if plan.get("log_every") else False,
        log_every_n_steps=plan.get("log_every"),
        val_check_interval=plan.get("eval_every"),
        enable_checkpointing=bool(plan.get("save_every")),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.save_checkpoint = job.clocked(trainer.save_checkpoint, "checkpoint")
    loop = trainer.fit_loop.epoch_loop.val_loop
    loop.run = job.clocked(loop.run, "evaluation")
    held_out = DataLoader(job.held_out(), batch_size=plan["batch"]) if plan.get("eval_every") else None
    trainer.fit(
        Module(plan), DataLoader(job.samples(), batch_size=plan["batch"], num_workers=plan["workers"]), held_out
    )


if __name__ == "__main__":
    main()
