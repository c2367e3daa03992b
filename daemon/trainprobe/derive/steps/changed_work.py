"""Finds that a training's ordinary step has become another one: most of the latest steps are late by their own work."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field

from trainprobe.derive.average import median
from trainprobe.derive.steps.baseline import LEAST, Ordinary
from trainprobe.model.dataclass import dataclass

STEPS, LATEST = 32, 48
"""Late steps that make a new ordinary one, and the steps that they are among."""
ALIKE = 1.5
"""Times: so much at most they are longer or shorter than their median."""


@dataclass(slots=True)
class ChangedWork:
    """The latest steps: those late by their own work, and ordinary ones (None). Late ones that waited are left out."""

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

    def _add(self, step: Ordinary | None) -> None:
        if len(self._latest) == LATEST:
            self._late -= self._latest[0] is not None
        self._latest.append(step)
        self._late += step is not None
