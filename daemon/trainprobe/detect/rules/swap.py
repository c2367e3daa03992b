"""The driver, or the workers it waits for, read swapped memory back."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Swap-in faults; reclaim too when swap-in owns the larger part (then the reclaim serves the swapping)."""
    taken = take(left, states=[State.MEMORY], leaves=[Leaf.SWAP])
    reclaim = take(left, states=[State.MEMORY], leaves=[Leaf.RECLAIM])
    if not taken:
        return None
    if sum(taken.values()) * 4 >= sum(reclaim.values()):
        taken = {**taken, **reclaim}
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.SWAP,
        taken,
        f"{told:.2f} s in faults on swapped memory",
        ["driver faults on swapped memory"],
        [Evidence("driver in swap-in and the reclaim it needs", told, "s", window.driver_pid)],
    )
