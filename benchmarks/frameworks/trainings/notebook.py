"""A notebook: cells in a kernel of their own, one of which trains."""

from __future__ import annotations

import sys
from pathlib import Path

from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

IMPORTS = f"""
import sys
sys.argv = {["notebook", *sys.argv[1:]]!r}
sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
import torch
from clock import Job, Net, loss_of
from torch.utils.data import DataLoader
job = Job()
plan = job.plan
"""
MODEL = """
model = Net(plan)
loader = DataLoader(job.samples(), batch_size=plan["batch"], num_workers=plan["workers"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
save = job.clocked(torch.save, "checkpoint")
"""
TRAIN = """
for number, (values, labels) in enumerate(loader, 1):
    optimizer.zero_grad()
    loss_of(model, values, labels).backward()
    optimizer.step()
    job.faults(model)
    if number % plan.get("save_every", number + 1) == 0:
        save(model.state_dict(), f"{number}.pt")
"""
LOOK = "print(sum(one.numel() for one in model.parameters()))"

if __name__ == "__main__":
    cells = [new_code_cell(source) for source in (IMPORTS, MODEL, TRAIN, LOOK)]
    NotebookClient(new_notebook(cells=cells), kernel_name="python3", timeout=None).execute()
