"""What a training of the kit computes on: a real GPU, or one on paper behind stand-in libraries of NVML and CUDA."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "limits" / "trainings"))
from on_a_gpu import Gpu

MB = 1 << 20
Interval = tuple[float, float]


class Device(Protocol):
    name: str
    backend: str
    compile_options: dict[str, Any]

    def work(self, seconds: float, stream: int = 0) -> None:
        """Kernels that take so long, launched."""

    def wait(self) -> None:
        """Until all of it is done, in CUDA."""

    def mark(self) -> Any:
        """A moment of the GPU's own time: when it gets here."""

    def between(self, first: Any, second: Any) -> float:
        """Seconds of the GPU's time between two marks that have passed."""

    def churn(self, seconds: float) -> None:
        """Allocate and give back, past any cache, for so long."""

    def exhaust(self) -> bool:
        """Ask for more memory than there is, and go on: whether it was refused."""

    def synchronize(self, calls: int) -> None:
        """Wait for a GPU that has nothing to do."""

    def profile_begin(self) -> None: ...

    def profile_end(self) -> list[Interval]:
        """When kernels ran since then, in seconds."""


class RealGpu:
    """The first GPU of this process."""

    backend, compile_options = "nccl", {"mode": "reduce-overhead"}
    SIZE, TRIES = 2048, 20

    def __init__(self) -> None:
        self.name = "cuda"
        self._streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        self._matrices = [torch.randn(self.SIZE, self.SIZE, device="cuda") for _ in range(3)]
        self._each = 0.0
        self._profile: Any = None
        for _ in range(2):  # the first one also loads the kernel
            begin = self.mark()
            for _ in range(self.TRIES):
                self._matrices[0] @ self._matrices[0]
            end = self.mark()
            torch.cuda.synchronize()
            self._each = self.between(begin, end) / self.TRIES

    def work(self, seconds: float, stream: int = 0) -> None:
        with torch.cuda.stream(self._streams[stream]):
            for _ in range(max(1, round(seconds / self._each))):
                self._matrices[stream] @ self._matrices[stream]

    def wait(self) -> None:
        torch.cuda.synchronize()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / 1000

    def churn(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            block = torch.empty(64 * MB, dtype=torch.uint8, device="cuda")
            del block
            torch.cuda.empty_cache()

    def exhaust(self) -> bool:
        free, _ = torch.cuda.mem_get_info()
        try:
            torch.empty(free + (1 << 30), dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            return True
        return False

    def synchronize(self, calls: int) -> None:
        stream = self._streams[0]
        for _ in range(calls):
            stream.synchronize()

    def profile_begin(self) -> None:
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self._profile.start()

    def profile_end(self) -> list[Interval]:
        self._profile.stop()
        kernels = [one for one in self._profile.events() if one.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [one for one in kernels if not one.name.startswith(("Memcpy", "Memset"))]
        return [(one.time_range.start / 1e6, one.time_range.end / 1e6) for one in kernels]


class PaperGpu:
    """Waits in a stand-in libcudart; NVML's figures go to the file that FAKE_NVML names."""

    name, backend, compile_options = "cpu", "gloo", {"backend": "eager"}
    CALL_SECONDS = 0.002

    def __init__(self, libraries: str) -> None:
        self._gpu = Gpu(Path(os.environ["FAKE_NVML"]), 24 << 30, libraries)
        self._gpu.limit(8 << 30, self.CALL_SECONDS)
        self._worked: list[Interval] = []

    def work(self, seconds: float, stream: int = 0) -> None:  # noqa: ARG002
        begun = time.perf_counter()
        self._gpu.work(seconds)
        self._worked.append((begun, time.perf_counter()))

    def wait(self) -> None:
        """Its work has done so."""

    def mark(self) -> float:
        return time.perf_counter()

    def between(self, first: float, second: float) -> float:
        return second - first

    def churn(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._gpu.take(MB)
            self._gpu.give_back()

    def exhaust(self) -> bool:
        return not self._gpu.take(9 << 30)

    def synchronize(self, calls: int) -> None:
        assert self._gpu.calls is not None
        self._gpu.calls.many(calls)

    def profile_begin(self) -> None:
        self._worked.clear()

    def profile_end(self) -> list[Interval]:
        return self._worked


def gaps(worked: Sequence[Interval], least: float) -> list[float]:
    """Seconds of each pause of so long or longer between kernels, in order."""
    found, until = [], None
    for begin, end in sorted(worked):
        if until is not None and begin - until >= least:
            found.append(round(begin - until, 3))
        until = max(end, until or end)
    return found
