"""The driver read swapped memory back."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Swap-in faults, and the reclaim that they need: each page that comes back takes the place of another one."""
    taken = take(left, states=[State.MEMORY], leaves=[Leaf.SWAP])
    reclaim = take(left, states=[State.MEMORY], leaves=[Leaf.RECLAIM])
    faults = window.swap_faults or 0
    served = faults * window.policy.reclaim_per_fault_ns >= sum(reclaim.values()) > 0
    if served or (taken and sum(taken.values()) * 4 >= sum(reclaim.values())):
        taken = {**taken, **reclaim}
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    evidence = [Evidence("driver in swap-in and the reclaim it needs", told, "s", window.driver_pid)]
    if faults:
        evidence.append(Evidence("major faults of the driver while swapped memory was read", faults, ""))
    return Claim(
        Cause.SWAP,
        taken,
        f"{told:.2f} s in faults on swapped memory",
        ["driver faults on swapped memory"],
        evidence,
    )
