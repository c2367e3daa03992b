"""The driver waits on a socket that is neither the loader's nor another rank's."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `network`."""
    taken = take(left, states=[State.NETWORK])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.NETWORK,
        taken,
        f"waiting on a socket for {told:.2f} s",
        ["driver blocked on a socket"],
        [Evidence("driver blocked on a socket", told, "s", window.driver_pid)],
    )
