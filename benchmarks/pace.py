"""How slow this host is now, beside one on which limits in seconds of wall time hold: others may have its processors.

A limit that a busy host exceeds is a limit times ``slowness()``, taken in the same test: on an ordinary host it is one.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

WORK = "sum(number * number for number in range(4_000_000))"
USUAL_SECONDS = 0.3
"""That a bare Python 3.11 takes for it on a core of 2024, its start included; alone it is 0.23."""
TURNS = 3


def slowness() -> float:
    """1.0, or how many times longer a bare interpreter takes now. Takes a second."""
    return max(median(_turn() for _ in range(TURNS)) / USUAL_SECONDS, 1.0)


def within(seconds: float, limit: float) -> bool:
    """Whether something took no longer than ``limit``, or would have taken no longer on an ordinary host. Asked when
    the load of the test itself is gone: else that would count for the host's."""
    return seconds <= limit or seconds <= limit * slowness()


def _turn() -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", WORK], check=True)
    return time.monotonic() - begun
