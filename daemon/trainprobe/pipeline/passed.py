"""The steps of a rank as rows, until somebody takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainprobe.model.cause import State
from trainprobe.model.moment import NS, Moment
from trainprobe.model.steprow import StepRow, joined

LIMIT = 1024
"""Rows that wait. Where nobody takes them (``trainprobe run``), neighbours share one, and again when that is full."""


@dataclass(slots=True)
class Passed:
    """``start`` of the rows in here is CLOCK_MONOTONIC."""

    rows: list[StepRow] = field(default_factory=list)

    def add(self, start_ns: int, ns: int, states: Mapping[State, float]) -> None:
        """One more step."""
        if len(self.rows) >= LIMIT:
            self.rows = [joined(pair) for pair in zip(self.rows[::2], self.rows[1::2])]
        seconds = ns / NS
        told = {state.value: spent / NS for state, spent in states.items()}
        self.rows.append(StepRow(start_ns / NS, seconds, 1, seconds, seconds, told))

    def take(self, at: Moment) -> list[StepRow]:
        """The rows since the last call, with their starts in UNIX time."""
        rows, self.rows = self.rows, []
        for row in rows:
            row.start = at.wall_of(round(row.start * NS))
        return rows
