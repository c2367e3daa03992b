"""How fast the host's processors are: the CPU time of a fixed piece of work, timed again and again.

In a virtual machine a neighbour on the same core, and anywhere heat or a power limit, make all programs slower by a
tenth and more, for minutes; no counter of the kernel shows it.
"""

from __future__ import annotations

import time

ROUNDS, ITEMS = 5, 3000  # 0.2 ms in all


def now() -> int:
    """Nanoseconds of the quickest round: the first ones find cold caches."""
    return min(_round() for _ in range(ROUNDS))


def _round() -> int:
    begin = time.thread_time_ns()
    sum(range(ITEMS))
    return time.thread_time_ns() - begin
