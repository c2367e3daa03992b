"""The driver read swapped memory back."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import fit_memory
from trainprobe.causes.base import Claim, Items, Window, claimed, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

SUMMARY = template("swap.summary", "{seconds:seconds} in faults on swapped memory")
FAULTS = template("swap.faults", "training thread faults on swapped memory")
SECONDS = template("swap.seconds", "training thread in swap-in and the reclaim it needs")
MAJOR_FAULTS = template("swap.major_faults", "major faults of the training while swapped memory was read")


def claim(window: Window, left: Items) -> Claim | None:
    """Swap-in faults, and the reclaim that they need: each page that comes back takes the place of another one."""
    taken = take_items(left, states=[State.MEMORY], leaves=[Leaf.SWAP])
    reclaim = take_items(left, states=[State.MEMORY], leaves=[Leaf.RECLAIM])
    faults = window.swap_faults or 0
    served = faults * window.policy.reclaim_per_fault_ns >= sum(reclaim.values()) > 0
    if served or (taken and sum(taken.values()) * 4 >= sum(reclaim.values())):
        taken = {**taken, **reclaim}
    if not taken:
        return None
    evidence = [Evidence.of(MAJOR_FAULTS(), faults, "")] if faults else []
    return claimed(window, Cause.SWAP, taken, SUMMARY, [FAULTS()], SECONDS, *evidence)


SPEC = CauseSpec(
    "swap",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="swapping",
    colours=("#7e22ce", "#c084fc"),
    group=groups.MEMORY,
    rules=(OrderedRule(claim, stall=70, ordinary=20),),
    advice=fit_memory,
)
