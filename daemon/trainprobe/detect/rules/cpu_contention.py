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
    evidence = [Evidence("driver runnable, not on a CPU", told, "s", window.driver_pid)]
    chain = ["driver waits for a CPU"]
    seen = window.late.inspection
    cpus = seen.allowed_cpus if seen is not None else None
    if cpus is not None and window.cpus and cpus < window.cpus:
        chain.append(f"its affinity leaves it {cpus} of {window.cpus} processors")
        evidence.append(Evidence("processors that its affinity leaves it", cpus, "", window.driver_pid))
    if window.workers and window.cpus and window.workers + 1 > (cpus or window.cpus):
        chain.append(f"{window.workers} workers and the driver share {cpus or window.cpus} processors")
        evidence.append(Evidence("workers", window.workers, "", window.driver_pid))
    return Claim(Cause.CPU_CONTENTION, taken, f"runnable without a CPU for {told:.2f} s", chain, evidence)
