"""Steps that grow: how much that cost, in which state, and what grew along."""

from __future__ import annotations

from collections.abc import Collection

from trainprobe.derive.ledger import Item
from trainprobe.derive.series import Grown
from trainprobe.derive.trend import Growth
from trainprobe.detect.base import Claim, seconds
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.pipeline.rank import RankFold

COUNTERS = {
    "pss_bytes": ("memory", "bytes"),
    "open_fds": ("open files", ""),
    "threads": ("threads", ""),
    "workers": ("worker processes", ""),
    "log_bytes": ("bytes of logs", "bytes"),
}
"""Figures that may grow with the step, with their words and units."""


def drift(fold: RankFold, claimed: Collection[State]) -> Claim | None:
    """What the ordinary steps lost to their growth, without the states that other causes own already."""
    growth = fold.trend.growth or fold.trend.last
    lost = fold.trend.lost_ns
    if growth is None or lost < fold.policy.drift_least * fold.ordinary_ns:
        return None
    states = fold.makeup.grown(growth.from_step)
    total = sum(one.after - one.before for one in states)
    free = [one for one in states if State(one.name) not in claimed]
    if states and not free:
        return None
    part = sum(one.after - one.before for one in free) / total if total > 0 else 1.0
    state = State(free[0].name) if free else State.COMPUTE
    taken: dict[Item, float] = {(state, Region.STEP, Leaf.OTHER): lost * part}
    counters = fold.counters.grown(growth.from_step)
    return Claim(Cause.DRIFT, taken, _told(growth, free, counters), [], _evidence(fold, growth, free, counters))


def _told(growth: Growth, states: list[Grown], counters: list[Grown]) -> str:
    text = (
        f"the step grew from {growth.from_ns / NS * 1e3:.0f} to {growth.to_ns / NS * 1e3:.0f} ms "
        f"({growth.ratio:+.0%}) in {growth.to_step - growth.from_step} steps, "
        f"{growth.per_1000_steps / NS * 1e3:+.1f} ms per 1000 steps"
    )
    if states:
        text += f"; what grew is {states[0].name}"
    if counters:
        text += f", and with it {COUNTERS[counters[0].name][0]}"
    return text


def _evidence(fold: RankFold, growth: Growth, states: list[Grown], counters: list[Grown]) -> list[Evidence]:
    pid = fold.seen.pid
    found = [
        Evidence("step before", seconds(growth.from_ns), "s", pid),
        Evidence("step now", seconds(growth.to_ns), "s", pid),
        Evidence("growth per 1000 steps", seconds(growth.per_1000_steps), "s", pid),
    ]
    found += [
        Evidence(f"{one.name} grew by, each step", seconds(one.after - one.before), "s", pid) for one in states[:2]
    ]
    for one in counters[:2]:
        words, unit = COUNTERS[one.name]
        found += [
            Evidence(f"{words} before", round(one.before), unit, pid),
            Evidence(f"{words} now", round(one.after), unit, pid),
        ]
    return found
