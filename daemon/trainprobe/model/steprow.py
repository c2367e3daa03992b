"""Lengths of steps, one or several in a row: the timeline of a rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from trainprobe.model.dataclass import dataclass


@dataclass(slots=True)
class StepRow:
    """One step, or neighbouring ones. ``states`` adds up to ``seconds`` as far as the ledger was read."""

    start: float  # UNIX seconds, of the first step
    seconds: float  # of all of them together
    count: int
    min: float  # seconds of the shortest
    max: float
    states: dict[str, float] = field(default_factory=dict)  # seconds by state; states that took none are left out

    @property
    def end(self) -> float:
        """UNIX seconds when the last step ended, unless there was time between them."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Rows of one rank in time order."""

    run: str
    rank: str  # its name: "0", or "0.1" for a further driver of the same process
    rows: Sequence[StepRow]


@dataclass(frozen=True, slots=True)
class Tier:
    """How finely steps are kept, and for how long."""

    name: str
    width: float  # seconds: steps that begin in the same stretch of this length share a row
    keep: float | None  # seconds; None: as long as the history is kept


TIERS = (
    Tier("step", 0.02, 900.0),  # each step, unless there are more than fifty a second
    Tier("10s", 10.0, 86_400.0),
    Tier("5min", 300.0, None),
)
"""From fine to coarse."""
ROUNDING = 1e-3  # seconds: an end is a sum


def joined(rows: Iterable[StepRow]) -> StepRow:
    """One row for all of them (at least one; in time order)."""
    first, *rest = rows
    if not rest:
        return first
    states = dict(first.states)
    for row in rest:
        for state, seconds in row.states.items():
            states[state] = states.get(state, 0.0) + seconds
    every = (first, *rest)
    return StepRow(
        first.start,
        sum(row.seconds for row in every),
        sum(row.count for row in every),
        min(row.min for row in every),
        max(row.max for row in every),
        states,
    )


def thinned(rows: Sequence[StepRow], points: int) -> list[StepRow]:
    """At most ``points`` rows over the same time: neighbours are joined, evenly by time, so that no extreme is lost."""
    if len(rows) <= points:
        return list(rows)
    begin = rows[0].start
    width = max(rows[-1].start - begin, 1e-6) / points
    groups: dict[int, list[StepRow]] = {}
    for row in rows:
        groups.setdefault(min(int((row.start - begin) / width), points - 1), []).append(row)
    return [joined(group) for group in groups.values()]


def stitched(tiers: Sequence[list[StepRow]], since: float, points: int) -> list[StepRow]:
    """Rows of all tiers, from fine to coarse, as one: those of the tier that has the wanted resolution.

    Where it has nothing, the coarser ones before it and the finer after.
    """
    every = [row for rows in tiers for row in rows]
    if not every:
        return []
    span = max(row.end for row in every) - min(row.start for row in every)
    wanted = max(place for place, tier in enumerate(TIERS) if place == 0 or tier.width <= span / points)
    rows = list(tiers[wanted])
    for coarser in tiers[wanted + 1 :]:
        if rows and rows[0].start <= since + ROUNDING:
            break  # it reaches back far enough
        before = [row for row in coarser if not rows or row.start < rows[0].start - ROUNDING]
        rows = before + [row for row in rows if not before or row.start >= before[-1].end - ROUNDING]
    for finer in reversed(tiers[:wanted]):
        rows += [row for row in finer if not rows or row.start >= rows[-1].end - ROUNDING]
    return rows
