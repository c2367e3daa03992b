"""Python (or other serial work) on the driver holds the training up while one core is busy."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Compute between the marks: on a CPU, outside of backward, optimiser and fetch."""
    taken = take(left, states=[State.COMPUTE], leaves=[Leaf.CPU, Leaf.FILE_GAP], regions=[Region.STEP, Region.NO_GRAD])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    where = window.stack[-1] if window.stack else ""
    return Claim(
        Cause.CPU_BOUND,
        taken,
        f"{told:.2f} s of CPU in {where}"
        if where
        else f"{told:.2f} s of CPU in the driver, outside of forward and backward",
        [f"driver on the CPU in {where}" if where else "driver on the CPU between the training's marks"],
        [Evidence("driver on the CPU beyond an ordinary step", told, "s", window.driver_pid)],
    )
