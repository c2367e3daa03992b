"""Keras on torch: ``fit`` with its ModelCheckpoint."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

from typing import Any

import keras
import torch
from clock import Job
from samples import CLASSES, FEATURES
from torch.utils.data import DataLoader


class Faults(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.job.iterated()
        self.job.faults(self.model)


def main() -> None:
    job = Job()
    plan = job.plan
    width = plan["width"]
    layers = [keras.layers.Dense(width, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers, keras.layers.Dense(CLASSES)])
    model.add_weight(shape=(plan.get("payload", 4) // 4,), trainable=False, name="table")
    model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callbacks: list[Any] = [Faults(job)]
    if plan.get("save_every"):
        callbacks.append(keras.callbacks.ModelCheckpoint("{batch}.keras", save_freq=plan["save_every"]))
        callbacks[-1]._save_model = job.clocked(callbacks[-1]._save_model, "checkpoint")
    loader = DataLoader(job.samples(), batch_size=plan["batch"], num_workers=plan["workers"])
    torch.Tensor.backward = job.counted(torch.Tensor.backward)  # type: ignore[method-assign]
    model.fit(loader, epochs=1, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    main()
