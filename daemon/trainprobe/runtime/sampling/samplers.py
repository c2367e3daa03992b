"""The collectors, each at its own pace: limits every second or two, the host every two, processes every five.

A run's first seconds are read more often. What the kernel tells of (a call that failed, a victim) is looked into in the
same turn: its process may soon be gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeVar

from trainprobe.collect import descriptors, psi
from trainprobe.collect.cgroup import Cgroups, Throttling, nearest
from trainprobe.collect.filesystem_stats import FilesystemStats
from trainprobe.collect.host import HostReader
from trainprobe.collect.inspection import Inspector
from trainprobe.collect.instructions import Instructions
from trainprobe.collect.kernel_log import KernelLog
from trainprobe.collect.limits import LimitReader, first_of_each_run
from trainprobe.collect.nvml import Gpus
from trainprobe.collect.orphans import Orphans, workers_of
from trainprobe.collect.owners import read_in_turn
from trainprobe.collect.process import Processes, young
from trainprobe.collect.procfs import Proc
from trainprobe.collect.shared_memory import SharedMemoryReader
from trainprobe.collect.source import Failed, Sources, Unavailable
from trainprobe.collect.top_cpu_processes import Rivals
from trainprobe.collect.watched import Watched
from trainprobe.derive.rate_limiter import RateLimiter
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed, Event, ProcessEvent, ProcessEventKind
from trainprobe.model.frame import FrameSamples
from trainprobe.model.message import template
from trainprobe.model.moment import NS, Moment
from trainprobe.model.sample import (
    DescriptorSample,
    FileSizeSample,
    GpuSample,
    HostSample,
    Inspection,
    IoLimitSample,
    LimitSample,
    MemorySample,
    OrphanSample,
    ProcessSample,
    QuotaSample,
    RivalSample,
    SharedSample,
    SpaceSample,
    WrittenFile,
)
from trainprobe.model.vocabulary import DESCRIPTOR_ERRORS
from trainprobe.runtime.sampling.limit_readings import PacedLimits

HOST_NS = 2 * NS
LATE_HOST_NS = NS // 2  # while a step is late: which disks move bytes
PROCESSES_NS = 5 * NS
EACH_PROCESS_NS = NS // 100  # and less often the more there are: a thousand each ten seconds
NEAR_PROCESSES_NS = 2 * NS
SPACES_NS = 2 * NS
SIZES_NS = 10 * NS
SHARED_NS, SHARED_SOON_NS, SHARED_AT_ONCE = 30 * NS, 10 * NS, 3
"""Sooner where some was left out, and where a process runs out of it, which is soon gone: so often at once, because
others can fail in a loop."""
GPUS_NS = NS // 2
ORPHANS_NS, FOUND_ORPHANS_NS = 180 * NS, 60 * NS  # the latter while there are some: somebody ends them
IO_LIMITS_NS = 10 * NS
ORPHANS_SOON_NS = 5 * NS
DESCRIPTORS_NS, FAILED_NS = 10 * NS, NS  # of one that holds many; of one that has none left, which tells it in a loop
READING_SECONDS = 0.05
"""For what the descriptors of all of them are, for the room where files are written, and for how long logs are, in a
turn: a user may have a thousand processes, with as many files each."""
Asked = TypeVar("Asked", bound=Hashable)
Sample = TypeVar("Sample")
MANY = 0.4  # of the limit of descriptors: their kinds are worth a look
NO_CGROUPS = Unavailable(
    template(
        "source.no_cgroups",
        "the cgroups of the trainings are out of sight: their limits of memory and CPU are not known",
    )(),
    template("source.no_cgroups_remedy", "in a container: mount the host's /sys/fs/cgroup, read-only")(),
)


@dataclass(slots=True)
class _Due:
    host: int = 0
    processes: int = 0
    spaces: int = 0
    sizes: int = 0
    shared_read: int = -SHARED_NS
    shared_soon: RateLimiter = field(default_factory=lambda: RateLimiter(SHARED_AT_ONCE, SHARED_SOON_NS))
    orphans: int = 0
    gpus: int = 0
    io_limits: int = 0
    descriptors: dict[int, int] = field(default_factory=dict)
    spaces_read: dict[tuple[int, str], None] = field(default_factory=dict)  # the oldest first
    sizes_read: dict[WrittenFile, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Asked:
    """What the core wants to know of the trainings' files."""

    directories: tuple[tuple[int, str], ...] = ()  # (pid, path): the room where they are
    files: tuple[WrittenFile, ...] = ()  # how long they are


class Collectors:
    """Reads what is due; how each source is stands in ``sources``."""

    def __init__(
        self, sources: Sources, proc: Proc, kernel_log: KernelLog | None = None, gpus: Gpus | None = None
    ) -> None:
        self._sources = sources
        self._proc = proc
        self._host = HostReader(proc.root)
        self._processes = Processes(proc)
        self._inspector = Inspector(proc)
        self._shared = SharedMemoryReader(proc)
        self._cgroups = Cgroups(proc)
        self._limits = PacedLimits(LimitReader(proc, self._cgroups, self._shared), sources)
        self._places = FilesystemStats(proc)
        self._orphans = Orphans(proc)
        self._log = kernel_log
        self._gpus = gpus
        if kernel_log is not None:
            sources.record("kernel_log", kernel_log.open() or True, 0)
        self._rivals = Rivals(proc)
        self._instructions = Instructions(proc)
        self._due = _Due()
        self._times = 1
        self._gpus_present = False
        self._asked = _Asked()
        self._before: Sequence[Watched] = ()

    def look_at(self, directories: tuple[tuple[int, str], ...], files: tuple[WrittenFile, ...] = ()) -> None:
        """(pid, directory) whose file systems' room is of interest from now on, and files whose size is."""
        if directories != self._asked.directories:
            self._due.spaces = 0
        self._asked = _Asked(directories, files)

    def lengthen_pauses(self, times: int) -> None:
        """Make the pauses between regular samples so many times as long; not what an event asks for, nor near
        a limit."""
        self._times = self._limits.schedule.times = times

    def due_ns(self) -> int | None:
        """When limits want a turn of their own; None: they wait for the next one."""
        return self._limits.schedule.wanted_ns()

    def read(self, now: Moment, watched: Sequence[Watched], events: Sequence[Event] = ()) -> FrameSamples:
        """The samples of this turn. The host's are left out while nothing is watched."""
        at = now.monotonic_ns
        ended = {e.pid for e in events if isinstance(e, ProcessEvent) and e.kind is ProcessEventKind.EXIT}
        if ended and self._before:
            self._meet_workers(ended)
            self._due.orphans = min(self._due.orphans, at + ORPHANS_SOON_NS)
        self._before = watched
        orphans = self._read_orphans(at)
        if not watched:
            return FrameSamples(orphans=orphans)
        limits = self._limits.read(watched, at, events)
        self._sources.record("cgroups", NO_CGROUPS if self._cgroups.hidden else True, at)
        processes = self._read_processes(watched, at)
        host: HostSample | None = None
        quotas: tuple[QuotaSample, ...] = ()
        if at >= self._due.host:
            self._due.host = at + HOST_NS * self._times
            host = self._sources.read("host", lambda: self._read_host(at), at)
            quotas = self._read_quotas(watched)
        return FrameSamples(
            processes=processes,
            memory=self._memory(limits),
            host=host,
            quotas=quotas,
            io_limits=self._read_io_limits(watched, at),
            limits=limits,
            descriptors=self._read_descriptors(limits, at, events),
            shared=self._read_shared(now, watched, events),
            spaces=self._read_spaces(at),
            sizes=self._read_sizes(at),
            orphans=orphans,
            gpus=self._read_gpus(at),
            counted=self._instructions.read(),
        )

    def logged(self, now: Moment) -> Sequence[Event]:
        """What the kernel's log tells since the last call."""
        return self._log.read(now.monotonic_ns) if self._log is not None else ()

    def read_limits(self, now: Moment, watched: Sequence[Watched]) -> None:
        """Read limits alone, for ``far``; the next ``read`` gives them."""
        self._limits.read_between(watched, now.monotonic_ns)

    def count(self, threads: Sequence[tuple[int, int]]) -> None:
        """Count the instructions of these threads (pid, tid) from now on, and of no others."""
        self._instructions.count(threads)

    def inspect(self, now: Moment, threads: Sequence[tuple[int, int]]) -> tuple[Inspection, ...]:
        """A look at threads whose step is late (pid, tid); the disks are looked at sooner for them."""
        self._due.host = min(self._due.host, now.monotonic_ns + LATE_HOST_NS)
        seen = self._sources.read("inspection", lambda: self._looks(threads), now.monotonic_ns)
        return seen or ()

    def _looks(self, threads: Sequence[tuple[int, int]]) -> tuple[Inspection, ...]:
        looks = [self._inspector.inspect(pid, tid) for pid, tid in threads]
        return tuple(look for look in looks if look is not None)

    def _memory(self, limits: Sequence[LimitSample]) -> tuple[MemorySample, ...]:
        by_run: dict[str, list[LimitSample]] = {}
        for one in limits:
            if one.kind == "memory":
                by_run.setdefault(one.run, []).append(one)
        return tuple(sample for run, group in by_run.items() if (sample := nearest(run, group)) is not None)

    def _read_processes(self, watched: Sequence[Watched], at: int) -> tuple[ProcessSample, ...]:
        if at < self._due.processes:
            return ()
        soon = self._limits.schedule.near or any(young(process, at) for process in watched)
        pause = max(PROCESSES_NS * self._times, len(watched) * EACH_PROCESS_NS)
        self._due.processes = at + (NEAR_PROCESSES_NS if soon else pause)
        found = (
            self._sources.read("proc", lambda: self._processes.read(watched, at, near=self._limits.schedule.near), at)
            or ()
        )
        ticks = {process.pid: process.ticks for process in watched}
        known = [(s.pid, ticks[s.pid], s.role, s.ppid) for s in found if s.pid in ticks]
        for worker in workers_of(known):
            self._orphans.add_worker(*worker)
        return found

    def _read_descriptors(
        self, limits: Sequence[LimitSample], at: int, events: Sequence[Event]
    ) -> tuple[DescriptorSample, ...]:
        """Of processes that ran out of them at this moment, and of those that hold many."""
        failed = {e.pid for e in events if isinstance(e, CallFailed) and e.errno in DESCRIPTOR_ERRORS}
        many = {
            one.pid
            for one in limits
            if one.kind == "fds" and one.used > MANY * one.limit and at >= self._due.descriptors.get(one.pid, 0)
        }
        found: list[DescriptorSample] = []

        def read(pid: int) -> None:
            self._due.descriptors[pid] = at + DESCRIPTORS_NS
            one = self._sources.read("proc", partial(descriptors.kinds, self._proc, pid), at)
            found.extend([one] if one is not None else [])

        again = {pid for pid in failed if at >= self._due.descriptors.get(pid, 0) - DESCRIPTORS_NS + FAILED_NS}
        read_in_turn({pid: self._proc.pool.owner(pid) for pid in again | many}, read, READING_SECONDS)
        self._due.descriptors = {pid: due for pid, due in self._due.descriptors.items() if due > at - DESCRIPTORS_NS}
        return tuple(found)

    def _read_shared(
        self, now: Moment, watched: Sequence[Watched], events: Sequence[Event]
    ) -> tuple[SharedSample, ...]:
        at = now.monotonic_ns
        soon, pause = self._due.shared_soon, at - self._due.shared_read
        failed = any(isinstance(e, CallFailed) and e.tmpfs for e in events) and at >= soon.next_ns()
        if not failed and pause < (SHARED_SOON_NS if self._shared.waiting else SHARED_NS):
            return ()
        if failed:
            soon.count_one(at)
        self._due.shared_read = at
        found = self._sources.read(
            "shared_memory",
            lambda: self._shared.samples_with_leaks(self._limits.last, watched, now.wall_ns / NS),
            at,
        )
        return found or ()

    def _read_spaces(self, at: int) -> tuple[SpaceSample, ...]:
        if at < self._due.spaces or not self._asked.directories:
            return ()
        self._due.spaces = at + SPACES_NS
        asked = {place: place[0] for place in self._asked.directories}
        return self._in_turn(asked, self._due.spaces_read, lambda place: self._places.room(*place), "space", at)

    def _read_sizes(self, at: int) -> tuple[FileSizeSample, ...]:
        if at < self._due.sizes or not self._asked.files:
            return ()
        self._due.sizes = at + SIZES_NS * self._times
        asked = {file: file.pid for file in self._asked.files}
        return self._in_turn(asked, self._due.sizes_read, self._places.size, "sizes", at)

    def _in_turn(
        self, asked: Mapping[Asked, int], turn: dict[Asked, None], read: Callable[[Asked], Sample | None],
        source: str, at: int,
    ) -> tuple[Sample, ...]:  # fmt: skip
        """What of these there is time for, each user's in turn. ``asked``: whose process each one is of; ``turn``: what
        was read, the oldest first, which is brought up to date."""
        found: list[Sample] = []

        def read_one(one: Asked) -> None:
            turn.pop(one, None)
            turn[one] = None
            sample = self._sources.read(source, partial(read, one), at)
            found.extend([sample] if sample is not None else [])

        for gone in turn.keys() - asked.keys():
            del turn[gone]
        waiting = [*(one for one in asked if one not in turn), *turn]
        read_in_turn({one: self._proc.pool.owner(asked[one]) for one in waiting}, read_one, READING_SECONDS)
        return tuple(found)

    def _read_gpus(self, at: int) -> tuple[GpuSample, ...]:
        gpus = self._gpus
        if gpus is None or at < self._due.gpus:
            return ()
        self._due.gpus = at + GPUS_NS
        self._gpus_present = gpus.present(at)
        if not self._gpus_present:  # most hosts have none: that is no source that lacks
            return ()
        return self._sources.read("nvml", lambda: gpus.poll(at), at) or ()

    def _read_orphans(self, at: int) -> tuple[OrphanSample, ...] | None:
        if at < self._due.orphans:
            return None
        found = self._sources.read("orphans", lambda: self._orphans.read(at), at)
        apart = FOUND_ORPHANS_NS if found else ORPHANS_NS
        self._due.orphans = at + (ORPHANS_SOON_NS if self._orphans.waiting() else apart)
        return found

    def _meet_workers(self, ended: set[int]) -> None:
        """Whom the workers of a driver that has ended worked for, should it have lived between two readings."""
        drivers = [process for process in self._before if process.role == "driver"]
        of_run = Counter(driver.run for driver in drivers)
        alone = {one.run: one.pid for one in drivers if one.pid in ended and of_run[one.run] == 1}
        for process in self._before if alone else ():
            if process.role == "worker" and process.run in alone:
                self._orphans.add_worker(process.pid, process.ticks, alone[process.run])

    def _read_quotas(self, watched: Sequence[Watched]) -> tuple[QuotaSample, ...]:
        """Of each run; each cgroup is read once."""
        read: dict[str, Throttling | Unavailable] = {}
        found = []
        for run, pid in first_of_each_run(watched).items():
            cgroups = self._limits.cgroups(pid) or ""
            if cgroups not in read:
                read[cgroups] = self._cgroups.throttling(cgroups)
            if (quota := _quota(run, read[cgroups])) is not None:
                found.append(quota)
        return tuple(found)

    def _read_io_limits(self, watched: Sequence[Watched], at: int) -> tuple[IoLimitSample, ...] | None:
        """Of each run; each cgroup is read once. None: not due."""
        if at < self._due.io_limits:
            return None
        self._due.io_limits = at + IO_LIMITS_NS * self._times
        read: dict[str, list[IoLimitSample]] = {}
        found: list[IoLimitSample] = []
        for run, pid in first_of_each_run(watched).items():
            cgroups = self._limits.cgroups(pid) or ""
            if cgroups not in read:
                read[cgroups] = self._cgroups.io_limits(run, cgroups)
            found += [replace(one, run=run) for one in read[cgroups]]
        return tuple(found)

    @property
    def far(self) -> bool:
        """Whether no limit is to be read each second, and no GPU more often."""
        return self._limits.schedule.far and not self._gpus_present

    def rivals(self, now: Moment) -> tuple[RivalSample, ...]:
        """Who uses the processors; empty when it is not time for a look, or the first one."""
        at = now.monotonic_ns
        return self._sources.read("proc", lambda: self._rivals.read(at), at) or ()

    def _read_host(self, at: int) -> HostSample | Failed:
        return self._host.read(self._sources.read("psi", lambda: psi.read(self._proc.root), at))


def _quota(run: str, told: Throttling | Unavailable) -> QuotaSample | None:
    """None too where there is no quota: nothing can bite then."""
    if isinstance(told, Unavailable) or told.quota_cpus is None:
        return None
    return QuotaSample(run, told.periods, told.throttled_periods, told.throttled_ns, told.quota_cpus, told.path)
