"""A small training that stalls: now and then a slow sample, and a checkpoint that is written through to the disk."""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH = 320, 16


class Pictures(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        if index % 1600 == 1599:  # a large picture
            end = time.monotonic() + 1.2
            while time.monotonic() < end:
                sum(range(10_000))
        return torch.randn(256), index % 10


def main():
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, (pictures, labels) in enumerate(DataLoader(Pictures(), BATCH, num_workers=1), 1):
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(pictures.repeat(16, 1)), labels.repeat(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            with open("last.pt", "wb") as file:
                torch.save({"model": model.state_dict(), "memory": torch.zeros(60_000_000)}, file)
                os.fsync(file.fileno())


main()
