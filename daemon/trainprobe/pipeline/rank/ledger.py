"""The driver's ledger: its cells at the last boundary, the rows since then, and the sums by state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from trainprobe.derive.steps.interval import Interval
from trainprobe.derive.steps.ledger import by_state
from trainprobe.model.cause import State
from trainprobe.model.cells import CELLS, COMPUTING, LEAVES, Region, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import MarkRow, StepFile
from trainprobe.model.moment import NS

_ON_CPU = tuple(cell(region, leaf) for region in Region for leaf in COMPUTING)
TAKEN_NS = NS // 50
"""The scheduler counts at its ticks, up to 10 ms apart."""
ROWS = 4096
"""Rows kept while no boundary comes (a driver whose optimiser never steps)."""


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
    rows: list[MarkRow] = field(default_factory=list)  # since the last boundary
    _pending: Interval | None = None  # not in `states` yet

    def add_row(self, row: MarkRow) -> None:
        self.latest = row
        self.rows.append(row)
        if len(self.rows) > ROWS:
            self.rows[:2] = [replace(self.rows[1], files=tuple(_merged(self.rows[:2])))]

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

    def take_files(self, row: MarkRow) -> Iterable[StepFile]:
        """The files written up to a boundary, each once; the rows up to it are done with."""
        rows = self.rows
        if len(rows) == 1:  # most often
            rows.clear()
            return row.files
        count = len(rows) if rows[-1] is row else next((i + 1 for i, r in enumerate(rows) if r is row), len(rows))
        files = _merged(rows[:count])
        del rows[:count]
        return files


def _merged(rows: Iterable[MarkRow]) -> Iterable[StepFile]:
    files: dict[tuple[int, int], StepFile] = {}
    for row in rows:
        for use in row.files:
            files[use.dev, use.ino] = _sum(files.get((use.dev, use.ino)), use)
    return files.values()


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
