"""Finds that a training's ordinary step has become another one: most of the latest steps are late by their own work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from trainprobe.derive.average import median
from trainprobe.derive.steps.baseline import LEAST, Ordinary
from trainprobe.derive.steps.interval import Interval
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cells import cell
from trainprobe.model.dataclass import dataclass

STEPS, LATEST, CHANGES = 32, 48, 16
"""Late steps that make a new ordinary one, the steps that they are among; changes that are kept."""
ALIKE = 1.5
"""Times: so much at most they are longer or shorter than their median."""


def without_waits(step: Ordinary, waits: Mapping[Item, float], pool: Sequence[float]) -> Ordinary:
    """A step as it would have been without these ``waits`` and with what workers usually do meanwhile (``pool``)."""
    made_of, cells = step.made_of, list(step.made_of.cells_after)
    for (_, region, leaf), ns in waits.items():
        cells[cell(region, leaf)] -= int(ns)
    workers = [before + int(ns) for before, ns in zip(made_of.pool_before, pool)]
    own = Interval(made_of.cells_before, cells, made_of.pool_before, workers, made_of.files, made_of.context)
    ns = step.ns - sum(map(int, waits.values()))
    return Ordinary(ns, own, step.fetches, step.backwards, (ns,))


@dataclass(frozen=True, slots=True)
class OrdinarySums:
    """Of all ordinary steps until a change, in ns."""

    items: Mapping[Item, float]
    ns: float
    count: int

    def since(self, before: OrdinarySums) -> OrdinarySums:
        items = {item: ns - before.items.get(item, 0.0) for item, ns in self.items.items()}
        return OrdinarySums(items, self.ns - before.ns, self.count - before.count)


_NONE = OrdinarySums({}, 0.0, 0)


@dataclass(slots=True)
class ChangedWork:
    """The latest steps: those that do more than they did, and ordinary ones (None). Other late ones are left out."""

    sums: deque[OrdinarySums] = field(default_factory=lambda: deque(maxlen=CHANGES))  # at each change
    _latest: deque[Ordinary | None] = field(default_factory=lambda: deque(maxlen=LATEST))
    _late: int = 0

    def add_ordinary(self) -> None:
        if self._late:
            self._add(None)

    def add_late(self, step: Ordinary) -> Sequence[Ordinary]:
        """The steps to learn anew from, once there are enough; else none."""
        self._add(step)
        if self._late < STEPS:
            return ()
        late = [one for one in self._latest if one is not None]
        middle = median(one.ns for one in late)
        alike = [one for one in late if middle / ALIKE <= one.ns <= middle * ALIKE]
        if len(alike) < max(LEAST, 3 * STEPS // 4):
            return ()
        self._latest.clear()
        self._late = 0
        return alike

    def between(self, now: OrdinarySums) -> Iterator[OrdinarySums]:
        """The sums between two changes each, of enough steps; none where the work never changed."""
        if self.sums:
            parts = (after.since(before) for before, after in pairwise((_NONE, *self.sums, now)))
            yield from (part for part in parts if part.count >= LEAST)

    def _add(self, step: Ordinary | None) -> None:
        if len(self._latest) == LATEST:
            self._late -= self._latest[0] is not None
        self._latest.append(step)
        self._late += step is not None
