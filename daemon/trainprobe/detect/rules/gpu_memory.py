"""The training takes memory from CUDA and gives it back again and again: the driver or the GPU stands still."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """As much of the GPU's waits as was spent in cudaMalloc and cudaFree; of a backward on other threads, which the
    driver waits for, the same."""
    churn = window.churn
    if churn.ns <= 0:
        return None
    taken: dict[Item, float] = {}
    for waits in (
        take(left, states=[State.GPU_WAIT]),
        take(left, leaves=[Leaf.LOCK], regions=[Region.BACKWARD]),
    ):
        total, open_ns = sum(waits.values()), churn.ns - sum(taken.values())
        if total > 0 and open_ns > 0:
            taken.update(take(waits, part=min(1.0, open_ns / total)))
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.GPU_MEMORY,
        taken,
        f"{told:.2f} s in cudaMalloc and cudaFree: {churn.allocations} allocations, {churn.frees} frees",
        ["driver allocates and frees memory of the GPU"],
        [
            Evidence("seconds in cudaMalloc and cudaFree", seconds(churn.ns), "s", window.driver_pid),
            Evidence("allocations of GPU memory", churn.allocations, "", window.driver_pid),
            Evidence("frees of GPU memory", churn.frees, "", window.driver_pid),
        ],
    )
