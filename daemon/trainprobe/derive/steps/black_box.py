"""The last minute, second by second. A stall keeps a copy, which shows what preceded it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import HostSample

SECONDS = 60


@dataclass(slots=True)
class BlackBoxSecond:
    """One second of a rank. ``start_ns`` on CLOCK_MONOTONIC; None: not read in this second."""

    start_ns: int
    steps: int = 0
    longest_ns: int = 0
    pss_bytes: int | None = None
    workers: int | None = None
    available_bytes: int | None = None
    cpu_pressure: float | None = None  # cumulative seconds, as the kernel counts them
    memory_pressure: float | None = None
    io_pressure: float | None = None


@dataclass(slots=True)
class BlackBoxRing:
    """A ring of seconds; seconds without any value are omitted."""

    seconds: deque[BlackBoxSecond] = field(default_factory=lambda: deque(maxlen=SECONDS))

    def steps(self, start_ns: int, lengths: Sequence[int]) -> None:
        at_ns = start_ns
        for ns in lengths:
            at_ns += ns
            here = self._second(at_ns)
            here.steps += 1
            here.longest_ns = max(here.longest_ns, ns)

    def sample(self, at_ns: int, workers: int, pss_bytes: int | None) -> None:
        here = self._second(at_ns)
        here.workers = workers
        here.pss_bytes = pss_bytes if pss_bytes is not None else here.pss_bytes

    def host(self, at_ns: int, host: HostSample) -> None:
        here = self._second(at_ns)
        here.available_bytes = host.available_bytes
        pressure = host.pressure or {}
        here.cpu_pressure = pressure.get("cpu.some")
        here.memory_pressure = pressure.get("memory.some")
        here.io_pressure = pressure.get("io.some")

    def before(self, at_ns: int) -> tuple[BlackBoxSecond, ...]:
        """The seconds of the last minute up to an instant, the oldest first."""
        return tuple(s for s in self.seconds if at_ns - SECONDS * NS <= s.start_ns < at_ns)

    def _second(self, at_ns: int) -> BlackBoxSecond:
        start = at_ns - at_ns % NS
        if not self.seconds or self.seconds[-1].start_ns < start:
            self.seconds.append(BlackBoxSecond(start))
        return self.seconds[-1]
