"""Whether others use the host's processors meanwhile: they would plant contention that no plan knows of."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

DISTURBED = 0.15
"""Cores that others used on average, from which on a run says little about what was planted in it."""
QUIET = 0.12
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Usage:
    """Seconds of processor time so far: of the whole host, and of ours and our ended descendants."""

    at: float
    host: float
    ours: float


def now() -> Usage:
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    ours = sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
    return Usage(time.monotonic(), busy, ours)


def others(before: Usage, after: Usage) -> float:
    """Cores that others used on average; the kernel's own threads (write-back, loop devices) count among them."""
    return max((after.host - before.host) - (after.ours - before.ours), 0.0) / max(after.at - before.at, 0.001)


def wait(patience: float) -> bool:
    """Until the host is quiet for a moment, ``patience`` seconds at most; whether it is."""
    end = time.monotonic() + patience
    while True:
        before = now()
        time.sleep(LOOK_SECONDS)
        if others(before, now()) <= QUIET:
            return True
        if time.monotonic() >= end:
            return False
