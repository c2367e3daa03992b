"""A training with nothing planted: ``plain_training.py STEPS TRUTH STEPPING``. Its own clock is the truth.

The file STEPPING is there from the first step on.

It runs with the Python that has torch, knows nothing of trainprobe, and says how many steps it made and when.
"""

import json
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

WIDTH = 512
BATCH = 16


class Squares(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((WIDTH,), float(index % 7))
        return x, x * x


def main() -> None:
    steps, truth, stepping = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    marks = []
    for x, y in DataLoader(Squares(steps * BATCH), batch_size=BATCH, num_workers=1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        marks.append(time.time())
        if len(marks) == 1:
            open(stepping, "w").close()
    with open(truth, "w") as file:
        json.dump({"steps": len(marks), "first": marks[0], "last": marks[-1]}, file)


if __name__ == "__main__":
    main()
