"""HF datasets: a table of Arrow with a transform in the workers, a DataLoader over it."""

from __future__ import annotations

from typing import Any

import datasets
import torch
from clock import Job, Net, loss_of
from samples import CLASSES, FEATURES, SampleFaults
from torch.utils.data import DataLoader

ROWS = 2000


class Transform:
    """Rows to tensors, with the plan's faults; the row's number tells the batch."""

    def __init__(self, job: Job) -> None:
        self._batch = job.plan["batch"]
        self._faults = SampleFaults(job.plan, job.truth.path)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        first = rows["number"][0]
        self._faults.sample(first // self._batch, 0, 1)
        return {"values": [torch.tensor(row) for row in rows["values"]], "labels": rows["labels"]}


def main() -> None:
    job = Job()
    plan = job.plan
    count = plan["steps"] * plan["batch"]
    values = torch.randn(ROWS, FEATURES).numpy()
    table = datasets.Dataset.from_dict(
        {
            "values": list(values[[number % ROWS for number in range(count)]]),
            "labels": [number % CLASSES for number in range(count)],
            "number": list(range(count)),
        }
    ).with_transform(Transform(job))
    model = Net(plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in DataLoader(table, batch_size=plan["batch"], num_workers=plan["workers"]):
        optimizer.zero_grad()
        loss_of(model, batch["values"], batch["labels"]).backward()
        optimizer.step()
        job.faults(model)


if __name__ == "__main__":
    main()
