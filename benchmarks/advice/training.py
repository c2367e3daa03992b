"""A training whose settings are its argument, JSON; prints how long its steps took, by its own clock."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 256
BATCH = 64
BLOCK = np.random.default_rng(1).standard_normal(4_000)
FIRST_STEPS = 10  # in which workers start, and the queues fill
OBJECT_BYTES, OBJECTS_AT_ONCE = 160, 20_000
PLAIN = {
    "workers": 1, "prefetch": 2, "objects": 0, "weights": 0, "batch_wait": 0.0, "pause": 0.0, "long_pause": 0.0,
    "save_every": 0, "save_bytes": 0, "log_every": 0, "log_lines": 0, "sync": 0.0, "slow_every": 0, "slow_wait": 0.0,
    "slow_work": 0, "evaluate_every": 0, "evaluate_batches": 0, "evaluate_seconds": 0.0, "epochs": 1,
    "persistent": False, "anomaly": False, "pieces": 1, "open_wait": 0.0,
}  # fmt: skip


def sort(times: int) -> None:
    """Work as decoding does it: outside of the interpreter, the same amount each time."""
    for _ in range(times):
        np.sort(BLOCK)


class Samples(Dataset[Any]):
    """A worker keeps ``private`` bytes of its own, as a cache does, and uses all of it for each batch.

    It also uses ``objects`` of the driver's, as lists of samples are: Python counts references in them, so their pages
    are copied by and by.

    Samples are small (tens of kilobytes) and are collated into shared memory, as PyTorch does by default. Of dense ones
    of a megabyte the C library leaves holes on a worker's heap, or does not, as the memory lies: torch keeps a
    reference to each of the last 128 batches that were sent, and each may hold up a hole.
    """

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.cache: np.ndarray[Any, Any] | None = None
        self.objects = [str(number) * 20 for number in range(wanted["objects"] // OBJECT_BYTES)]

    def __len__(self) -> int:
        return BATCH * int(self.wanted["steps"] // self.wanted["epochs"])

    def __getitem__(self, index: int) -> Any:
        if self.cache is None:
            time.sleep(self.wanted["open_wait"])
            self.cache = np.random.default_rng(index).integers(0, 255, self.wanted["private"], dtype=np.uint8)
        if index % BATCH == 0:
            self.cache[::4096] += 1
            begin = index // BATCH * OBJECTS_AT_ONCE % max(len(self.objects), 1)
            sum(len(one) for one in self.objects[begin : begin + OBJECTS_AT_ONCE])
        sort(self.wanted["batch_work"] // BATCH)
        every = self.wanted["slow_every"] * BATCH
        if every and index % every == every - 1:
            time.sleep(self.wanted["slow_wait"])
            sort(self.wanted["slow_work"])
        if self.wanted["batch_wait"] and index % (BATCH // self.wanted["pieces"]) == 0:
            time.sleep(self.wanted["batch_wait"] / self.wanted["pieces"])
        return torch.full((self.wanted["batch_bytes"] // 4 // FEATURES // BATCH, FEATURES), 0.5)


def evaluate(model: nn.Module, batches: int, seconds: float) -> None:
    """Forward passes without gradients, over batches of an own loader; ``seconds``: of each."""
    model.eval()
    with torch.no_grad():
        for batch in DataLoader(torch.zeros(batches * BATCH, FEATURES), batch_size=BATCH):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                model(batch)
    model.train()


def save(path: str, model: nn.Module, extra: torch.Tensor) -> None:
    """A checkpoint that is complete or not there."""
    with open(f"{path}.tmp", "wb") as file:
        torch.save({"model": model.state_dict(), "extra": extra}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)


def batches(wanted: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Those of all epochs, each put together from so many ``pieces``."""
    ahead, pieces = wanted["prefetch"] if wanted["workers"] else None, wanted["pieces"]
    loader = DataLoader(
        Samples(wanted), batch_size=BATCH // pieces, num_workers=wanted["workers"], prefetch_factor=ahead,
        persistent_workers=wanted["persistent"] and wanted["workers"] > 0,
    )  # fmt: skip
    for _ in range(wanted["epochs"]):
        if pieces == 1:
            yield from loader
            continue
        single = iter(loader)
        for _ in range(len(loader) // pieces):
            yield torch.cat([next(single) for _ in range(pieces)])


def sync(file: int, seconds: float) -> None:
    """Writes a page through to the disk, again and again, until so much time is gone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.pwrite(file, bytes(4096), 0)
        os.fdatasync(file)


def calibrate() -> None:
    """Prints the seconds of one piece of a batch's work and of one of a step's own."""
    matrix = torch.randn(256, 256)
    times = []
    for work in (lambda: sort(100), lambda: [(matrix @ matrix).clamp(-1, 1) for _ in range(100)]):
        work()
        begin = time.monotonic()
        work()
        times.append((time.monotonic() - begin) / 100)
    print(json.dumps(times))


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) < 2:
        calibrate()
        return
    wanted: dict[str, Any] = PLAIN | json.loads(sys.argv[1])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 10))
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    extra = torch.zeros(wanted["save_bytes"] // 4)
    weights = torch.ones(
        wanted["weights"] // 4
    )  # that a step changes in place: workers keep the ones they were born with
    matrix = torch.randn(256, 256)
    torch.autograd.set_detect_anomaly(wanted["anomaly"])
    folder = wanted["directory"]
    with (
        open(os.path.join(folder, "train.log"), "a", buffering=1) as log,
        open(os.path.join(folder, "written"), "wb") as through,
    ):
        begin, used = time.monotonic(), time.thread_time()
        started = 0.0
        for step, data in enumerate(batches(wanted)):
            if step == FIRST_STEPS:
                started = time.monotonic() - begin
            optimiser.zero_grad()
            loss = model(data[:, :2]).square().mean()
            for _ in range(wanted["own_work"]):
                matrix = (matrix @ matrix).clamp(-1, 1)
            weights.mul_(0.999)
            sync(through.fileno(), wanted["sync"])
            time.sleep((step % 100 == 50 and wanted["long_pause"]) or wanted["pause"])
            loss.backward()
            optimiser.step()
            if wanted["log_every"] and step % wanted["log_every"] == 0:
                lines = range(wanted["log_lines"])
                log.writelines(f"step {step} tensor {number} norm {step * number}\n" for number in lines)
            if wanted["save_every"] and step % wanted["save_every"] == wanted["save_every"] - 1:
                save(os.path.join(folder, "last.pt"), model, extra)
            if wanted["evaluate_every"] and step % wanted["evaluate_every"] == wanted["evaluate_every"] - 1:
                evaluate(model, wanted["evaluate_batches"], wanted["evaluate_seconds"])
        cpu = time.thread_time() - used
        print(json.dumps({"seconds": time.monotonic() - begin, "started": started, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
