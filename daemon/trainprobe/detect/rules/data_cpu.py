"""Making batches costs more CPU than the workers have."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds
from trainprobe.detect.waiting import CPU, shares, waited
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The wait's share in which workers were on a CPU or wanted one."""
    busy = shares(window)
    taken = waited(window, left, busy.cpu / (1 - busy.storage) if busy.storage < 1 else 0.0)
    if not taken:
        return None
    spent = window.pool_ns(*CPU)
    return Claim(
        Cause.DATA_CPU,
        taken,
        f"workers spent {seconds(spent):.2f} s of CPU on the batch it waited for",
        ["driver waits for its workers", "workers on the CPU"],
        [
            Evidence("driver waited for data", seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence("workers on the CPU or runnable, beyond an ordinary step", seconds(spent), "s"),
            Evidence("workers", window.workers, ""),
        ],
    )
