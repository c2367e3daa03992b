"""timm: its loader over an image folder, its model, its optimiser, its CheckpointSaver."""

from __future__ import annotations

from typing import Any

import vision  # noqa: F401
import numpy as np
import timm
import torch
from clock import Job
from PIL import Image
from samples import SampleFaults
from timm.data import create_loader
from timm.optim import create_optimizer_v2
from timm.utils import CheckpointSaver
from torch.utils.data import Dataset

SIDE = 96


class Images(Dataset[Any]):
    """Images as they come from a decoder, all made of noise."""

    transform: Any = None

    def __init__(self, job: Job) -> None:
        self._batch, self._batches = job.plan["batch"], job.plan["steps"]
        self._faults = SampleFaults(job.plan, job.truth.path)
        self._image = Image.fromarray(np.random.default_rng(1).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8))

    def __len__(self) -> int:
        return int(self._batch * self._batches)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        batch, position = divmod(index, self._batch)
        self._faults.sample(batch, position, self._batch)
        return self.transform(self._image), index % 10


def main() -> None:
    job = Job()
    plan = job.plan
    model = timm.create_model("resnet18", num_classes=10)
    model.register_buffer("table", torch.ones(plan.get("payload", 4) // 4))
    loader = create_loader(
        Images(job),
        (3, SIDE, SIDE),
        plan["batch"],
        use_prefetcher=False,
        num_workers=plan["workers"],
        device=torch.device(job.device),
        persistent_workers=False,
    )
    model.to(job.device)
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-4)
    saver = CheckpointSaver(model, optimizer, checkpoint_dir=".", recovery_dir=".")
    save = job.clocked(saver.save_recovery, "checkpoint")
    for number, (images, labels) in enumerate(loader, 1):
        optimizer.zero_grad()
        images, labels = images.to(job.device), labels.to(job.device)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        job.faults(model)
        if number % plan.get("save_every", number + 1) == 0:
            save(0, number)


if __name__ == "__main__":
    main()
