"""batchgenerators, as nnU-Net has it: a MultiThreadedAugmenter, its queue of the driver's own process."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter
from clock import Job, Net, loss_of
from samples import CLASSES, FEATURES, SampleFaults


class Batches(DataLoader):  # type: ignore[misc]
    def __init__(self, job: Job) -> None:
        plan = job.plan
        super().__init__(None, plan["batch"], plan["workers"], plan["seed"], infinite=True, shuffle=False)
        self._faults = SampleFaults(plan, job.truth.path)
        self._made = 0

    def generate_train_batch(self) -> dict[str, Any]:
        self._faults.batch(self._made * self.number_of_threads_in_multithreaded + self.thread_id)
        self._made += 1
        rng = np.random.default_rng(self._made)
        return {
            "data": rng.standard_normal((self.batch_size, FEATURES), dtype=np.float32),
            "seg": rng.integers(0, CLASSES, self.batch_size),
        }


def main() -> None:
    job = Job()
    plan = job.plan
    loader = MultiThreadedAugmenter(Batches(job), None, plan["workers"], 2, [1] * plan["workers"])
    model = Net(plan)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.99, nesterov=True)
    try:
        for _ in range(plan["steps"]):
            batch = job.fetched(next, loader)
            optimizer.zero_grad()
            values, labels = torch.as_tensor(batch["data"]), torch.as_tensor(batch["seg"])
            loss_of(model, values, labels).backward()
            optimizer.step()
            job.faults(model)
    finally:
        loader._finish()  # else the process waits for its workers for ever, also after an exception


if __name__ == "__main__":
    main()
