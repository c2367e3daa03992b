"""ultralytics: YOLO's own training on images that were drawn here, its saves at each epoch's end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import vision  # noqa: F401
import cv2
import numpy as np
from clock import Job
from ultralytics.models.yolo.detect import DetectionTrainer, DetectionValidator

SIDE = 64


def images(seed: int, count: int) -> str:
    """A data set of squares on noise, in YOLO's layout."""
    choice, rng = random.Random(seed), np.random.default_rng(seed)
    for part in ("train", "val"):
        Path(f"data/images/{part}").mkdir(parents=True)
        Path(f"data/labels/{part}").mkdir(parents=True)
        for number in range(count if part == "train" else 8):
            image = rng.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
            x, y, half = choice.randint(16, 48), choice.randint(16, 48), choice.randint(6, 14)
            cv2.rectangle(image, (x - half, y - half), (x + half, y + half), (255, 255, 255), -1)
            cv2.imwrite(f"data/images/{part}/{number}.png", image)
            box = " ".join(f"{value / SIDE:.4f}" for value in (x, y, 2 * half, 2 * half))
            Path(f"data/labels/{part}/{number}.txt").write_text(f"0 {box}\n")
    Path("data.yaml").write_text(
        f"path: {Path('data').resolve()}\ntrain: images/train\nval: images/val\nnames: [square]\n"
    )
    return "data.yaml"


def main() -> None:
    job = Job()
    plan = job.plan
    per_epoch = plan["save_every"]
    given: dict[str, Any] = {
        "model": "yolov8n.yaml",
        "data": images(plan["seed"], per_epoch * plan["batch"]),
        "epochs": plan["steps"] // per_epoch,
        "batch": plan["batch"],
        "nbs": plan["batch"],
        "imgsz": SIDE,
        "workers": plan["workers"],
        "device": "cpu",
        "val": False,
        "plots": False,
        "amp": False,
        "verbose": False,
        "project": str(Path("runs").resolve()),  # a relative one lies in the folder that its settings name
        "seed": plan["seed"],
    }
    trainer = DetectionTrainer(overrides=given)
    trainer.save_model = job.clocked(trainer.save_model, "checkpoint")
    # The trainer's own way to it leaves out the last one, of the best model.
    DetectionValidator.__call__ = job.clocked(DetectionValidator.__call__, "evaluation")
    trainer.add_callback("on_train_batch_end", lambda one: job.faults(one.model))
    trainer.train()


if __name__ == "__main__":
    main()
