"""webdataset: shards of tar files through WebLoader."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
import webdataset
from clock import Job, Net, loss_of
from samples import CLASSES, FEATURES, SampleFaults

SHARDS = 4


def shards(plan: dict[str, Any]) -> list[str]:
    rng, paths = np.random.default_rng(plan["seed"]), [f"shard-{number}.tar" for number in range(SHARDS)]
    count = plan["steps"] * plan["batch"] // SHARDS + plan["batch"]
    for shard, path in enumerate(paths):
        with webdataset.TarWriter(path) as tar:
            for number in range(min(count, 4000)):
                values = io.BytesIO()
                np.save(values, rng.standard_normal(FEATURES, dtype=np.float32))
                tar.write({"__key__": f"{shard}-{number:06}", "npy": values.getvalue(), "cls": number % CLASSES})
    return paths


class Decoded:
    """A sample's values, made by the worker whose batch it is; the plan's faults are carried out meanwhile."""

    def __init__(self, job: Job) -> None:
        self._batch, self._workers = job.plan["batch"], max(job.plan["workers"], 1)
        self._faults = SampleFaults(job.plan, job.truth.path)
        self._seen = 0

    def __call__(self, sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
        worker = torch.utils.data.get_worker_info()
        batch, position = divmod(self._seen, self._batch)
        self._faults.sample(batch * self._workers + (worker.id if worker else 0), position, self._batch)
        self._seen += 1
        return torch.from_numpy(sample["npy"]), sample["cls"]


def main() -> None:
    job = Job()
    plan = job.plan
    dataset = webdataset.WebDataset(shards(plan), resampled=True, shardshuffle=False)
    dataset = dataset.decode().map(Decoded(job)).batched(plan["batch"])
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=plan["workers"]).with_epoch(plan["steps"])
    model = Net(plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for values, labels in loader:
        optimizer.zero_grad()
        loss_of(model, values, torch.as_tensor(labels)).backward()
        optimizer.step()
        job.faults(model)


if __name__ == "__main__":
    main()
