"""Synthetic samples, and the faults that are carried out while a sample is made (in a worker, or inline)."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from truth_clock import now, worker_planted

FEATURES = 256
CLASSES = 10


def busy(seconds: float) -> None:
    """Pure Python work, as a slow tokenizer or an augmentation written by hand does it."""
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        for i in range(200):
            total += i * i


def numeric(seconds: float) -> None:
    """Work inside numpy, as decoding and resizing do it: long stretches without the interpreter."""
    end = time.monotonic() + seconds
    block = np.random.default_rng(1).standard_normal(20_000)
    while time.monotonic() < end:
        np.sort(block)


def read_cold(path: str) -> None:
    """Reads a whole file that is not in the page cache, and drops it again so that the next time is cold too."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while os.read(descriptor, 1 << 20):
            pass
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def map_cold(path: str) -> None:
    """The same through a mapping: the waits are page faults, with no system call."""
    with open(path, "rb") as file:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            sum(mapped[i] for i in range(0, len(mapped), 4096))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def on_socket(seconds: float) -> None:
    """Waits for an answer that does not come, as a loader does that reads from an object store."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(None)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
        try:
            ours.recv(1)
        except BlockingIOError:
            pass  # the time is up


def on_lock(seconds: float) -> None:
    """A lock that nobody gives back, as after a fork; in the end somebody does, so that the run goes on."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


BLOCKS: dict[str, Callable[[float], object]] = {"sleep": time.sleep, "socket": on_socket, "lock": on_lock}


def _into_cache(directory: str, size: int) -> None:
    """A worker adds to the cache of a dataset, as datasets' map() does: chunks to a temporary file, then its name."""
    path = os.path.join(directory, f"cache-{os.getpid()}.arrow")
    with open(path + ".tmp", "wb") as file:
        file.writelines(bytes(1 << 18) for _ in range(max(size >> 18, 1)))
    os.replace(path + ".tmp", path)


class SampleFaults:
    """Carries out the plan's ``data`` faults; picklable, so that it reaches spawned workers.

    A fault has ``at`` (batch number -> seconds, or bytes' worth of a file) for rare ones or ``every_batch`` (seconds)
    for a constant cost, which is spread over the batch's samples.
    """

    def __init__(self, plan: dict[str, Any], truth_path: str) -> None:
        self._truth_path = truth_path
        self._rare = [fault for fault in plan.get("data", []) if "at" in fault]
        self._constant = [fault for fault in plan.get("data", []) if "every_batch" in fault]
        self._driver = os.getpid()

    def sample(self, batch: int, position: int, batch_size: int) -> None:
        """Called for each sample that is made, before it is."""
        for fault in self._constant:
            if fault["how"] in ("read", "map"):
                if position == 0:
                    self._file(fault, batch)
            else:
                (numeric if fault["how"] == "numeric" else busy)(fault["every_batch"] / batch_size)
        if position == 0:
            for fault in self._rare:
                size = fault["at"].get(str(batch))
                if size is not None:
                    self._rare_fault(fault, batch, size)

    def batch(self, batch: int) -> None:
        """The same for code that makes whole batches."""
        self.sample(batch, 0, 1)

    def _rare_fault(self, fault: dict[str, Any], batch: int, size: float) -> None:
        begin = now()
        how = fault["how"]
        if how in ("exit", "segfault"):
            worker_planted(self._truth_path, fault["id"], fault["cause"], begin, begin, batch=batch)
            if how == "exit":
                os._exit(int(size))
            ctypes.string_at(0)
        elif how in ("read", "map"):
            self._file(fault, batch)
        elif how in BLOCKS:
            BLOCKS[how](size)
        elif how == "cache":
            _into_cache(fault["directory"], int(size))
        elif how == "store":
            np.save(os.path.join(fault["directory"], f"features-{batch}.npy"), np.zeros(int(size) // 8))
        else:
            (numeric if how == "numeric" else busy)(size)
        worker_planted(self._truth_path, fault["id"], fault["cause"], begin, now(), batch=batch)

    def _file(self, fault: dict[str, Any], batch: int) -> None:
        path = fault["files"][batch % len(fault["files"])]
        (map_cold if fault["how"] == "map" else read_cold)(path)


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """Random vectors with random labels. ``epoch`` is set by the loop before a new iterator is made."""

    def __init__(self, plan: dict[str, Any], truth_path: str, batches: int) -> None:
        self.batch_size = int(plan["batch"])
        self.batches = batches
        self.epoch = 0
        self._faults = SampleFaults(plan, truth_path)
        self._rows = torch.from_numpy(make_batch(int(plan["seed"]), 0, 1024)[0])

    def __len__(self) -> int:
        return self.batches * self.batch_size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        batch, position = divmod(index, self.batch_size)
        self._faults.sample(self.epoch * self.batches + batch, position, self.batch_size)
        return self._rows[index % len(self._rows)], index % CLASSES


def make_batch(seed: int, number: int, size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A whole batch at once, for loaders that are no ``DataLoader``."""
    rng = np.random.default_rng((seed, number))
    return rng.standard_normal((size, FEATURES), dtype=np.float32), rng.integers(0, CLASSES, size)
