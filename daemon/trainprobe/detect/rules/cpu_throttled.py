"""The cgroup's CPU quota was used up."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Throttled time; waiting for a CPU beside it is the quota's doing too when throttling is the larger part."""
    taken = take(left, leaves=[Leaf.THROTTLED])
    if not taken:
        return None
    queued = take(left, leaves=[Leaf.RUNQUEUE])
    if sum(taken.values()) >= sum(queued.values()):
        taken = {**taken, **queued}
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.CPU_THROTTLED,
        taken,
        f"{told:.2f} s throttled by the cgroup's CPU quota",
        ["driver runnable, its cgroup throttled"],
        [Evidence("driver runnable but throttled", told, "s", window.driver_pid)],
    )
