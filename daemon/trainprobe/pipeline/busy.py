"""How busy a host is while a rank trains: what others use of its processors slows it, and shows in no step's ledger."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.model.sample import HostSample


@dataclass(slots=True)
class Busy:
    """From the first sample on, the mean number of processors in use, whoever used them."""

    _from: tuple[int, int] | None = None  # (ns, idle ns of all processors)
    _last: tuple[int, int] | None = None
    _cpus: int = 0

    def feed(self, sample: HostSample, at_ns: int) -> None:
        if sample.idle_ns is None:
            return
        self._cpus, self._last = sample.cpus, (at_ns, sample.idle_ns)
        self._from = self._from or self._last

    @property
    def cpus(self) -> float | None:
        """None before two samples."""
        if self._from is None or self._last is None or self._last[0] <= self._from[0]:
            return None
        idle = (self._last[1] - self._from[1]) / (self._last[0] - self._from[0])
        return min(max(0.0, self._cpus - idle), float(self._cpus))
