"""How slow this host is now, beside one on which limits in seconds of wall time hold: others may have its processors.

A limit that a busy host exceeds is a limit times ``slowness()``, taken in the same test: on an ordinary host it is one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

WORK = "sum(number * number for number in range({}))"
ROUNDS = 4_000_000
USUAL_SECONDS = 0.25
"""That a bare Python 3.11 takes for so many on an idle core of 2024, its start included."""
TURNS = 3


def slowness(together: int = 1, turns: int = 1) -> float:
    """1.0, or how many times longer bare interpreters take now: so many at once, each for ``turns`` times USUAL_SECONDS
    of work. A short turn tells nothing of longer work: who comes new is often let in at once."""
    usual = turns * USUAL_SECONDS * max(together / len(os.sched_getaffinity(0)), 1.0)
    return max(median(_turn(together, turns) for _ in range(TURNS)) / usual, 1.0)


def within(seconds: float, limit: float) -> bool:
    """Whether something took no longer than ``limit``, or would have taken no longer on an ordinary host. Asked when
    the load of the test itself is gone: else that would count for the host's."""
    return seconds <= limit or seconds <= limit * slowness()


def _turn(together: int, turns: int) -> float:
    begun = time.monotonic()
    command = [sys.executable, "-S", "-c", WORK.format(turns * ROUNDS)]
    started = [subprocess.Popen(command) for _ in range(together)]
    for one in started:
        one.wait()
    return time.monotonic() - begun
