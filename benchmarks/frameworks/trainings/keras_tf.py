"""Keras on TensorFlow: ``fit`` over a tf.data pipeline, with its ModelCheckpoint; no torch in the process."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from typing import Any

from bare import CLASSES, FEATURES, Job
import keras
import numpy as np
import tensorflow


class Clock(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.job.step()


class Checkpoints(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Its own, which begins when the plan has it."""

    def __init__(self, job: Job) -> None:
        super().__init__("{batch}.keras", save_freq=job.plan["save_every"])
        self.job = job

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if self.job.steps >= self.job.plan["quiet"]:
            with self.job.planted("checkpoint", "ModelCheckpoint"):
                super()._save_model(*args, **kwargs)


def main() -> None:
    job = Job()
    plan = job.plan
    rng = np.random.default_rng(plan["seed"])
    count = 8 * plan["batch"]
    values = rng.standard_normal((count, FEATURES), dtype=np.float32)
    labels = rng.integers(0, CLASSES, count)
    data = tensorflow.data.Dataset.from_tensor_slices((values, labels)).repeat().batch(plan["batch"]).prefetch(2)
    layers = [keras.layers.Dense(plan["width"], activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers, keras.layers.Dense(CLASSES)])
    model.add_weight(shape=(plan.get("payload", 4) // 4,), trainable=False, name="table")
    model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callbacks: list[Any] = [Checkpoints(job)] if plan.get("save_every") else []
    model.fit(data, epochs=1, steps_per_epoch=plan["steps"], verbose=0, callbacks=[*callbacks, Clock(job)])


if __name__ == "__main__":
    main()
