"""The one place that asks what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainprobe.model.moment import Moment

Clock = Callable[[], Moment]


def now() -> Moment:
    """CLOCK_MONOTONIC (what BPF reads; it stands still while the machine is suspended) and UNIX time."""
    return Moment(time.monotonic_ns(), time.time_ns())
