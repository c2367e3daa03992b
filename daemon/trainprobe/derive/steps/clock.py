"""The step clock: which marks of a driver are the boundaries of its steps.

A step is the group that recurs between two occurrences of the first optimiser's step after a backward; where
optimisers leave no mark, the outermost backward. Optimisers are told apart by name, and where the names are the same
(a GAN with Adam twice) by the group that recurs: several optimiser steps for each batch fetched, a repeating count of
backwards, backwards of some lengths that recur in one order (an actor and its critic), or long and short ones in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise

from trainprobe.derive.average import median
from trainprobe.model.cells import LEAVES, Leaf, Region, RowKind
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import MarkRow
from trainprobe.model.resume_state import KeptClock
from trainprobe.model.text import StrEnum

LEARN = 8  # optimiser steps to see before the group is decided
GROUP = 4  # at most so many optimiser steps in one group
APART = 1.3  # times: backwards of two models differ by so much at least, and those of one model by less from each other
ANOTHER = 1.1  # times: optimisers of two models take so much longer or shorter; what is nearer may be the same one
PERIOD = 2 * GROUP  # marks in which the order of lengths recurs, at most
LONGER = 1.1  # times: of two backwards in turn each longer one lasts as long as each shorter one
BACKWARDS = 64  # backwards without any optimiser mark before they are taken for the steps


class Mode(StrEnum):
    LEARNING = "learning"
    EACH = "each"
    FETCH = "fetch"  # the first optimiser step after a fetch
    NAME = "name"  # steps of the optimiser that came first
    PATTERN = "pattern"  # by the number of backwards before it
    LENGTH = "length"  # by how long the backward before it lasts
    PAIRS = "pairs"  # every second optimiser step
    BACKWARD = "backward"
    GPU = "gpu"  # the call of CUDA that comes once a step
    RHYTHM = "rhythm"  # the burst of calls that does


BY_CALLS = {RowKind.GPU: Mode.GPU, RowKind.RHYTHM: Mode.RHYTHM}
_WEAK = frozenset({Mode.BACKWARD, *BY_CALLS.values()})
"""Better marks take their place."""


@dataclass(frozen=True, slots=True)
class _Mark:
    row: MarkRow
    fetches: int  # since the mark before
    backwards: int
    before: MarkRow | None = None

    @property
    def backward_ns(self) -> int:
        """In backwards since the mark before."""
        return _spent_ns(self.row, Region.BACKWARD) - (_spent_ns(self.before, Region.BACKWARD) if self.before else 0)


@dataclass(slots=True)
class StepClock:
    """Takes the rows of one driver and yields those at which a step began."""

    mode: Mode = Mode.LEARNING
    count: int = 0
    before: int = 0  # of these, steps before the first boundary
    _learnt: list[_Mark] = field(default_factory=list)
    _backward_rows: list[MarkRow] = field(default_factory=list)
    _pending: MarkRow | None = None  # an optimiser step with no backward before it (L-BFGS has its backwards inside)
    _first: MarkRow | None = None  # the driver's first mark, where it had no backward before it
    _last: MarkRow | None = None  # the last optimiser row of any kind
    _fetches: int = 0  # at the last boundary
    _name: str = ""
    _skipped: int = 0  # optimiser steps since the last boundary
    _group: tuple[int, ...] = ()
    _place: int = 0
    _kinds: tuple[int, ...] = ()  # of backwards by their length, in the order that recurs; their lengths are the group

    def add_row(self, row: MarkRow) -> Iterator[MarkRow]:
        """The boundaries that this row makes known, in time order (several when learning ends); ``count`` is that of
        the one that was given last."""
        return self._counted(self._known_by(row))

    def _counted(self, rows: Sequence[MarkRow]) -> Iterator[MarkRow]:
        for row in rows:
            self.count += len(row.lengths) or 1
            yield row

    def _known_by(self, row: MarkRow) -> list[MarkRow]:
        if row.kind in BY_CALLS:
            return self._call(row)
        if row.kind == RowKind.BACKWARD:
            return self._backward(row)
        if row.kind != RowKind.OPTIMIZER:
            return []
        if self.mode in _WEAK:  # optimiser marks exist: they are the steps from here on
            self.mode, self.count, self.before = Mode.LEARNING, 0, 0
        self._backward_rows.clear()
        last, self._last = self._last, row
        backwards = row.backwards - (last.backwards if last else 0)
        if backwards <= 0:
            self._pending = row
            return []
        self._first = self._pending if not self._learnt and self.mode == Mode.LEARNING else None
        self._pending = None
        if self.mode == Mode.EACH:  # the usual case: each mark is a boundary
            return [row]
        return self._mark(_Mark(row, row.fetches - (last.fetches if last else 0), backwards, last))

    def flush(self) -> Iterator[MarkRow]:
        """Decides what is undecided by the rows so far (the run ended)."""
        rows: list[MarkRow] = []
        if self.mode == Mode.LEARNING and self._learnt:
            rows = self._decide()
        elif self.mode == Mode.LEARNING and self._last is None and self._backward_rows:
            rows = self._take_backwards()
        return self._counted(rows)

    def kept(self) -> KeptClock:
        """How this clock counts, for one that goes on with the same driver."""
        return KeptClock(self.mode.value, self._name, self._group, self._place, self._kinds)

    def go_on(self, kept: KeptClock) -> None:
        """Count as an earlier clock did. One of a mode that this version does not know learns anew."""
        try:
            self.mode = Mode(kept.mode)
        except ValueError:
            return
        self._name, self._group, self._place, self._kinds = kept.name, kept.group, kept.place, kept.kinds
        self._fetches = -1

    @property
    def single(self) -> bool:
        """Whether a step has one optimiser step, or is a backward."""
        return self.mode == Mode.EACH or self.mode in _WEAK

    @property
    def provisional(self) -> int:
        """Steps known so far, the undecided ones included."""
        return self.count + len(self._learnt)

    def _call(self, row: MarkRow) -> list[MarkRow]:
        if self._last is not None or self.mode == Mode.BACKWARD:
            return []
        if self.mode not in BY_CALLS.values():
            self.mode, self.before, self.count = BY_CALLS[row.kind], row.steps, row.steps
        return [row]

    def _backward(self, row: MarkRow) -> list[MarkRow]:
        if self._pending is not None and row.region == Region.OPTIMIZER:
            pending, self._pending = self._pending, None
            return self._mark(_Mark(pending, 1, 1))
        if self._first is not None and row.region == Region.OPTIMIZER:  # so had the first one: its end was not known
            first, self._first = self._first, None
            self._learnt.insert(0, _Mark(first, 1, 1))
        if self.mode == Mode.BACKWARD:
            return [row]
        if self.mode in BY_CALLS.values():
            self.mode, self.count, self.before = Mode.LEARNING, 0, 0
        if self._last is None:
            self._backward_rows.append(row)
            if len(self._backward_rows) >= BACKWARDS:
                return self._take_backwards()
        return []

    def _take_backwards(self) -> list[MarkRow]:
        rows, self._backward_rows = self._backward_rows, []
        self.mode = Mode.BACKWARD
        return rows

    def _mark(self, mark: _Mark) -> list[MarkRow]:
        if self.mode == Mode.LEARNING:
            self._learnt.append(mark)
            known = len(self._learnt)
            sure = known >= LEARN and (known >= 3 * LEARN or not _uneven(self._learnt))
            return self._decide() if sure else []
        return [mark.row] if self._counts(mark) else []

    def _counts(self, mark: _Mark) -> bool:
        if self.mode == Mode.FETCH:
            self._skipped += 1
            if mark.row.fetches == self._fetches and self._skipped <= 3 * GROUP:
                return False
            self._fetches, self._skipped = mark.row.fetches, 0
            return True
        if self.mode == Mode.NAME:
            self._skipped += 1
            if mark.row.name != self._name and self._skipped <= 3 * GROUP:
                return False
            self._name, self._skipped = mark.row.name, 0
            return True
        if self.mode == Mode.LENGTH:
            return self._in_order(mark.backward_ns)
        if self.mode == Mode.PAIRS:
            self._place = 1 - self._place
            return self._place == 1
        if self.mode == Mode.PATTERN:
            if self._place < len(self._group) and mark.backwards == self._group[self._place]:
                self._place = (self._place + 1) % len(self._group)
                return self._place == 1
            self.mode = Mode.EACH
        return True

    def _in_order(self, ns: int) -> bool:
        """Whether a mark is of the kind that came first. By its place; several in a row whose backwards are of other
        kinds than their places (the first ones are slower than theirs) begin the order anew."""
        kind = self._kinds[self._place]
        near = min(range(len(self._group)), key=lambda one: _ratio(self._group[one], ns))
        self._skipped = 0 if near == kind else self._skipped + 1
        if self._skipped > len(self._kinds):
            self._place, kind, self._skipped = self._kinds.index(near), near, 0
        if self._skipped < 2:  # the machine's speed changes
            self._group = tuple((one + ns) // 2 if at == kind else one for at, one in enumerate(self._group))
        self._place = (self._place + 1) % len(self._kinds)
        return kind == self._kinds[0]

    def _decide(self) -> list[MarkRow]:
        marks, self._learnt = self._learnt, []
        self.mode = self._judge(marks)
        self._fetches = -1
        self._name = marks[0].row.name
        return [mark.row for mark in marks if self._counts(mark)]

    def _judge(self, marks: Sequence[_Mark]) -> Mode:
        groups: list[int] = []  # optimiser steps of each fetched batch
        for mark in marks:
            if mark.fetches > 0 or not groups:
                groups.append(1)
            else:
                groups[-1] += 1
        inner = groups[:-1]  # the last one may be unfinished
        if len(inner) >= 2 and 1 < max(inner) <= GROUP and groups[-1] <= max(inner):
            return Mode.FETCH
        names = {mark.row.name for mark in marks}
        if 1 < len(names) <= GROUP:
            return Mode.NAME
        counts = [mark.backwards for mark in marks]
        if len(counts) >= 4 and len(set(counts)) > 1 and not any(mark.fetches for mark in marks):
            for period in range(2, GROUP + 1):
                if len(counts) >= 2 * period and all(a == b for a, b in zip(counts, counts[period:])):
                    self._group = tuple(counts[:period])
                    return Mode.PATTERN
        if (found := _order(marks)) is not None:
            self._group, self._kinds = found
            return Mode.LENGTH
        return Mode.PAIRS if _alternate(marks) else Mode.EACH


def _order(marks: Sequence[_Mark]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The lengths of backwards that recur in one order, ns, and that order from the first mark on: models that are
    trained in turn, each by an optimiser of its own. None where there is no such order, and where it may be one
    optimiser that is given long and short batches. The first ones are slower."""
    skipped = len(marks) - 2 * PERIOD
    if skipped < 1 or any(mark.fetches for mark in marks):
        return None
    latest = marks[skipped:]
    edges = sorted(mark.backward_ns for mark in latest)
    starts = [0, *(at for at in range(1, len(edges)) if _ratio(edges[at - 1], edges[at]) >= APART)]
    groups = [edges[a:b] for a, b in pairwise([*starts, len(edges)])]
    kinds = [next(at for at, group in enumerate(groups) if mark.backward_ns <= group[-1]) for mark in latest]
    period = next((n for n in range(2, PERIOD + 1) if all(a == b for a, b in zip(kinds, kinds[n:]))), 0)
    if not 1 < len(groups) <= GROUP or not period:
        return None
    order = tuple(kinds[(at - skipped) % period] for at in range(period))
    spent: dict[bool, list[int]] = {True: [], False: []}  # in the optimiser: of the first kind, and of others
    for kind, mark, after in zip(kinds, latest, latest[1:]):
        spent[kind == order[0]].append(_spent_ns(after.row, Region.OPTIMIZER) - _spent_ns(mark.row, Region.OPTIMIZER))
    if _ratio(round(median(spent[True])), round(median(spent[False]))) < ANOTHER:
        return None
    return tuple(round(median(group)) for group in groups), order


def _ratio(one: int, other: int) -> float:
    return max(one, other, 1) / max(1, min(one, other))


def _uneven(marks: Sequence[_Mark]) -> bool:
    """Whether they may be of two models that are trained in turn: more of them tell."""
    latest = _lengths(marks[-5:])
    return bool(latest) and max(latest) >= LONGER * min(latest)


def _alternate(marks: Sequence[_Mark]) -> bool:
    """Whether backwards are long and short in turn: two models that are trained in turn. The first ones are slower.
    Uneven ones of a plain training come in such an order once in 200 times."""
    latest = _lengths(marks)[-(3 * LEARN - 5) :]
    one, other = latest[::2], latest[1::2]
    return len(latest) >= LEARN - 1 and (min(one) >= LONGER * max(other) or min(other) >= LONGER * max(one))


def _lengths(marks: Sequence[_Mark]) -> list[int]:
    """ns of the backwards before each of them but the first; none where batches are fetched, which tell more."""
    if any(mark.fetches for mark in marks):
        return []
    return [mark.backward_ns for mark in marks[1:]]


def _spent_ns(row: MarkRow, region: Region) -> int:
    """So far, without waits for a processor."""
    first = region * LEAVES
    return sum(row.cells[first : first + LEAVES]) - row.cells[first + Leaf.RUNQUEUE]
