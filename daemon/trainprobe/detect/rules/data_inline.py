"""The driver loads its data itself, between two steps."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `data_inline`."""
    taken = take(left, states=[State.DATA_INLINE])
    if not taken:
        return None
    total = sum(taken.values())
    reads = sum(ns for (_, _, leaf), ns in taken.items() if leaf in (Leaf.FILE_READ, Leaf.READ_CPU))
    cpu = sum(ns for (_, _, leaf), ns in taken.items() if leaf == Leaf.CPU)
    return Claim(
        Cause.DATA_INLINE,
        taken,
        f"the driver loaded its own data for {seconds(total):.2f} s",
        ["driver loads a batch itself"],
        [
            Evidence("driver in its own loading", seconds(total), "s", window.driver_pid),
            Evidence("of it reading files", seconds(reads), "s", window.driver_pid),
            Evidence("of it on the CPU", seconds(cpu), "s", window.driver_pid),
        ],
    )
