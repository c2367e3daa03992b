"""The collectors, each at its own pace: host and limits every two seconds, processes every five."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainprobe.collect import psi
from trainprobe.collect.cgroup import Cgroups
from trainprobe.collect.host import Host
from trainprobe.collect.inspection import Inspector
from trainprobe.collect.process import Processes
from trainprobe.collect.procfs import Proc
from trainprobe.collect.rivals import Rivals
from trainprobe.collect.source import Failed, Sources, Unavailable
from trainprobe.model.moment import NS, Moment
from trainprobe.model.sample import HostSample, Inspection, MemorySample, ProcessSample, QuotaSample, RivalSample

HOST_NS = 2 * NS
LATE_HOST_NS = NS // 2  # while a step is late: which disks move bytes
PROCESSES_NS = 5 * NS


class Watched(Protocol):
    """A process of a run, as the targets know it."""

    @property
    def pid(self) -> int: ...
    @property
    def ticks(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def run(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Samples:
    """What the collectors had to say in a turn; in most turns nothing is due."""

    processes: tuple[ProcessSample, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    host: HostSample | None = None
    quotas: tuple[QuotaSample, ...] = ()


class Collectors:
    """Reads what is due; how each source is stands in ``sources``."""

    def __init__(self, sources: Sources, proc: Proc) -> None:
        self._sources = sources
        self._host = Host(proc.root)
        self._processes = Processes(proc)
        self._cgroups = Cgroups(proc)
        self._psi_root = proc.root
        self._inspector = Inspector(proc)
        self._rivals = Rivals(proc)
        self._host_due = self._processes_due = 0

    def read(self, now: Moment, watched: Sequence[Watched]) -> Samples:
        """The samples of this turn. The host's are left out while nothing is watched."""
        at = now.monotonic_ns
        if not watched:
            return Samples()
        host: HostSample | None = None
        processes: tuple[ProcessSample, ...] | None = None
        memory: list[MemorySample | None] = []
        quotas: list[QuotaSample | None] = []
        if at >= self._host_due:
            self._host_due = at + HOST_NS
            host = self._sources.read("host", lambda: self._read_host(at), at)
            firsts = _first_of_each_run(watched)
            memory += [self._limit(run, pid, at) for run, pid in firsts.items()]
            quotas += [self._quota(run, pid) for run, pid in firsts.items()]
        if at >= self._processes_due:
            self._processes_due = at + PROCESSES_NS
            processes = self._sources.read("proc", lambda: self._processes.read(watched, at), at)
        return Samples(
            processes or (),
            tuple(sample for sample in memory if sample is not None),
            host,
            tuple(quota for quota in quotas if quota is not None),
        )

    def inspect(self, now: Moment, threads: Sequence[tuple[int, int]]) -> tuple[Inspection, ...]:
        """A look at threads whose step is late (pid, tid); the disks are looked at sooner for them."""
        self._host_due = min(self._host_due, now.monotonic_ns + LATE_HOST_NS)
        seen = self._sources.read("inspection", lambda: self._looks(threads), now.monotonic_ns)
        return seen or ()

    def _looks(self, threads: Sequence[tuple[int, int]]) -> tuple[Inspection, ...]:
        looks = [self._inspector.look(pid, tid) for pid, tid in threads]
        return tuple(look for look in looks if look is not None)

    def _limit(self, run: str, pid: int, at: int) -> MemorySample | None:
        return self._sources.read("cgroup", lambda: self._cgroups.memory(run, pid), at)

    def _quota(self, run: str, pid: int) -> QuotaSample | None:
        """None too where there is no quota: nothing can bite then."""
        told = self._cgroups.throttling(pid)
        if isinstance(told, Unavailable) or told.quota_cpus is None:
            return None
        return QuotaSample(run, told.periods, told.throttled_periods, told.throttled_ns, told.quota_cpus, told.path)

    def rivals(self, now: Moment) -> tuple[RivalSample, ...]:
        """Who uses the processors; empty when it is not time for a look, or the first one."""
        at = now.monotonic_ns
        return self._sources.read("proc", lambda: self._rivals.read(at), at) or ()

    def _read_host(self, at: int) -> HostSample | Failed:
        return self._host.read(self._sources.read("psi", lambda: psi.read(self._psi_root), at))


def _first_of_each_run(watched: Sequence[Watched]) -> dict[str, int]:
    """A process of each run that its limits are asked of: its first driver, else any."""
    chosen: dict[str, int] = {}
    for process in sorted(watched, key=lambda process: (process.role != "driver", process.started_ns)):
        chosen.setdefault(process.run, process.pid)
    return chosen
