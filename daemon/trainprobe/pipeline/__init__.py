"""step(frame): the one way from what was seen to what is said; live, attached and replayed runs take it alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainprobe.derive.devices import Devices
from trainprobe.detect.policy import Policy
from trainprobe.model.armed import Armed
from trainprobe.model.event import (
    CallFailed,
    Event,
    FileEvent,
    GpuXid,
    MarkRow,
    OomTold,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RunEnded,
    RunStarted,
    StackSeen,
)
from trainprobe.model.frame import Frame
from trainprobe.model.kept import KeptRank, RunKept
from trainprobe.model.moment import NS, Moment, Offsets
from trainprobe.model.report import BlockIo, Cost, Evidence, Host, Orphan, Report, Run, SharedMemory, Source
from trainprobe.model.sample import (
    CostSample,
    HostSample,
    OrphanSample,
    ProcessSample,
    SharedSample,
    SourceState,
    WrittenFile,
)
from trainprobe.model.steprow import RankSteps
from trainprobe.pipeline.gpus import GpuTable
from trainprobe.pipeline.run import RunFold

ProcessesEvent = MarkRow | FileEvent | ProcessEvent | StackSeen | CallFailed
"""What a process of a run did, or what was done to it."""
INSPECT_EVERY = NS // 2
ENDED = 16
"""Ended runs kept in the report."""
SETTLED_NS = 120 * NS
"""After this nothing is told of an ended run that changes it (its orphans, what the kernel log says of its death), and
what is said of it takes the place of what was known: a twentieth of the memory."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What the judgement would like to see next."""

    detail: bool = False  # read worker ledgers each 50-100 ms: a step is late
    stacks: tuple[tuple[int, int], ...] = ()  # (pid, tid) of threads whose Python stack would help
    inspect: tuple[tuple[int, int], ...] = ()  # (pid, tid) of drivers whose step is late
    rivals: bool = False  # who uses the processors: a driver waits for one
    faults: bool = False  # trace page faults: major faults rise
    tell: bool = False  # a stall has opened or a limit was hit: a report should not wait
    spaces: tuple[tuple[int, str], ...] = ()  # (pid, directory) whose file system's room is of interest
    files: tuple[WrittenFile, ...] = ()  # whose size is of interest
    calm_ns: int = 0  # for how long all that runs has run evenly: the longer, the seldomer looks may be
    count: tuple[tuple[int, int], ...] = ()  # (pid, tid) of drivers whose instructions are to be counted


@dataclass(slots=True)
class Pipeline:
    """All runs of this host, as far as the frames told."""

    policy: Policy | None = None
    host: Host | None = None
    runs: dict[str, RunFold] = field(default_factory=dict)
    _takers: dict[int, str] = field(default_factory=dict)  # by pid: the run whose its last event was
    _settled: dict[str, Run] = field(default_factory=dict)  # runs that ended some time ago, in that order
    _sources: dict[str, SourceState] = field(default_factory=dict)
    _host_sample: HostSample | None = None
    _cost: CostSample | None = None
    _cost_from: tuple[float, int] | None = None  # CPU seconds and ns at the first sample: compiling came before it
    _lost: dict[str, int] = field(default_factory=dict)
    _now: int = 0
    _offsets: Offsets = field(default_factory=Offsets)
    _open: frozenset[tuple[str, int]] = frozenset()  # (run, start) of the open stalls
    _opened: bool = False
    _devices: Devices = field(default_factory=Devices)
    _inspected: frozenset[tuple[int, int]] = frozenset()
    _inspected_ns: int = 0
    _shared: dict[tuple[str, str], SharedSample] = field(default_factory=dict)
    _orphans: tuple[OrphanSample, ...] | None = None
    _gpus: GpuTable = field(default_factory=GpuTable)

    def step(self, frame: Frame) -> None:
        """Take in one frame."""
        self._now = frame.at.monotonic_ns
        self._offsets.note(frame.at)
        for event in frame.events:
            if not isinstance(event, MarkRow) or not self._known_row(event):
                self._event(event)
        self._samples(frame)
        self._surroundings(frame)
        self._feed_limits(frame)
        self._host_sample = frame.host or self._host_sample
        self._cost = frame.cost or self._cost
        if frame.cost is not None and self._cost_from is None:
            self._cost_from = (frame.cost.cpu_seconds, self._now)
        self._lost = frame.events_lost or self._lost
        self._settle(frame.at)
        news = [run.look(self._now) for run in self.runs.values()]
        stalls = frozenset((name, start) for name, run in self.runs.items() for start in run.open_stalls())
        self._opened = bool(stalls - self._open) or any(news)
        self._open = stalls

    def _owners(self) -> dict[int, list[RunFold]]:
        """By pid the runs that a process belongs to, which is one, mostly."""
        owners: dict[int, list[RunFold]] = {}
        for run in self.runs.values():
            for pid in run.pids():
                owners.setdefault(pid, []).append(run)
        return owners

    def _processes(self, samples: Sequence[ProcessSample], owners: Mapping[int, Sequence[RunFold]]) -> None:
        for sample in samples:
            for run in owners.get(sample.pid, ()):
                run.feed_sample(sample)
        for run in self.runs.values() if samples else ():
            run.read(self._now)

    def _feed_limits(self, frame: Frame) -> None:
        for limit in frame.limits:
            if (fold := self.runs.get(limit.run)) is not None:
                fold.supplies.feed_limit(limit, self._now)
        for run in self.runs.values():
            run.supplies.descriptors.update({d.pid: d for d in frame.descriptors if run.owns(d.pid)})
            run.supplies.feed_spaces({s.path: s for s in frame.spaces if run.owns(s.pid)})
            run.feed_sizes(frame.sizes)
            if frame.processes:
                run.processes_fed(self._now)
            if frame.orphans is not None:
                run.feed_orphans(frame.orphans)
        for shared in frame.shared:
            self._shared[shared.device, shared.container] = shared
            for name in shared.runs:
                if (fold := self.runs.get(name)) is not None:
                    fold.supplies.shared = shared
        if frame.orphans is not None:
            self._orphans = frame.orphans
        self._feed_gpus(frame)

    def _feed_gpus(self, frame: Frame) -> None:
        self._gpus.faults.clear()
        for sample in frame.gpus:
            self._gpus.feed(sample, self._now)
        for event in frame.events:
            if isinstance(event, GpuXid):
                self._gpus.feed_xid(event)
        if frame.gpus or self._gpus.faults:
            for run in self.runs.values():
                run.feed_gpus(frame.gpus, self._gpus.faults, self._now)

    def _samples(self, frame: Frame) -> None:
        """What was read of threads, processes and sources."""
        owners = self._owners() if frame.threads or frame.processes else {}
        for sample in frame.threads:
            for run in owners.get(sample.pid, ()):
                run.feed_thread(sample, self._now)
        self._processes(frame.processes, owners)
        for count in frame.counted:
            for run in self.runs.values():
                run.feed_count(count)
        for memory in frame.memory:
            fold = self.runs.get(memory.run)
            if fold is not None:
                fold.memory = memory
        for source in frame.sources:
            self._sources[source.name] = source

    def _surroundings(self, frame: Frame) -> None:
        """What was read of the host: its devices, its quotas, who else is there."""
        if frame.host is not None:
            self._devices.feed(frame.host.disks, self._now)
            self._devices.cpus = frame.host.cpus
            self._feed_busy(frame.host)
            self._devices.feed_steal(frame.host.steal_ns, self._now)
            for run in self.runs.values():
                run.feed_host(frame.host, self._now)
        if frame.rivals:
            self._devices.feed_rivals(frame.rivals, self._now)
        for quota in frame.quotas:
            if quota.run in self.runs:
                self.runs[quota.run].quota.feed(quota, self._now)
        for seen in frame.inspections:
            for run in self.runs.values():
                run.feed_inspection(seen, self._now)

    def _event(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            if event.run not in self.runs:
                self._settled.pop(event.run, None)
                self.runs[event.run] = RunFold(event, self.policy or Policy(), devices=self._devices)
                self._forget()
        elif isinstance(event, RunKept):
            if (going := self.runs.get(event.run)) is not None:
                going.go_on(event)
        elif isinstance(event, (RankSeen, RunEnded)):
            fold = self.runs.get(event.run)
            if fold is not None and isinstance(event, RankSeen):
                fold.rank_seen(event)
                self._takers[event.pid] = event.run
            elif fold is not None:
                fold.end(event.at_ns)
        elif isinstance(event, (OomTold, GpuXid)):
            for run in self.runs.values():
                run.feed(event)
        else:
            self._offer(event)

    def _known_row(self, row: MarkRow) -> bool:
        """Whether the run that took the last event of its process takes this row, too. Most events are such."""
        run = self.runs.get(self._takers.get(row.pid, ""))
        return run is not None and run.feed_row(row)

    def _offer(self, event: ProcessesEvent) -> None:
        """To one run after the other until one says that it is its own; first to the one that took the last event of
        the same process, or of the parent of one that is born."""
        kind = event.kind if isinstance(event, ProcessEvent) else None
        known = event.ppid if isinstance(event, ProcessEvent) and kind is ProcessEventKind.FORK else event.pid
        taker = self._takers.get(known, "")
        likely = self.runs.get(taker)
        if likely is None or not likely.feed(event):
            others = ((name, run) for name, run in self.runs.items() if run is not likely)
            taker = next((name for name, run in others if run.feed(event)), "")
        if kind is ProcessEventKind.EXIT:
            self._takers.pop(event.pid, None)
        elif taker:
            self._takers[event.pid] = taker

    def _settle(self, at: Moment) -> None:
        """Keep of long ended runs only what is said of them."""
        ended = [(name, fold) for name, fold in self.runs.items() if fold.end_ns is not None]
        for name, fold in ended:
            if fold.end_ns is not None and self._now - fold.end_ns >= SETTLED_NS:
                self._settled[name] = fold.report(self._offsets.known(at), self._cpus())
                del self.runs[name]
                self._takers = {pid: taker for pid, taker in self._takers.items() if taker != name}

    def _forget(self) -> None:
        """Of ended runs all but the latest, the oldest of him who has most first; and the shared memory of those."""
        ended = [(name, run.user) for name, run in self._settled.items()]
        ended += [(name, fold.started.user) for name, fold in self.runs.items() if fold.end_ns is not None]
        while len(ended) > ENDED:
            (most, _), *_ = Counter(user for _, user in ended).most_common(1)
            oldest = next(one for one in ended if one[1] == most)
            ended.remove(oldest)
            self._settled.pop(oldest[0], None)
            self.runs.pop(oldest[0], None)
        known = {*self._settled, *self.runs}
        self._shared = {key: one for key, one in self._shared.items() if known.intersection(one.runs)}

    def armed(self) -> list[Armed]:
        """The drivers whose present step is not a stall yet."""
        return [one for run in self.runs.values() for one in run.armed() if one.limit_ns > self._now]

    def wants(self) -> Wants:
        """What to look at more closely until the next frame."""
        live = [run for run in self.runs.values() if run.end_ns is None]
        late = any(limit <= self._now for run in live for limit in run.limits())
        stacks = tuple(pair for run in live for pair in run.stacks_wanted(self._now))
        faults = any(run.faulting(self._now) for run in live)
        threads = tuple(pair for run in live for pair in run.late_threads(self._now)) if late else ()
        spaces = tuple(place for run in live for place in run.spaces())
        crowded = any(run.crowded() for run in live)
        files = tuple(file for run in live for file in run.logs())
        even = bool(live) and not (late or faults)
        calm_ns = min(run.calm_ns(self._now) for run in self.runs.values()) if even else 0
        count = tuple(pair for run in live for pair in run.counting(self._now))
        return Wants(late, stacks, self._due(threads), crowded, faults, self._opened, spaces, files, calm_ns, count)

    def _due(self, threads: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """Late threads are looked at as they become late, and twice a second from then on."""
        fresh = frozenset(threads) - self._inspected
        due = bool(threads) and (bool(fresh) or self._now - self._inspected_ns >= INSPECT_EVERY)
        self._inspected = frozenset(threads)
        if due:
            self._inspected_ns = self._now
        return threads if due else ()

    def report(self, at: Moment) -> Report:
        """Everything known, as of ``at``."""
        at = self._offsets.known(at)
        runs = [*self._settled.values(), *(fold.report(at, self._cpus()) for fold in self.runs.values())]
        cost = self._cost
        return Report(
            generated=at.wall_ns / NS,
            host=self._host(),
            sources={s.name: Source(s.state.value, s.reason, s.remedy) for s in self._sources.values()},
            events_lost=sum(self._lost.values()),
            events_lost_by=dict(self._lost),
            cost=Cost(
                cost.cpu_seconds if cost else 0.0,
                cost.rss_bytes if cost else 0,
                cost.bpf_seconds if cost else None,
                self._share(at),
                cost.bpf_runs if cost else None,
            ),
            runs=runs,
            gpus=self._gpus.states(),
            shared_memory=[_shared(sample) for sample in self._shared.values()],
            orphans=None if self._orphans is None else [_orphan(sample) for sample in self._orphans],
        )

    def take_steps(self, at: Moment) -> list[RankSteps]:
        """The steps of every rank since the last call."""
        at = self._offsets.known(at)
        return [steps for fold in self.runs.values() for steps in fold.take_steps(at)]

    @property
    def stalled(self) -> bool:
        """Whether a stall is open."""
        return bool(self._open)

    def kept(self) -> dict[tuple[str, str], KeptRank]:
        """By run and rank, what another process would need to go on with what is live."""
        live = ((name, fold) for name, fold in self.runs.items() if fold.end_ns is None)
        return {(name, rank): kept for name, fold in live for rank, kept in fold.kept_ranks().items()}

    def _cpus(self) -> int:
        return self._host_sample.cpus if self._host_sample else (self.host.cpus if self.host else 0)

    def _share(self, at: Moment) -> float | None:
        """What watching costs since it began, as a part of one CPU over that time."""
        if self._cost is None or self._cost_from is None or at.monotonic_ns <= self._cost_from[1]:
            return None
        spent = self._cost.cpu_seconds - self._cost_from[0] + (self._cost.bpf_seconds or 0.0)
        return spent / ((at.monotonic_ns - self._cost_from[1]) / NS)

    def _feed_busy(self, sample: HostSample) -> None:
        for run in self.runs.values():
            for fold in (fold for folds in run.folds.values() for fold in folds):
                if fold.end_ns is None and fold.baseline.stands:
                    fold.busy.feed(sample, self._now)

    def _host(self) -> Host:
        host, sample = self.host or Host(), self._host_sample
        if sample is None:
            return host
        return Host(
            host.name,
            host.kernel,
            sample.cpus or host.cpus,
            sample.memory_bytes if sample.memory_bytes is not None else host.memory_bytes,
            sample.swap_used_bytes,
            sample.swap_size_bytes,
            sample.swap_in_pages,
            sample.pressure,
            _block_io(sample),
        )


def _block_io(sample: HostSample) -> list[BlockIo]:
    names = {disk.dev: disk.device for disk in sample.disks}
    return [
        BlockIo(names[one.dev], one.operation, list(one.counts), one.ns / NS)
        for one in sample.block_io
        if one.dev in names
    ]


def _shared(sample: SharedSample) -> SharedMemory:
    leaked = [Evidence("left", leak.bytes, "bytes", leak.pid, f"/dev/shm/{leak.name}") for leak in sample.leaks]
    total = sum(leak.bytes for leak in sample.leaks)
    return SharedMemory(sample.device, sample.container, sample.used_bytes, sample.size_bytes, total, leaked)


def _orphan(sample: OrphanSample) -> Orphan:
    return Orphan(sample.pid, sample.comm, sample.pss_bytes, sample.shm_bytes, sample.gpu_files)
