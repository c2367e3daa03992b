"""How busy a host is while a rank trains: what others use of its processors slows it, and shows in no step's ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import field

from trainprobe.derive.trend.downsample import means
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import HostSample

PACES = 512  # kept: a quarter of an hour
READ_NS = 4 * NS  # at least from one reading of what a run uses to the next: its processes are not all read at once


@dataclass(slots=True)
class CpuInUse:
    """From the first sample on, the mean number of processors in use, whoever used them."""

    _from: tuple[int, int] | None = None  # (ns, idle ns of all processors)
    _last: tuple[int, int] | None = None
    _cpus: int = 0
    _paces: deque[int] = field(default_factory=lambda: deque(maxlen=PACES))

    def add_sample(self, sample: HostSample, at_ns: int) -> None:
        if sample.pace_ns is not None:
            self._paces.append(sample.pace_ns)
        if sample.idle_ns is None:
            return
        self._cpus, self._last = sample.cpus, (at_ns, sample.idle_ns)
        self._from = self._from or self._last

    @property
    def paces_ns(self) -> list[float]:
        """CPU times of a fixed piece of work in equal stretches of what was seen lately; empty: not measured."""
        return means(self._paces)

    @property
    def cpus(self) -> float | None:
        if self._from is None or self._last is None or self._last[0] <= self._from[0]:
            return None
        idle = (self._last[1] - self._from[1]) / (self._last[0] - self._from[0])
        return min(max(0.0, self._cpus - idle), float(self._cpus))


@dataclass(slots=True)
class OtherPrograms:
    """What other programs than the run's use of the processors, from one reading of the run's processes to the next."""

    _host: tuple[int, int, int] | None = None  # (ns, idle ns of all processors, processors), the latest
    _at: tuple[int, int] | None = None  # of the reading before: (ns, idle ns) of its host
    _read: tuple[int, Mapping[tuple[int, int], int]] | None = None  # of the reading before: ns, CPU ns by process

    def add_sample(self, sample: HostSample, at_ns: int) -> None:
        if sample.idle_ns is not None and sample.cpus:
            self._host = (at_ns, sample.idle_ns, sample.cpus)

    def read(self, cpu_ns: Mapping[tuple[int, int], int], at_ns: int) -> float | None:
        """The part of the processors that others used since the reading before.

        ``cpu_ns`` by (pid, start of the process), cumulative. None: there was none a while ago, or no news of the host.
        """
        host, before, own_before = self._host, self._at, self._read
        if host is None or (before is not None and host[0] <= before[0]):
            return None
        if own_before is not None and at_ns < own_before[0] + READ_NS:
            return None
        self._at, self._read = host[:2], (at_ns, cpu_ns)
        if before is None or own_before is None:
            return None
        idle = (host[1] - before[1]) / (host[0] - before[0])
        own = sum(max(0, ns - own_before[1].get(process, ns)) for process, ns in cpu_ns.items()) / (
            at_ns - own_before[0]
        )
        return min(max(0.0, host[2] - idle - own) / host[2], 1.0)


@dataclass(slots=True)
class ComputeThreads:
    """How many threads of a driver's process compute: from what the process uses beside the driver itself."""

    _from: tuple[int, int] | None = None  # CPU ns of the process, and of its driver
    _spent: tuple[int, int] = (0, 0)

    def add_reading(self, process_ns: int, driver_ns: int) -> None:
        """Cumulative CPU time of the whole process and of its driver."""
        self._from = self._from or (process_ns, driver_ns)
        self._spent = (process_ns - self._from[0], driver_ns - self._from[1])

    @property
    def count(self) -> int:
        """Those of gloo or an exporter, which transfer, take less than half of what the driver does: none of these."""
        process, driver = self._spent
        return max(1, round(process / driver)) if driver >= NS else 1


@dataclass(slots=True)
class RunProcesses:
    """What the ranks of a run are together."""

    pids: set[int] = field(default_factory=set)  # the drivers, and their live children
    ranks: int = 0  # on this host
    threads: int = 0  # of them all, that compute
    held_up: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    """By rank's process: from when to when it was late last, for another reason than a late rank; None: it still is."""

    def hold_up(self, pid: int, start_ns: int, end_ns: int | None) -> None:
        """A rank's step is late, or it evaluates."""
        self.held_up[pid] = start_ns, end_ns

    def go_on(self, pid: int, at_ns: int) -> None:
        """The step has ended, or the rank, or nothing shows the reason any more."""
        start_ns, end_ns = self.held_up.get(pid, (at_ns, at_ns))
        if end_ns is None:
            self.held_up[pid] = start_ns, at_ns

    def others_late_ns(self, pid: int, start_ns: int, end_ns: int) -> int:
        """How much of an interval the one of the other ranks was late that was so for most of it."""
        spans = [span for other, span in self.held_up.items() if other != pid]
        ends = [(max(begun, start_ns), end_ns if ended is None else min(ended, end_ns)) for begun, ended in spans]
        return max((max(0, end - begin) for begin, end in ends), default=0)
