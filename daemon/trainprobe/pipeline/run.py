"""One launch of a training: its ranks, and which event belongs to which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainprobe.derive.devices import Devices
from trainprobe.derive.evenness import MOST_NS
from trainprobe.derive.quota import Quota
from trainprobe.detect.limits.base import GpuFault
from trainprobe.detect.policy import Policy
from trainprobe.model.armed import Armed
from trainprobe.model.cause import Cause
from trainprobe.model.cells import Leaf, Level, RowKind
from trainprobe.model.event import (
    CallFailed,
    Event,
    FileEvent,
    MarkRow,
    OomTold,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RunStarted,
    StackSeen,
    ThreadSample,
)
from trainprobe.model.kept import KeptRank, RunKept
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Rank, Run
from trainprobe.model.sample import (
    CountSample,
    FileSizeSample,
    GpuSample,
    HostSample,
    Inspection,
    MemorySample,
    OrphanSample,
    ProcessSample,
    WrittenFile,
)
from trainprobe.model.steprow import RankSteps
from trainprobe.pipeline.beat import beat
from trainprobe.pipeline.busy import Others
from trainprobe.pipeline.continued import closed, continued, cut, open_stall
from trainprobe.pipeline.culprit import name_culprits
from trainprobe.pipeline.gpus import bound_by
from trainprobe.pipeline.limits import RunLimits
from trainprobe.pipeline.rank import BY_WORKERS, RankFold
from trainprobe.pipeline.render import rank_report
from trainprobe.pipeline.resume import kept_of, resume

STACK_EVERY = 5 * NS
ORDINARY_STACK_EVERY = 30 * NS
OFTEN, SELDOM = 4, 6
"""After so many of a rank the pause grows by itself, up to so many times."""
CROWDED = 0.15
"""Part of a driver's time in the run queue."""
WAITS = frozenset({Leaf.LOCK, Leaf.POLL, Leaf.SOCKET})
"""A driver found in one of these waits for somebody whose stack tells more."""
SIGBUS = 7
LEFT_NS = 10 * NS
"""After a run's end until all that it left is found."""


@dataclass(slots=True)
class RunFold:
    """A run's folds by process; a process with several drivers has several."""

    started: RunStarted
    policy: Policy
    folds: dict[int, list[RankFold]] = field(default_factory=dict)
    memory: MemorySample | None = None
    supplies: RunLimits = field(default_factory=RunLimits)
    end_ns: int | None = None
    kept: RunKept | None = None  # what an earlier process of ours told of it
    devices: Devices = field(default_factory=Devices)
    quota: Quota = field(default_factory=Quota)
    others: Others = field(default_factory=Others)
    _stack_at: int = 0

    def rank_seen(self, seen: RankSeen) -> None:
        """A process that drives a rank, or may come to."""
        known = self.folds.get(seen.pid)
        if known:
            known[0].seen = seen
            known[0].attached = known[0].attached and self.started.attached
            return
        fold = RankFold(seen, self.policy, attached=self.started.attached, devices=self.devices, quota=self.quota)
        for other in self._all():
            self._hand_over(other, fold)
        self.folds[seen.pid] = [fold]
        self._several()

    def _hand_over(self, other: RankFold, fold: RankFold) -> None:
        """Children that were taken for another process's, because theirs was not known yet, and what they forked."""
        other.workers.live.pop(fold.seen.pid, None)
        own = {fold.seen.pid}
        for pid, life in list(other.workers.live.items()):  # parents come first
            if life.ppid in own:
                own.add(pid)
                other.workers.started -= life.role == "worker"
                if not life.executed:  # to the launcher the training itself is another program, with all that it forks
                    life.role = fold.workers.forked_role(life.ppid)
                fold.workers.live[pid] = other.workers.live.pop(pid)
                if life.role == "worker":
                    fold.workers.started += 1
                    fold.workers.starts.append(life.start_ns)
        fold.workers.peak = max(fold.workers.peak, fold.workers.count)

    def _several(self) -> None:
        stepping = [fold for fold in self._all() if fold.stepped]
        for fold in self._all():
            fold.ranks = len(stepping) > 1 or (fold.seen.world_size or 1) > 1

    def _all(self) -> list[RankFold]:
        return [fold for folds in self.folds.values() for fold in folds]

    def _of(self, pid: int) -> RankFold | None:
        folds = self.folds.get(pid)
        if folds:
            return folds[0]
        return next((fold for fold in self._all() if fold.workers.owns(pid)), None)

    def pids(self) -> set[int]:
        """Its drivers, ended ones too, and their live children."""
        return {*self.folds, *(pid for fold in self._all() for pid in fold.workers.live)}

    def owns(self, pid: int) -> bool:
        """Whether it is, or lately was, a process of this run."""
        return any(fold.known(pid) for fold in self._all())

    def feed(self, event: Event) -> bool:
        """Whether the event belongs to this run alone (an OOM victim may concern several)."""
        if isinstance(event, MarkRow):
            return self.feed_row(event)
        if isinstance(event, FileEvent):
            return self.feed_file(event)
        if isinstance(event, ProcessEvent):
            return self.feed_process(event) and event.kind != ProcessEventKind.OOM
        if isinstance(event, StackSeen):
            self.feed_stack(event)
        elif isinstance(event, OomTold):
            self.supplies.feed_oom(event)
        elif isinstance(event, CallFailed):
            return self.feed_failure(event)
        return False

    def feed_row(self, row: MarkRow) -> bool:
        """Whether the row belongs to this run."""
        folds = self.folds.get(row.pid)
        if not folds:
            return False
        fold = folds[0] if folds[0].tid == row.tid else self._fold_of(row, folds)
        stepped = fold.stepped
        fold.feed_row(row)
        if fold.stepped and not stepped:
            self._several()
        return True

    def _fold_of(self, row: MarkRow, folds: list[RankFold]) -> RankFold:
        """Of several drivers of a process this row's own, which may be new."""
        for fold in folds:
            if fold.tid == row.tid:
                return fold
        if not folds[0].stepped or row.kind not in (RowKind.OPTIMIZER, RowKind.BACKWARD):
            return folds[0]
        fold = RankFold(
            folds[0].seen, self.policy, attached=self.started.attached, devices=self.devices, quota=self.quota
        )
        fold.tid = row.tid
        fold.start_ns = row.opened_ns or row.at_ns
        folds.append(fold)
        return fold

    def feed_file(self, event: FileEvent) -> bool:
        """Whether the event belongs to this run."""
        fold = self._of(event.pid)
        if fold is None:
            return False
        for same in self.folds.get(fold.seen.pid, [fold]):
            same.feed_file(event)
        return True

    def feed_process(self, event: ProcessEvent) -> bool:
        """Whether the event belongs to this run."""
        fold = self._of(event.pid) or (self._of(event.ppid) if event.ppid else None)
        if fold is None:
            return False
        if event.kind == ProcessEventKind.OOM:
            self.supplies.feed_victim(event, fold)
        elif event.kind == ProcessEventKind.SIGNAL and event.signal == SIGBUS and not event.by_user:
            self.supplies.feed_bus_error(event)
        for same in self.folds.get(fold.seen.pid, [fold]):
            same.feed_process(event)
        if event.kind == ProcessEventKind.EXIT and event.pid == fold.seen.pid:
            self.supplies.feed_end()
        return True

    def feed_failure(self, event: CallFailed) -> bool:
        """Whether it was a call of one of this run's processes."""
        if self._of(event.pid) is None:
            return False
        self.supplies.feed_failure(event)
        return True

    def feed_stack(self, event: StackSeen) -> None:
        """A stack that was asked for."""
        folds = self.folds.get(event.pid)
        if folds is None:
            fold_of = self._of(event.pid)
            folds = [fold_of] if fold_of is not None else []
        for fold in folds:
            fold.feed_stack(event)

    def feed_inspection(self, seen: Inspection, at_ns: int) -> None:
        """A look at a late driver."""
        for fold in self.folds.get(seen.pid, ()):
            fold.feed_inspection(seen, at_ns)

    def feed_thread(self, sample: ThreadSample, at_ns: int) -> None:
        """An open ledger."""
        folds = self.folds.get(sample.pid)
        if folds:
            for fold in folds:
                fold.feed_thread(sample, at_ns)
                if sample.tid == fold.tid:
                    beat(fold, sample, at_ns)
        elif sample.level == Level.COARSE:
            fold_of = self._of(sample.pid)
            if fold_of is not None:
                fold_of.feed_thread(sample, at_ns)

    def feed_host(self, host: HostSample, at_ns: int) -> None:
        """What the whole host has and lacks."""
        self.others.feed(host, at_ns)
        for fold in self._all():
            if fold.end_ns is None:
                fold.feed_host(host, at_ns)

    def feed_sample(self, sample: ProcessSample) -> None:
        """What /proc told of one process."""
        fold = self._of(sample.pid)
        if fold is not None:
            fold.feed_sample(sample)

    def go_on(self, kept: RunKept) -> None:
        """An earlier process of ours watched this run."""
        self.kept = kept
        ids = {told.pid: stall.id for told in kept.told if (stall := open_stall(told)) is not None}
        for found in kept.ranks:
            if (folds := self.folds.get(found.pid)) and not folds[0].stepped:
                resume(folds[0], found, kept.at_ns, ids.get(found.pid, ""))
        self._several()

    def kept_ranks(self) -> dict[str, KeptRank]:
        """By the ranks' names, what another process would need to go on with them."""
        named = ((name, kept_of(fold)) for fold, _, name in self._named(self.shown()))
        return {name: kept for name, kept in named if kept is not None}

    def read(self, at_ns: int) -> None:
        """The processes of this moment are all told."""
        others = self.others.read(self._cpu_ns(), at_ns)
        for fold in self._all():
            fold.read(at_ns)
            fold.trend.surroundings(others)
            if self.memory is not None and self.memory.used_bytes is not None:
                fold.feed_used(self.memory.used_bytes)

    def _cpu_ns(self) -> dict[tuple[int, int], int]:
        read = (sample for fold in self._all() for sample in fold.processes.values())
        return {(one.pid, one.started_ns): one.cpu_ns for one in read if one.cpu_ns is not None}

    def look(self, now_ns: int) -> bool:
        """Judge open steps and limits; whether a limit has news."""
        for fold in self._all():
            if fold.end_ns is None:
                fold.look(now_ns)
        name_culprits(self._all(), now_ns)
        return self.supplies.judge(self._all(), now_ns)

    def feed_orphans(self, found: Sequence[OrphanSample]) -> None:
        """All workers of the host that have no trainer."""
        self.supplies.feed_orphans(found, self.folds)

    def feed_gpus(self, samples: Sequence[GpuSample], faults: Sequence[GpuFault], now_ns: int) -> None:
        """Readings of the host's GPUs, and what broke in them."""
        self.supplies.feed_gpu_faults(faults)
        for fold in self._all():
            if samples and fold.end_ns is None:
                self.supplies.feed_gpus(fold, samples, now_ns)

    def processes_fed(self, now_ns: int) -> None:
        """The samples of a frame are in."""
        for fold in self._all():
            if fold.end_ns is None:
                self.supplies.feed_processes(fold, now_ns)

    def spaces(self) -> list[tuple[int, str]]:
        """(pid, directory) of the latest checkpoint of each rank that goes on."""
        found = []
        for fold in self._all():
            saves = fold.saves.checkpoints() if fold.end_ns is None else []
            if saves and "/" in saves[-1].path:
                found.append((fold.seen.pid, saves[-1].path.rpartition("/")[0]))
        return found

    def logs(self) -> list[WrittenFile]:
        """The longest log files of each rank that goes on."""
        return [
            WrittenFile(fold.seen.pid, log.path, *log.inode)
            for fold in self._all()
            if fold.end_ns is None
            for log in fold.longest_logs
        ]

    def feed_sizes(self, samples: Sequence[FileSizeSample]) -> None:
        for fold in self._all():
            fold.saves.feed_sizes({(s.dev, s.ino): s.bytes for s in samples if s.pid == fold.seen.pid})

    def open_stalls(self) -> list[int]:
        """Starts of the stalls that last."""
        return [fold.book.open.start_ns for fold in self._all() if fold.book.open is not None]

    def limits(self) -> list[int]:
        """When the open steps become stalls."""
        return [limit for fold in self._all() if (limit := fold.limit_ns()) is not None]

    def armed(self) -> list[Armed]:
        """The alarms of the open steps."""
        return [one for fold in self._all() if (one := fold.armed()) is not None]

    def stacks_wanted(self, now_ns: int) -> list[tuple[int, int]]:
        """Drivers whose stack would help: late ones, each asked for at most every 5 s."""
        late = [f for f in self._all() if (limit := f.limit_ns()) is not None and now_ns >= limit]
        fresh = [f for f in late if f.stack is None]
        if not late:
            return self._ordinary_stack(now_ns)
        if not fresh and now_ns - self._stack_at < STACK_EVERY:
            return []
        self._stack_at = now_ns
        busy_first = sorted(fresh or late, key=lambda f: f.sample is not None and f.sample.leaf in WAITS)
        return [_asked(f) for f in busy_first]

    def _ordinary_stack(self, now_ns: int) -> list[tuple[int, int]]:
        """Now and then one of a step that is not late, of each rank in turn; seldomer when there are some."""
        stepping = [f for f in self._all() if f.baseline.stands and f.end_ns is None]
        if not stepping or now_ns - self._stack_at < ORDINARY_STACK_EVERY:
            return []
        fold = min(stepping, key=lambda f: f.lines.samples)
        if now_ns - self._stack_at < ORDINARY_STACK_EVERY * min(1 + fold.lines.samples // OFTEN, SELDOM):
            return []
        self._stack_at = now_ns
        fold.lines_ns = now_ns
        return [(fold.seen.pid, fold.tid)]

    def late_threads(self, now_ns: int) -> list[tuple[int, int]]:
        """Drivers whose step is late: what /proc says of them helps."""
        return [(f.seen.pid, f.tid) for f in self._all() if (limit := f.limit_ns()) is not None and now_ns >= limit]

    def calm_ns(self, now_ns: int) -> int:
        """For how long each rank that steps has stepped evenly; 0 while none does, and shortly after the run's end."""
        if self.end_ns is not None:
            return MOST_NS if now_ns - self.end_ns >= LEFT_NS else 0
        return min((fold.calm_ns(now_ns) for fold in self._all() if fold.stepped), default=0)

    def counting(self, now_ns: int) -> list[tuple[int, int]]:
        """Drivers whose instructions are to be counted until the next look."""
        return [
            (f.seen.pid, f.tid)
            for f in self._all()
            if f.baseline.stands and f.end_ns is None and f.counting.wanted(now_ns)
        ]

    def feed_count(self, count: CountSample) -> None:
        """Instructions of one of its drivers."""
        for fold in self._all():
            if fold.tid == count.tid:
                fold.counting.feed(count)

    def crowded(self) -> bool:
        """Whether a driver waits for a processor so much that its rivals are worth a look."""
        return any(f.queueing >= CROWDED or f.late.queued for f in self._all() if f.end_ns is None)

    def faulting(self, now_ns: int) -> bool:
        """Whether major faults are worth tracing: swapping is under way."""
        return any(
            f.swapping.by_training(now_ns)
            or (f.book.open is not None and f.book.open.cause in (Cause.SWAP, Cause.MEMORY_PRESSURE))
            for f in self._all()
            if f.end_ns is None
        )

    def end(self, at_ns: int) -> None:
        """The last driver has ended, or we leave."""
        self.end_ns = at_ns
        for fold in self._all():
            fold.end(at_ns)

    def shown(self) -> list[RankFold]:
        """The ranks of the report: those that step; while none does, the first candidate."""
        every = self._all()
        stepping = [fold for fold in every if fold.stepped]
        if stepping:
            return stepping
        certain = [fold for fold in every if not fold.seen.candidate]
        return certain or every[:1]

    def _with_the_told(self, live: list[Rank]) -> list[Rank]:
        """What an earlier process told of these ranks, and of those that had ended before we came, with ours."""
        if self.kept is None:
            return live
        told = {rank.name: rank for rank in self.kept.told}
        same = {found.pid for found in self.kept.ranks if found.same_step}
        ranks = []
        for rank in live:
            before = told.pop(rank.name, None)
            if before is not None:
                goes_on = rank.pid in same and open_stall(before) is not None
                rank = continued(cut(before) if goes_on else closed(before), rank)
            ranks.append(rank)
        return [*(closed(rank) for rank in told.values()), *ranks]

    def take_steps(self, at: Moment) -> list[RankSteps]:
        """The steps since the last call."""
        told = ((name, fold.passed.take(at)) for fold, _, name in self._named(self.shown()))
        return [RankSteps(self.started.run, name, rows) for name, rows in told if rows]

    def _named(self, folds: Sequence[RankFold]) -> Iterator[tuple[RankFold, int, str]]:
        """Each rank's fold with its number and its name, in order."""
        taken: dict[int, int] = {}
        for fold in sorted(folds, key=lambda f: (f.seen.rank is None, f.seen.rank or 0, f.seen.started_ns)):
            number = fold.seen.rank if fold.seen.rank is not None else _place(taken, fold.seen.pid)
            further = self.folds[fold.seen.pid].index(fold)
            yield fold, number, f"{number}.{further}" if further else str(number)

    def _labels(self) -> dict[str, str | None]:
        known = {"container": self.supplies.container} | dict(self.started.labels)
        return {key: known.get(key) for key in ("slurm_job", "pod_uid", "container", "unit", "torchrun")}

    def report(self, at: Moment, cpus: int) -> Run:
        """The run's part of the report."""
        shown = self.shown()
        world = max([len({f.seen.pid for f in shown}), *(f.seen.world_size or 1 for f in shown)], default=1)
        ranks = []
        memory = self.supplies.reached(self.started.run) or self.memory
        for fold, number, name in self._named(shown):
            if memory is not None:
                fold.limit_bytes, fold.limit_scope = memory.limit_bytes, memory.limit_scope
            ranks.append(rank_report(fold, at, self.started.run, number, name, world, cpus))
            _add_limits(ranks[-1], fold, self.supplies)
        ranks = self._with_the_told(ranks)
        return Run(
            self.started.run,
            list(self.started.command),
            self.started.user,
            self.started.cwd,
            self.kept.started if self.kept is not None else at.wall_of(self.started.at_ns),
            at.wall_of(self.end_ns) if self.end_ns is not None else None,
            self._labels(),
            ranks,
            {"used_bytes": memory.used_bytes, "limit_bytes": memory.limit_bytes, "scope": memory.limit_scope}
            if memory
            else {},
            self.supplies.oom_kills(),
        )


def _asked(fold: RankFold) -> tuple[int, int]:
    """Whose stack tells more: while the driver waits for a worker that is blocked, the worker's, once."""
    worker = fold.late.worker
    opened = fold.book.open
    if opened is None or worker is None or opened.cause not in BY_WORKERS or fold.late.stack_of(worker.pid):
        return fold.seen.pid, fold.tid
    return worker.pid, worker.pid


def _add_limits(rank: Rank, fold: RankFold, limits: RunLimits) -> None:
    counters, shm = rank.counters, limits.shm()
    if (gpus := limits.gpus.get(fold.seen.pid)) is not None:
        rank.gpus = gpus.report()
        rank.bound = bound_by(rank.gpus, rank.bound)
    counters.fd_errors, counters.shm_errors = limits.fd_errors(fold), limits.shm_errors(fold)
    counters.shm_size_bytes = shm.limit if shm else None
    if fold.end_ns is not None:
        return
    counters.memory_exhaustion_seconds = limits.eta("memory", fold)
    counters.fd_exhaustion_seconds = limits.eta("fds", fold)
    counters.shm_exhaustion_seconds = limits.eta("shm", fold)
    saves = fold.saves.checkpoints() if limits.spaces else []
    space = limits.spaces.get(saves[-1].path.rpartition("/")[0]) if saves else None
    if space is not None:
        counters.checkpoint_available_bytes = space.available_bytes
        counters.checkpoint_files_free = space.files_free


def _place(taken: dict[int, int], pid: int) -> int:
    return taken.setdefault(pid, len(taken))
