"""GPU allocation activity: calls of CUDA that allocate and free, between two rows of a driver."""

from __future__ import annotations

from trainprobe.model.event import NO_GPU_MEMORY_CALLS, GpuMemoryCalls, MarkRow


def churn(before: MarkRow, after: MarkRow) -> GpuMemoryCalls:
    """What happened between two rows of one process."""
    now, then = after.gpu_memory, before.gpu_memory
    if not now.ns:
        return NO_GPU_MEMORY_CALLS
    return GpuMemoryCalls(
        max(0, now.ns - then.ns), max(0, now.allocations - then.allocations), max(0, now.frees - then.frees)
    )
