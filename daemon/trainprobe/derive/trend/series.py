"""Figures by step, in a bounded number: what grew since a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import combinations

from trainprobe.model.dataclass import dataclass

KEEP = 64
AGREE = 0.6
LEAST = 0.02
"""Growth below this, of the figure itself, is noise."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A figure that rose over steps: its first and its last value among them."""

    name: str
    before: float
    after: float


@dataclass(slots=True)
class ThinnedSeries:
    """A bounded record; when it is full, every other point is removed, and half as many are added from then on."""

    points: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)
    _stride: int = 1
    _skipped: int = 0

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.points.append((step, figures))
        if len(self.points) > KEEP:
            del self.points[1::2]
            self._stride *= 2

    def grown(self, from_step: int) -> list[Grown]:
        """What grew from the last point at or before ``from_step`` on, most of its points in order; the most first."""
        later, found = self._since(from_step), []
        for name in later[-1][1] if len(later) >= 2 else ():
            values = [figures[name] for _, figures in later if name in figures]
            if len(values) >= 2 and _rises(values) and values[-1] - values[0] > LEAST * max(abs(values[0]), 1e-9):
                found.append(Grown(name, values[0], values[-1]))
        return sorted(found, key=lambda one: one.before - one.after)

    def ends(self, from_step: int) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """The figures at the last point at or before ``from_step``, and at the last one."""
        later = self._since(from_step)
        return (later[0][1], later[-1][1]) if later else ({}, {})

    def _since(self, from_step: int) -> list[tuple[int, Mapping[str, float]]]:
        first = max((i for i, (step, _) in enumerate(self.points) if step <= from_step), default=0)
        return self.points[first:]


def _rises(values: list[float]) -> bool:
    pairs = list(combinations(values, 2))
    return sum((late > early) - (late < early) for early, late in pairs) >= AGREE * len(pairs)
