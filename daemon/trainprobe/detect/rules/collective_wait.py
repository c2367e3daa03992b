"""The driver waits for other ranks of its run."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `collective`."""
    taken = take(left, states=[State.COLLECTIVE])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.COLLECTIVE_WAIT,
        taken,
        f"waiting for other ranks for {told:.2f} s",
        ["driver waits for other ranks"],
        [Evidence("driver waited for other ranks", told, "s", window.driver_pid)],
    )
