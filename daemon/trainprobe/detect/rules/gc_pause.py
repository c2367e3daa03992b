"""Python's garbage collector ran on the driver."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Time in the collector, in whatever the training was doing, where the interpreter tells of it."""
    taken = take(left, leaves=[Leaf.COLLECTOR])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    where = window.stack[-1] if window.stack else ""
    chain = ["driver in Python's garbage collector"] + ([f"it set in at {where}"] if where else [])
    return Claim(
        Cause.GC_PAUSE,
        taken,
        f"Python's garbage collector ran for {told:.2f} s",
        chain,
        [Evidence("driver in Python's garbage collector", told, "s", window.driver_pid)],
    )
