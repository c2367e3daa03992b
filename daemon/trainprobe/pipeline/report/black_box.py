"""The black box's seconds as the report's columns."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.derive.steps.black_box import BlackBoxSecond
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import BlackBox


def black_box(seconds: Sequence[BlackBoxSecond], at: Moment) -> BlackBox | None:
    """One row a second; None where nothing was seen before the stall."""
    if not seconds:
        return None
    return BlackBox(
        start=[round(at.wall_of(s.start_ns), 3) for s in seconds],
        steps=[s.steps for s in seconds],
        longest_seconds=[round(s.longest_ns / NS, 6) if s.steps else None for s in seconds],
        workers=[s.workers for s in seconds],
        pss_bytes=[s.pss_bytes for s in seconds],
        available_bytes=[s.available_bytes for s in seconds],
        cpu_pressure=_shares([(s.start_ns, s.cpu_pressure) for s in seconds]),
        memory_pressure=_shares([(s.start_ns, s.memory_pressure) for s in seconds]),
        io_pressure=_shares([(s.start_ns, s.io_pressure) for s in seconds]),
    )


def _shares(counters: Sequence[tuple[int, float | None]]) -> list[float | None]:
    """The part of the time since the last reading that a cumulative counter of seconds grew by."""
    out: list[float | None] = []
    before: tuple[int, float] | None = None
    for at_ns, value in counters:
        if value is None:
            out.append(None)
            continue
        spent = (at_ns - before[0]) / NS if before else 0.0
        out.append(round(max(0.0, value - before[1]) / spent, 4) if before and spent > 0 else None)
        before = at_ns, value
    return out
