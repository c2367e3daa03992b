"""The driver had to free memory itself before it got some."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Direct reclaim."""
    taken = take(left, states=[State.MEMORY])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.MEMORY_PRESSURE,
        taken,
        f"{told:.2f} s in direct reclaim",
        ["driver in direct reclaim"],
        [Evidence("driver in direct reclaim", told, "s", window.driver_pid)],
    )
