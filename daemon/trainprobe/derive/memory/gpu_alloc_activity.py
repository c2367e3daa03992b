"""GPU allocation activity: calls of CUDA that allocate and free, between two rows of a driver."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.model.event import MarkRow


@dataclass(frozen=True, slots=True)
class Churn:
    """Of all threads of a process: PyTorch allocates on the driver and on the threads of its backward."""

    ns: int = 0  # in these calls
    allocations: int = 0
    frees: int = 0

    def __add__(self, other: Churn) -> Churn:
        if other is NONE:  # of every step where there is no GPU
            return self
        return Churn(self.ns + other.ns, self.allocations + other.allocations, self.frees + other.frees)


NONE = Churn()


def churn(before: MarkRow, after: MarkRow) -> Churn:
    """What happened between two rows of one process."""
    if not after.gpu_memory_ns:
        return NONE
    return Churn(
        max(0, after.gpu_memory_ns - before.gpu_memory_ns),
        max(0, after.gpu_allocations - before.gpu_allocations),
        max(0, after.gpu_frees - before.gpu_frees),
    )
