"""Somebody stopped, traced or froze the driver."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """All time in which the driver was stopped."""
    taken = take(left, states=[State.STOPPED])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.SUSPENDED,
        taken,
        f"stopped for {told:.2f} s (SIGSTOP, a tracer or the freezer)",
        ["driver stopped"],
        [Evidence("driver stopped, traced or frozen", told, "s", window.driver_pid)],
    )
