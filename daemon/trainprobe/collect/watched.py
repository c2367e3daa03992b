"""A process as the collectors know it."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Watched:
    """A process for the collectors. (pid, ticks) is its identity; ``run`` is "" before it belongs to one."""

    pid: int
    ticks: int  # start, clock ticks since boot
    started_ns: int  # the same, CLOCK_MONOTONIC
    role: str  # driver | worker | helper
    run: str
