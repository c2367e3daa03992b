"""The baseline: the median length and the mean parts of the last unstalled training steps."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field

from trainprobe.derive.steps.interval import Interval, items_of, pool_of
from trainprobe.derive.steps.ledger import Item
from trainprobe.derive.steps.untrained_batches import UsualBatch
from trainprobe.model.cells import COMPUTING, Region
from trainprobe.model.dataclass import dataclass

WINDOW = 64
LEAST = 8
TOGETHER = 8
"""Adjacent steps whose parts are kept as one: each holds on to the whole ledger of two marks, 2.5 kB."""
_FORWARD = (Region.STEP, Region.NO_GRAD)


@dataclass(slots=True)  # each step makes one: frozen, it would take three times as long
class Ordinary:
    """One unstalled step, or several even ones of one row."""

    ns: int  # of all of them
    made_of: Interval
    fetches: int
    backwards: int
    lengths: Sequence[int]  # ns of each

    @property
    def steps(self) -> int:
        return len(self.lengths)


@dataclass(slots=True)
class RunningMedian:
    """The median of a sliding set of values, kept in order so that it needs no sorting."""

    _ordered: list[int] = field(default_factory=list)

    def exchange(self, old: int | None, new: int) -> None:
        """Adds a value and removes one that was added before."""
        if old == new:
            return
        if old is not None:
            del self._ordered[bisect_left(self._ordered, old)]
        insort(self._ordered, new)

    @property
    def value(self) -> float:
        count = len(self._ordered)
        if not count:
            return 0.0
        return (self._ordered[(count - 1) // 2] + self._ordered[count // 2]) / 2


@dataclass(slots=True)
class Baseline:
    """Rolling statistics of the last WINDOW unstalled steps. Adding one is cheap; their parts are computed only
    when they are needed, which is when a step is late."""

    told: deque[Ordinary] = field(default_factory=deque)  # few together
    steps: int = 0  # in them: WINDOW, or somewhat more
    _each: deque[tuple[int, int, int]] = field(default_factory=deque)  # ns, fetches and backwards of WINDOW steps
    _ns: RunningMedian = field(default_factory=RunningMedian)
    _fetches: RunningMedian = field(default_factory=RunningMedian)
    _backwards: RunningMedian = field(default_factory=RunningMedian)
    _items: dict[Item, float] | None = None
    _pool: list[float] | None = None

    def add(self, step: Ordinary) -> None:
        """Adds ordinary steps and removes the oldest beyond the window."""
        last = self.told[-1] if self.told else None
        if last is not None and last.steps + step.steps <= TOGETHER and last.made_of.extend(step.made_of):
            lengths = (*last.lengths, *step.lengths)
            fetches, backwards = last.fetches + step.fetches, last.backwards + step.backwards
            self.told[-1] = Ordinary(last.ns + step.ns, last.made_of, fetches, backwards, lengths)
        else:
            self.told.append(Ordinary(step.ns, step.made_of.copy(), step.fetches, step.backwards, step.lengths))
        self.steps += step.steps
        while len(self.told) > 1 and self.steps - self.told[0].steps >= WINDOW:
            self.steps -= self.told.popleft().steps
        fetches, backwards = step.fetches // step.steps, step.backwards // step.steps
        for ns in step.lengths:
            old = self._each.popleft() if len(self._each) >= WINDOW else (None, None, None)
            self._each.append((ns, fetches, backwards))
            self._ns.exchange(old[0], ns)
            self._fetches.exchange(old[1], fetches)
            self._backwards.exchange(old[2], backwards)
        self._items = self._pool = None

    def freeze(self) -> None:
        """No more steps come: keep the figures, and not what they were computed from."""
        self.items()
        self.pool()
        self.told.clear()

    @property
    def stands(self) -> bool:
        """Whether there are enough steps to judge by."""
        return self.steps >= LEAST

    @property
    def ns(self) -> float:
        """Median length of a step in ns; 0 before the first."""
        return self._ns.value

    def items(self) -> Mapping[Item, float]:
        """Mean ns of each item per step."""
        if self._items is None:
            self._items = {item: ns / self.steps for item, ns in items_of(s.made_of for s in self.told).items()}
        return self._items

    def pool(self) -> Sequence[float]:
        """Mean ns per step of all worker processes together, by leaf."""
        if self._pool is None:
            count = max(self.steps, 1)
            self._pool = [ns / count for ns in pool_of(s.made_of for s in self.told)]
        return self._pool

    def fetches(self) -> float:
        return self._fetches.value

    def extra_fetches(self, fetches: int, backwards: float, steps: int = 1) -> float:
        """Batches beyond those of so many backwards, of ``fetches`` in ``steps`` steps. Accumulation carries what an
        epoch leaves over into the next one's first step, which has more of both. Where no backward is seen, beyond
        those of so many steps."""
        usual = self.backwards()
        return fetches - self.fetches() * (backwards / usual if usual and backwards else steps)

    def open_extra_fetches(self, fetches: int, backwards: int) -> float:
        """The same of a step that has had so many so far: it has as many backwards as usual at least."""
        return self.extra_fetches(fetches, max(self.backwards(), backwards))

    def batch(self) -> UsualBatch:
        forward = sum(ns for (_, region, leaf), ns in self.items().items() if region in _FORWARD and leaf in COMPUTING)
        fetches = self.fetches()
        return UsualBatch(fetches / max(1.0, self.backwards()), forward / max(1.0, fetches))

    def backwards(self) -> float:
        return self._backwards.value
