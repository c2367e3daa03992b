"""What healthy trainings do beside their steps, none of which is a stall."""

from __future__ import annotations

import os
import queue
import struct
import subprocess
import sys
import threading
import time
from typing import Any

import torch
from torch import nn
from writers import payload


class EventWriter(threading.Thread):
    """TensorBoard's manner: records are queued by the loop and appended and flushed by a thread of its own."""

    def __init__(self, directory: str) -> None:
        super().__init__(daemon=True)
        self.records: queue.Queue[bytes] = queue.Queue()
        self._path = os.path.join(directory, "events.out.tfevents.1700000001.host.2.0")

    def run(self) -> None:
        while True:
            record = self.records.get()
            with open(self._path, "ab") as file:
                file.write(struct.pack("<Q", len(record)) + record)


class Uploader(threading.Thread):
    """wandb's manner, offline: another process is given what is to be kept over a pipe, and appends it to a file."""

    def __init__(self, directory: str) -> None:
        super().__init__(daemon=True)
        self.records: queue.Queue[bytes] = queue.Queue()
        self._service = subprocess.Popen(
            [sys.executable, "-c", _SERVICE, os.path.join(directory, "run-offline.wandb")], stdin=subprocess.PIPE
        )

    def run(self) -> None:
        assert self._service.stdin is not None
        while True:
            record = self.records.get()
            self._service.stdin.write(struct.pack("<Q", len(record)) + record)
            self._service.stdin.flush()

    def close(self) -> None:
        self._service.kill()
        self._service.wait()


_SERVICE = """
import os, sys
with open(sys.argv[1], "ab") as file:
    for record in iter(lambda: os.read(0, 4096), b""):
        file.write(record)
        file.flush()
"""


class TensorBoard:
    """TensorBoard itself, by PyTorch's own writer."""

    def __init__(self, directory: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(os.path.join(directory, "tensorboard"), flush_secs=10)

    def keep(self, step: int, model: nn.Module) -> None:
        self._writer.add_scalar("loss", 1 / (step + 1), step)
        if step % 100 == 0:
            for name, weights in model.named_parameters():
                self._writer.add_histogram(name, weights, step)

    def close(self) -> None:
        self._writer.close()


class WandbOffline:
    """wandb itself, which keeps everything on this host."""

    def __init__(self, directory: str) -> None:
        import wandb

        self._run = wandb.init(mode="offline", dir=directory, settings=wandb.Settings(silent=True))

    def keep(self, step: int, _model: nn.Module) -> None:
        self._run.log({"loss": 1 / (step + 1), "step": step})

    def close(self) -> None:
        self._run.finish()


KEEPERS = {"tensorboard": TensorBoard, "wandb_offline": WandbOffline}
"""Programs that trainings really use; they need the package of their name."""


class Background:
    """``background`` of a plan: any of ``events``, ``wandb``, ``omp``, ``async_save``, and of ``KEEPERS``."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._names = set(plan.get("background", []))
        self._directory = str(plan.get("scratch", "."))
        self._saver: threading.Thread | None = None
        self._tensors = payload(24 << 20) if "async_save" in self._names else []
        self._events: EventWriter | None = None
        if "events" in self._names:
            self._events = EventWriter(self._directory)
            self._events.start()
        self._uploader: Uploader | None = None
        if "wandb" in self._names:
            self._uploader = Uploader(self._directory)
            self._uploader.start()
        self._keepers = [KEEPERS[name](self._directory) for name in KEEPERS if name in self._names]
        if "omp" in self._names:
            torch.set_num_threads(4)
            torch.ones(2_000_000).sum()
            torch.set_num_threads(1)

    def step(self, step: int, model: nn.Module) -> None:
        if self._events is not None:
            self._events.records.put(b"loss" * 9 + str(step).encode())
        if self._uploader is not None:
            self._uploader.records.put(b'{"loss": 0.1}' * 40 + str(step).encode())
        for keeper in self._keepers:
            keeper.keep(step, model)
        if "async_save" in self._names and step % 80 == 79:
            self._join()
            state = {"model": {k: v.detach().clone() for k, v in model.state_dict().items()}, "extra": self._tensors}
            path = os.path.join(self._directory, f"async-{step // 80 % 2}.pt")  # the last one stays whole meanwhile
            self._saver = threading.Thread(target=torch.save, args=(state, path))
            self._saver.start()

    def _join(self) -> None:
        if self._saver is not None:
            self._saver.join()

    def close(self) -> None:
        self._join()
        for keeper in self._keepers:
            keeper.close()
        if self._uploader is not None:
            self._uploader.close()
        if self._events is not None:
            deadline = time.monotonic() + 1
            while not self._events.records.empty() and time.monotonic() < deadline:
                time.sleep(0.01)
