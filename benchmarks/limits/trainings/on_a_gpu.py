"""A training whose GPU is on paper: each step it says what the GPU does, and waits for it as CUDA does, spinning."""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import time
from collections import deque
from pathlib import Path

import torch
from torch import nn

MB = 1 << 20
USUAL, MAXIMUM = 1800, 1980  # MHz
TELL_SECONDS, WINDOW = 0.3, 4  # a figure speaks for the last second, as a reading of it is taken to
SAVE_SECONDS = 0.6  # on a disk of whatever speed: readings of a GPU come once a second


class Gpu:
    """Writes what the fake NVML reads. ``work`` lasts longer the lower the clock is."""

    def __init__(self, path: Path, memory: int, cuda: str = "") -> None:
        self.runtime = ctypes.CDLL(f"{cuda}/libcudart.so.12", ctypes.RTLD_GLOBAL) if cuda else None
        self.calls = ctypes.CDLL(f"{cuda}/libcaller.so") if cuda else None
        if self.calls is not None:
            self.calls.allocate.restype = ctypes.c_void_p
            self.calls.release.argtypes = [ctypes.c_void_p]
        self.blocks: list[tuple[int, int]] = []
        self.path, self.memory = path, memory
        self.clock, self.reasons, self.used = USUAL, 0, memory // 4
        self.busy = 0.0
        self.ecc, self.lost = 0, False
        self._told: deque[tuple[float, float]] = deque([(time.perf_counter(), 0.0)], maxlen=WINDOW)
        threading.Thread(target=self._tell, daemon=True).start()

    def work(self, seconds: float) -> None:
        if self.runtime is not None and self.calls is not None:
            begun = time.perf_counter()
            self.runtime.fake_launch(ctypes.c_double(seconds * USUAL / self.clock))
            self.calls.synchronize_stream()
            self.busy += time.perf_counter() - begun
            return
        end = time.perf_counter() + seconds * USUAL / self.clock
        while time.perf_counter() < end:
            before = time.perf_counter()
            while time.perf_counter() < min(end, before + 0.002):
                pass
            self.busy += time.perf_counter() - before

    def limit(self, room: int, seconds_each: float) -> None:
        """So much memory may be taken, and asking for some, or giving it back, takes so long."""
        assert self.runtime is not None
        self.memory, self.used = room, 0
        self.runtime.fake_memory(ctypes.c_int64(room), ctypes.c_double(seconds_each))

    def take(self, size: int) -> bool:
        """Whether there was so much."""
        assert self.calls is not None
        error = ctypes.c_int(0)
        block = self.calls.allocate(ctypes.c_size_t(size), ctypes.byref(error))
        if error.value:
            return False
        self.blocks.append((block, size))
        self.used += size
        return True

    def give_back(self) -> None:
        """All that was taken."""
        assert self.calls is not None
        for block, size in self.blocks:
            self.calls.release(block)
            self.used -= size
        self.blocks.clear()

    def _tell(self) -> None:
        while True:
            now, busy = time.perf_counter(), self.busy
            begun, busy_then = self._told[0]
            share = (busy - busy_then) / max(now - begun, 1e-9)
            self._told.append((now, busy))
            figures: dict[str, object] = {
                "memory_total": self.memory, "memory_used": self.used, "utilization": round(100 * min(1.0, share)),
                "clock": self.clock, "clock_max": MAXIMUM, "reasons": self.reasons, "temperature": 88, "power": 300_000,
                "pid": os.getpid(), "pid_memory": self.used, "ecc": self.ecc,
            }  # fmt: skip
            if self.lost:
                figures = dict.fromkeys(figures, "!15") | {"handle": "!15"}
            text = "".join(f"0 {name} {value}\n" for name, value in figures.items())
            fresh = self.path.with_suffix(".new")
            fresh.write_text("99 count 1\n" + text)
            fresh.rename(self.path)
            time.sleep(TELL_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--work", type=float, default=0.06, help="seconds of a step at the usual clock")
    parser.add_argument("--throttle", type=int, nargs=3, default=(0, 0, USUAL), help="first step, steps, MHz")
    parser.add_argument("--reason", type=int, default=0x40, help="NVML's bits while throttled")
    parser.add_argument("--leak-bytes", type=int, default=0, help="of GPU memory that each step keeps")
    parser.add_argument(
        "--breaks", choices=("", "ecc", "lost"), default="", help="at half of the steps; the end follows"
    )
    parser.add_argument("--room", type=int, default=0, help="bytes that CUDA gives")
    parser.add_argument("--memory-seconds", type=float, default=0.0, help="of each call for memory")
    parser.add_argument("--keep-bytes", type=int, default=0, help="of CUDA's, that each step keeps from --first on")
    parser.add_argument("--retries", action="store_true", help="give all of it back where it is refused, and go on")
    parser.add_argument("--churn", type=int, default=0, help="allocations, and frees, of every --every-th step")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="", help="a checkpoint here every --every steps")
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--cuda", default="", help="folder of a libcudart that waits, instead of this program")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    gpu = Gpu(Path(os.environ["FAKE_NVML"]), 24 << 30, wanted.cuda)
    if wanted.room:
        gpu.limit(wanted.room, wanted.memory_seconds)
    model = nn.Linear(64, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first, count, clock = wanted.throttle
    slow = 0.0
    for step in range(wanted.steps):
        lowered = first <= step < first + count
        gpu.clock, gpu.reasons = (clock, wanted.reason) if lowered else (USUAL, 0)
        gpu.used += wanted.leak_bytes
        if wanted.breaks and step == wanted.steps // 2:
            gpu.ecc, gpu.lost = 2 * (wanted.breaks == "ecc"), wanted.breaks == "lost"
            time.sleep(2.5)
            raise RuntimeError("CUDA error: unspecified launch failure")
        began = time.perf_counter()
        optimizer.zero_grad()
        model(torch.randn(16, 64)).sum().backward()
        gpu.work(wanted.work)
        if wanted.keep_bytes and step >= wanted.first and not gpu.take(wanted.keep_bytes):
            if not wanted.retries:
                raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
            gpu.give_back()
        if wanted.churn and step >= wanted.first and step % wanted.every == 0:
            for _ in range(wanted.churn):
                gpu.take(MB)
                gpu.give_back()
        optimizer.step()
        slow += (time.perf_counter() - began - wanted.work) if lowered else 0.0
        if wanted.save and step % wanted.every == wanted.every - 1:
            with open(f"{wanted.save}/step-{step}.pt", "wb") as file:
                until = time.perf_counter() + SAVE_SECONDS
                while time.perf_counter() < until:
                    file.write(os.urandom(1 << 16))
                    os.fsync(file.fileno())
    print(f"slower by {slow:.3f} s", flush=True)


if __name__ == "__main__":
    main()
