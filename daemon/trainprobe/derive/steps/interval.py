"""What a driver did between two rows, kept as the rows have it; states are computed only when they are needed.

A training makes tens of steps a second and few of them are needed singly; their sums are. Adjacent intervals are merged
to one, whose cells are the difference of its ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter, sub

from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.steps.ledger import Item, WaitContext, by_state, flatten, states_of_cells
from trainprobe.model.cause import State
from trainprobe.model.cells import LEAVES
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import StepFile

MOST_FILES = 64
"""Entries of files that an interval carries, at most, before its states are computed."""
Files = Sequence[tuple[StepFile, FileClass, str]]
"""Written files with their classes and paths."""


@dataclass(slots=True)  # each step makes one: frozen, it would take three times as long
class Interval:
    """Cells and the workers' pool as they stood at both ends (cumulative, ns), and the files written in between."""

    cells_before: Sequence[int]
    cells_after: Sequence[int]
    pool_before: Sequence[int]
    pool_after: Sequence[int]
    files: Files
    context: WaitContext

    def items(self) -> dict[Item, int]:
        delta = [after - before for after, before in zip(self.cells_after, self.cells_before)]
        return flatten(delta, [(use, of) for use, of, _ in self.files], self.context)

    def cell(self, place: int) -> int:
        return self.cells_after[place] - self.cells_before[place]

    def pool(self) -> list[int]:
        """ns of all worker processes together, by leaf."""
        return [after - before for after, before in zip(self.pool_after, self.pool_before)]

    def copy(self) -> Interval:
        """A copy to extend: intervals of single steps are shared."""
        return Interval(
            self.cells_before, self.cells_after, self.pool_before, self.pool_after, self.files, self.context
        )

    def extend(self, later: Interval) -> bool:
        """Merges ``later`` into this one where it begins at this end and has the same wait context; else returns
        False."""
        if later.cells_before is not self.cells_after:
            return False
        if later.context is not self.context and later.context != self.context:
            return False
        if later.files:
            if len(self.files) + len(later.files) > MOST_FILES:
                return False
            self.files = [*self.files, *later.files]
        self.cells_after, self.pool_after = later.cells_after, later.pool_after
        return True


def states_of(intervals: Sequence[Interval]) -> list[dict[State, float]]:
    """ns by state of each: as ``by_state(items())``, at a tenth of its cost where the intervals are adjacent."""
    out: list[dict[State, float]] = []
    begin = 0
    for end in range(1, len(intervals) + 1):
        if end == len(intervals) or intervals[end].cells_before is not intervals[end - 1].cells_after:
            out += _states_of_chain(intervals[begin:end])
            begin = end
    return out


def _states_of_chain(intervals: Sequence[Interval]) -> Iterator[dict[State, float]]:
    """Cells only grow, and most stay 0: those that are 0 at both ends are skipped."""
    ends = zip(intervals[0].cells_before, intervals[-1].cells_after)
    used = tuple(place for place, (first, last) in enumerate(ends) if first or last)
    values_of = itemgetter(*used, 0, 1)  # at least two, so that it gives a tuple
    before = values_of(intervals[0].cells_before)
    for interval in intervals:
        after = values_of(interval.cells_after)
        states = _states_of_used(interval, used)
        yield _summed(map(sub, after, before), states) if states is not None else by_state(interval.items())
        before = after


def _states_of_used(interval: Interval, used: tuple[int, ...]) -> Sequence[State | None] | None:
    """The states of these cells; None: files of several classes were written, whose parts must be computed."""
    written = saving = None
    for use, of, _ in interval.files:
        if use.io_ns:
            if written not in (None, of):
                return None
            written = of
        if use.gap_ns:
            if saving not in (None, of is FileClass.CHECKPOINT):
                return None
            saving = of is FileClass.CHECKPOINT
    return _chosen(interval.context, written, bool(saving), used)


@lru_cache(maxsize=64)
def _chosen(
    context: WaitContext, written: FileClass | None, saving: bool, used: tuple[int, ...]
) -> tuple[State | None, ...]:
    states = states_of_cells(context, written, saving)
    return tuple(states[place] if place < len(states) else None for place in used)


def _summed(values: Iterable[int], states: Sequence[State | None]) -> dict[State, float]:
    out: dict[State, float] = {}
    for ns, state in zip(values, states):
        if ns and state is not None:
            out[state] = out.get(state, 0) + ns
    return out


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time in as few intervals as possible; given in time order."""
    out: list[Interval] = []
    for interval in intervals:
        if not out or not out[-1].extend(interval):
            out.append(interval.copy())
    return out


def items_of(intervals: Iterable[Interval]) -> dict[Item, int]:
    out: dict[Item, int] = {}
    for interval in joined(intervals):
        for item, ns in interval.items().items():
            out[item] = out.get(item, 0) + ns
    return out


def pool_of(intervals: Iterable[Interval]) -> list[int]:
    out = [0] * LEAVES
    for interval in joined(intervals):
        out = [total + ns for total, ns in zip(out, interval.pool())]
    return out
