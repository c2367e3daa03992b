"""The steps of a rank as rows, until somebody takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.derive.steps.interval import Interval, states_of
from trainprobe.model.cause import State
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS, Moment
from trainprobe.model.steprow import StepRow, joined

WAITING, STEPS = 64, 2048
"""Intervals that wait to become rows, each of which holds on to the whole ledger of two marks; and steps in them."""
_NAMES = {state: state.value for state in State}
LIMIT = 1024
"""Rows that wait. Where nobody takes them (``trainprobe run``), neighbours share one, and again when that is full."""


@dataclass(slots=True)
class StepBuffer:
    """``start`` of the rows in here is CLOCK_MONOTONIC."""

    rows: list[StepRow] = field(default_factory=list)
    waiting: list[tuple[int, Sequence[int], Interval]] = field(default_factory=list)  # start, ns of each, made of
    _steps: int = 0  # that wait

    def add(self, start_ns: int, lengths: Sequence[int], interval: Interval) -> None:
        """One more step, or several that are alike: each has its part of what they were made of."""
        self.waiting.append((start_ns, lengths, interval))
        self._steps += len(lengths)
        if len(self.waiting) >= WAITING or self._steps >= STEPS:
            self.settle()

    def drain_rows(self, at: Moment) -> list[StepRow]:
        """The rows since the last call, with their starts in UNIX time."""
        self.settle()
        rows, self.rows = self.rows, []
        for row in rows:
            row.start = at.wall_of(round(row.start * NS))
        return rows

    def settle(self) -> None:
        """Make rows of all that wait."""
        if len(self.rows) + len(self.waiting) > LIMIT:
            self.rows = [joined(self.rows[at : at + 2]) for at in range(0, len(self.rows), 2)]
        every = states_of([interval for _, _, interval in self.waiting])
        for (start_ns, lengths, _), spent_in in zip(self.waiting, every):
            whole = sum(lengths) or 1
            for ns in lengths:
                states = {_NAMES[state]: spent * ns / whole / NS for state, spent in spent_in.items()}
                self.rows.append(StepRow(start_ns / NS, ns / NS, 1, ns / NS, ns / NS, states))
                start_ns += ns
        self.waiting.clear()
        self._steps = 0
