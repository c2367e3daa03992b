"""The driver's ledger: its cells at the last boundary, the rows since then, and the sums by state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import reduce

from trainprobe.derive.steps.interval import Interval
from trainprobe.derive.steps.ledger import QUEUE, by_state
from trainprobe.model.cause import State
from trainprobe.model.cells import CELLS, COMPUTING, LEAVES, Region, RowKind, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import MarkRow, StepFile
from trainprobe.model.moment import NS

_ON_CPU = tuple(cell(region, leaf) for region in Region for leaf in COMPUTING)
TAKEN_NS = NS // 50
"""The scheduler counts at its ticks, up to 10 ms apart."""
ROWS = 64
"""Rows whose files are kept while no boundary comes (a driver without backwards): of as many the clock learns."""
FILES = 64
"""Files told apart of rows that are put together; the rest is counted as of one."""


@dataclass(slots=True)
class LedgerSums:
    """Cumulative cells and the workers' pool, both in ns, as they stood at the end of the last interval."""

    cells: Sequence[int] = field(default_factory=lambda: [0] * CELLS)
    pool: Sequence[int] = field(default_factory=lambda: [0] * LEAVES)
    states: dict[State, float] = field(default_factory=dict)  # ns, up to `cells` after settle()
    latest: MarkRow | None = None
    ranks: bool = False  # other ranks belong to the run
    inline: bool = False  # a loader without workers did most of the last step's fetches
    fetched: bool = False  # one with workers did
    rows: list[tuple[int, Sequence[StepFile]]] = field(default_factory=list)  # since the last boundary: ns, files
    _pending: Interval | None = None  # not in `states` yet

    def add_row(self, row: MarkRow) -> None:
        before, self.latest = self.latest, row
        rows = self.rows
        if row.files:
            rows.append((row.at_ns, row.files))
        if len(rows) > 1 and before is not None and before.kind is RowKind.FETCH_END and rows[-2][0] == before.at_ns:
            rows[-2:] = [(row.at_ns, _few(_merged(rows[-2:])))]  # no step begins at the end of a fetch
        elif len(rows) > ROWS:
            rows[:2] = [(rows[1][0], _few(_merged(rows[:2])))]

    def close_interval(self, interval: Interval) -> None:
        """An interval that began at `cells` is over: `states` will hold it."""
        self.cells, self.pool = interval.cells_after, interval.pool_after
        if self._pending is None or not self._pending.extend(interval):
            self.settle()
            self._pending = interval.copy()

    def settle(self) -> None:
        """Bring `states` up to `cells`: before they are read."""
        pending, self._pending = self._pending, None
        for state, ns in by_state(pending.items() if pending is not None else {}).items():
            self.states[state] = self.states.get(state, 0.0) + ns

    def count_as_data_wait(self, interval: Interval, most_ns: int) -> None:
        """So much at most of the interval that was closed last, which waited for a queue of nobody knows whom."""
        self.settle()
        waits = (ns for (state, _, leaf), ns in interval.items().items() if state is State.OTHER and leaf in QUEUE)
        if ns := min(most_ns, sum(waits)):
            self.states[State.OTHER] -= ns
            self.states[State.DATA_WAIT] = self.states.get(State.DATA_WAIT, 0.0) + ns

    def take_files(self, row: MarkRow) -> Sequence[StepFile]:
        """The files written up to a boundary, each once; the rows up to it are done with."""
        rows = self.rows
        count = next((i for i, (at_ns, _) in enumerate(rows) if at_ns > row.at_ns), len(rows))
        files = rows[0][1] if count == 1 else _merged(rows[:count])  # most often
        del rows[:count]
        return files


def _merged(rows: Iterable[tuple[int, Sequence[StepFile]]]) -> Sequence[StepFile]:
    files: dict[tuple[int, int], StepFile] = {}
    for _, uses in rows:
        for use in uses:
            files[use.dev, use.ino] = _sum(files.get((use.dev, use.ino)), use)
    return list(files.values())


def _few(files: Sequence[StepFile]) -> Sequence[StepFile]:
    """The longest used ones, and all others as one, as the kernel tells them."""
    if len(files) <= FILES:
        return files
    order = sorted(files, key=lambda one: (one.ino == 0, -one.io_ns))
    rest = [replace(one, dev=0, ino=0) for one in order[FILES - 1 :]]
    return [*order[: FILES - 1], reduce(_sum, rest)]


def _sum(a: StepFile | None, b: StepFile) -> StepFile:
    if a is None:
        return b
    return StepFile(b.dev, b.ino, a.io_ns + b.io_ns, a.gap_ns + b.gap_ns, a.bytes + b.bytes, a.calls + b.calls)


def taken_ns(before: MarkRow, row: MarkRow) -> int:
    """For how long a processor that the thread was on did not run it: the scheduler's own count leaves that out. 0
    where that is not known, and where it may be the count's own delay."""
    if not before.ran_ns or not row.ran_ns or len(row.lengths) > 1:
        return 0
    on = sum(row.cells[place] - before.cells[place] for place in _ON_CPU)
    taken = on - (row.ran_ns - before.ran_ns)
    return taken if taken >= TAKEN_NS else 0
