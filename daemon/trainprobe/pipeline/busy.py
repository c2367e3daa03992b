"""How busy a host is while a rank trains: what others use of its processors slows it, and shows in no step's ledger."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from trainprobe.model.sample import HostSample

PACES = 512  # kept: a quarter of an hour


@dataclass(slots=True)
class Busy:
    """From the first sample on, the mean number of processors in use, whoever used them."""

    _from: tuple[int, int] | None = None  # (ns, idle ns of all processors)
    _last: tuple[int, int] | None = None
    _cpus: int = 0
    _paces: deque[int] = field(default_factory=lambda: deque(maxlen=PACES))

    def feed(self, sample: HostSample, at_ns: int) -> None:
        if sample.pace_ns is not None:
            self._paces.append(sample.pace_ns)
        if sample.idle_ns is None:
            return
        self._cpus, self._last = sample.cpus, (at_ns, sample.idle_ns)
        self._from = self._from or self._last

    @property
    def pace_ns(self) -> float | None:
        """CPU time of a fixed piece of work, in the middle of what was seen lately."""
        return median(self._paces) if self._paces else None

    @property
    def cpus(self) -> float | None:
        """None before two samples."""
        if self._from is None or self._last is None or self._last[0] <= self._from[0]:
            return None
        idle = (self._last[1] - self._from[1]) / (self._last[0] - self._from[0])
        return min(max(0.0, self._cpus - idle), float(self._cpus))
