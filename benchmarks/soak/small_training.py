"""A training that costs little: ``small_training.py STEPS SAVE_EVERY DIRECTORY TRUTH``. Needs torch.

The file TRUTH says how many steps it made and files it saved, by its own count.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH = 64, 16


def main() -> None:
    steps, save_every, directory = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    made = saved = 0
    for (x,) in DataLoader(TensorDataset(torch.randn(steps * BATCH, WIDTH)), batch_size=BATCH, num_workers=1):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        made += 1
        time.sleep(0.05)
        if made % save_every == 0:
            # Large enough to be one whatever it is called.
            torch.save({"model": torch.zeros(1 << 19), "step": made}, directory / f"checkpoint-{made}.pt")
            saved += 1
    Path(sys.argv[4]).write_text(json.dumps({"steps": made, "saved": saved}))


if __name__ == "__main__":
    main()
