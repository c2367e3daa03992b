"""The driver had to free memory itself before it got some."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import fit_memory
from trainprobe.causes.base import Claim, Items, Window, claimed, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.message import template

SUMMARY = template("memory_pressure.summary", "{seconds:seconds} in direct reclaim")
IN_RECLAIM = template("memory_pressure.in_reclaim", "training thread in direct reclaim")
SECONDS = template("memory_pressure.seconds", "training thread in direct reclaim")


def claim(window: Window, left: Items) -> Claim | None:
    taken = take_items(left, states=[State.MEMORY])
    return claimed(window, Cause.MEMORY_PRESSURE, taken, SUMMARY, [IN_RECLAIM()], SECONDS) if taken else None


SPEC = CauseSpec(
    "memory_pressure",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="memory pressure",
    colours=("#9333ea", "#d8b4fe"),
    group=groups.MEMORY,
    rules=(OrderedRule(claim, stall=80, ordinary=30),),
    advice=fit_memory,
)
