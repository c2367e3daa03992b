"""accelerate: its prepared loop, its ``save_state``."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from clock import Job, Net, loss_of
from torch.utils.data import DataLoader


def main() -> None:
    job = Job()
    plan = job.plan
    accelerator = Accelerator(cpu=job.device == "cpu")
    model = Net(plan)
    loader = DataLoader(job.samples(), batch_size=plan["batch"], num_workers=plan["workers"])
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loader)
    save = job.clocked(accelerator.save_state, "checkpoint")
    for number, (values, labels) in enumerate(loader, 1):
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, values, labels))
            optimizer.step()
            optimizer.zero_grad()
        job.faults(model)
        if number % plan.get("save_every", number + 1) == 0:
            save("state")
    accelerator.end_training()


if __name__ == "__main__":
    main()
