"""What an ordinary step is: the median length and the mean make-up of the last unstalled training steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from trainprobe.derive.ledger import Item
from trainprobe.model.cells import LEAVES

WINDOW = 64
LEAST = 8


@dataclass(frozen=True, slots=True)
class Ordinary:
    """One unstalled step."""

    ns: int
    items: Mapping[Item, int]
    pool: Sequence[int]
    fetches: int
    backwards: int


@dataclass(slots=True)
class Baseline:
    """Rolling statistics of the last WINDOW unstalled steps; sums are kept, so that adding one is cheap."""

    steps: deque[Ordinary] = field(default_factory=deque)
    _items: dict[Item, int] = field(default_factory=dict)
    _pool: list[int] = field(default_factory=lambda: [0] * LEAVES)
    _median: float | None = None

    def add(self, step: Ordinary) -> None:
        """Take in one ordinary step, forget the oldest beyond the window."""
        self.steps.append(step)
        self._sum(step, 1)
        if len(self.steps) > WINDOW:
            self._sum(self.steps.popleft(), -1)
        self._median = None

    def _sum(self, step: Ordinary, sign: int) -> None:
        for item, ns in step.items.items():
            left = self._items.get(item, 0) + sign * ns
            if left:
                self._items[item] = left
            else:
                self._items.pop(item, None)
        for leaf, ns in enumerate(step.pool):
            if ns:
                self._pool[leaf] += sign * ns

    @property
    def stands(self) -> bool:
        """Whether there are enough steps to judge by."""
        return len(self.steps) >= LEAST

    @property
    def ns(self) -> float:
        """Median length of a step in ns; 0 before the first."""
        if self._median is None:
            self._median = float(median(step.ns for step in self.steps)) if self.steps else 0.0
        return self._median

    def items(self) -> dict[Item, float]:
        """Mean ns of each item per step."""
        count = len(self.steps)
        return {item: ns / count for item, ns in self._items.items()} if count else {}

    def pool(self) -> list[float]:
        """Mean ns per step of all worker processes together, by leaf."""
        count = max(len(self.steps), 1)
        return [ns / count for ns in self._pool]

    def fetches(self) -> float:
        """Median fetches of a step."""
        return float(median(step.fetches for step in self.steps)) if self.steps else 0.0

    def backwards(self) -> float:
        """Median backwards of a step."""
        return float(median(step.backwards for step in self.steps)) if self.steps else 0.0
