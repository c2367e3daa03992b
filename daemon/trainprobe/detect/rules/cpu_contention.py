"""The driver was runnable and had no CPU."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `runqueue`."""
    taken = take(left, states=[State.RUNQUEUE])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.CPU_CONTENTION,
        taken,
        f"runnable without a CPU for {told:.2f} s",
        ["driver waits for a CPU"],
        [Evidence("driver runnable, not on a CPU", told, "s", window.driver_pid)],
    )
