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
    seen = window.late.inspection
    peer = seen.peer if seen is not None else ""
    to = f" to {peer}" if peer else ""
    evidence = [Evidence("driver blocked on a socket", told, "s", window.driver_pid)]
    if peer:
        evidence.append(Evidence("peer", peer, "", window.driver_pid))
    return Claim(
        Cause.NETWORK,
        taken,
        f"waiting on a socket{to} for {told:.2f} s",
        [f"driver blocked on a socket{to}", *([f"{peer} does not answer"] if peer else [])],
        evidence,
    )
