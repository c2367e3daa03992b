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
    evidence = [Evidence("driver runnable but throttled", told, "s", window.driver_pid)]
    chain = ["driver runnable, its cgroup throttled"]
    quota, text = window.quota, f"{told:.2f} s throttled by the cgroup's CPU quota"
    if quota is not None and quota.quota_cpus is not None:
        text += f" of {quota.quota_cpus:g} CPUs"
        evidence.append(Evidence("quota", round(quota.quota_cpus, 3), "CPUs", None, quota.cgroup or None))
    if quota is not None and quota.periods > 0:
        chain.append(
            f"cgroup {quota.cgroup or '/'}: quota used up in {quota.throttled_periods} of {quota.periods} periods"
        )
        evidence.append(Evidence("periods throttled", round(quota.throttled_periods / quota.periods, 3), "ratio"))
        evidence.append(Evidence("throttled, all processors", seconds(quota.throttled_ns), "s"))
    return Claim(Cause.CPU_THROTTLED, taken, text, chain, evidence)
