"""PyTorch Geometric: its loader over a list of graphs, its convolutions."""

from __future__ import annotations

from typing import Any

import torch
from clock import Job
from samples import CLASSES, FEATURES, SampleFaults
from torch.utils.data import Dataset
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

NODES = 30


class Graphs(Dataset[Any]):
    def __init__(self, job: Job) -> None:
        self._batch, self._count = job.plan["batch"], job.plan["steps"] * job.plan["batch"]
        self._faults = SampleFaults(job.plan, job.truth.path)
        self._edges = torch.randint(0, NODES, (2, 4 * NODES))
        self._nodes = torch.randn(NODES, FEATURES)

    def __len__(self) -> int:
        return int(self._count)

    def __getitem__(self, index: int) -> Data:
        batch, position = divmod(index, self._batch)
        self._faults.sample(batch, position, self._batch)
        return Data(x=self._nodes, edge_index=self._edges, y=torch.tensor([index % CLASSES]))


class Network(torch.nn.Module):
    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__()
        self.first, self.second = GCNConv(FEATURES, plan["width"]), GCNConv(plan["width"], plan["width"])
        self.last = torch.nn.Linear(plan["width"], CLASSES)

    def forward(self, data: Any) -> torch.Tensor:
        nodes = self.first(data.x, data.edge_index).relu()
        nodes = self.second(nodes, data.edge_index).relu()
        return self.last(global_mean_pool(nodes, data.batch))  # type: ignore[no-any-return]


def main() -> None:
    job = Job()
    plan = job.plan
    model = Network(plan).to(job.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in DataLoader(Graphs(job), batch_size=plan["batch"], num_workers=plan["workers"]):
        batch = batch.to(job.device)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), batch.y).backward()
        optimizer.step()
        job.faults(model)


if __name__ == "__main__":
    main()
