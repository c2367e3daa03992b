"""The driver was runnable and had no CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.model.sample import RivalSample

_BUSY = 0.2
"""CPUs from which on a process is named."""
_STOLEN = 0.02


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
    others, own = _users(window)
    if others:
        chain.append(f"others use {_listed(others)}")
        evidence += [Evidence(f"{r.comm} uses", round(r.cpus, 2), "CPUs", r.pid) for r in others[:3]]
    if own:
        chain.append(f"the training itself uses {sum(r.cpus for r in own):.1f} CPUs in {len(own)} processes")
        evidence.append(Evidence("the training's own processes use", round(sum(r.cpus for r in own), 2), "CPUs"))
    if window.stolen is not None and window.stolen >= _STOLEN:
        chain.append(f"the hypervisor took {window.stolen:.0%} of the processors")
        evidence.append(Evidence("taken by the hypervisor", round(window.stolen, 3), "ratio"))
    who = f": {others[0].comm} ({others[0].pid}) and others" if len(others) > 1 else ""
    who = f": {others[0].comm} ({others[0].pid})" if len(others) == 1 else who
    summary = f"runnable without a CPU for {told:.2f} s{who}"
    return Claim(Cause.CPU_CONTENTION, taken, summary, chain, evidence)


def claim_stolen(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """What nothing else explains while the hypervisor kept the processors: a timer, a wake-up or a batch came late.

    The kernel does not run meanwhile, so no run queue shows it; it counts what was taken, and that bounds the claim.
    """
    share, spent = window.stolen, max(window.end_ns - window.start_ns, NS)
    taken = take(left)
    lost = sum(taken.values())
    if share is None or share < window.policy.stolen_share or not 0 < lost <= share * spent * max(1, window.cpus):
        return None
    return Claim(
        Cause.CPU_CONTENTION,
        taken,
        f"the hypervisor took {share:.0%} of the processors",
        ["the driver's processor was taken away", f"the hypervisor took {share:.0%} of the processors"],
        [
            Evidence("late without a reason in this host", seconds(lost), "s", window.driver_pid),
            Evidence("taken by the hypervisor", round(share, 3), "ratio"),
        ],
    )


def _users(window: Window) -> tuple[list[RivalSample], list[RivalSample]]:
    """The busiest processes that are not the run's, and those that are."""
    busy = [rival for rival in window.rivals if rival.cpus >= _BUSY]
    return [r for r in busy if r.pid not in window.own], [r for r in busy if r.pid in window.own]


def _listed(rivals: Sequence[RivalSample]) -> str:
    names = ", ".join(f"{rival.comm} ({rival.pid}) {rival.cpus:.1f}" for rival in rivals[:3])
    return f"{sum(rival.cpus for rival in rivals):.1f} CPUs: {names}"
