"""One driver's story: rows in, steps, stalls, phases and bottlenecks out. Knows no clock and no file."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainprobe.derive.baseline import LEAST, Baseline, Ordinary
from trainprobe.derive.batch_bytes import BatchBytes
from trainprobe.derive.black_box import BlackBox, Second
from trainprobe.derive.churn import NONE, Churn, churn
from trainprobe.derive.counting import Counting
from trainprobe.derive.course import Course, Point
from trainprobe.derive.devices import Devices
from trainprobe.derive.evenness import Evenness
from trainprobe.derive.files import FileClass
from trainprobe.derive.gpu_pace import GpuPace
from trainprobe.derive.late import STACKS, Late
from trainprobe.derive.ledger import Item, Setting, by_state, flatten, setting_of
from trainprobe.derive.python_lines import PythonLines
from trainprobe.derive.quota import Quota
from trainprobe.derive.rhythm import Rhythm
from trainprobe.derive.safety import Safety
from trainprobe.derive.saves import LogUse, Saves
from trainprobe.derive.series import Series
from trainprobe.derive.slow_files import SlowFiles
from trainprobe.derive.steps import StepClock
from trainprobe.derive.stretch import Files, Stretch
from trainprobe.derive.swapping import Swapping
from trainprobe.derive.trend import Trend
from trainprobe.derive.waits import Waits
from trainprobe.derive.workers import Death, Workers
from trainprobe.detect.base import Claim, Window, WrittenLog
from trainprobe.detect.limits.told import RankNotices
from trainprobe.detect.policy import Policy
from trainprobe.detect.registry import Judgement, judge
from trainprobe.model.armed import Armed
from trainprobe.model.cause import Cause, Phase, State
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Level, Region, RowKind, RunState, cell
from trainprobe.model.event import (
    FileEvent,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    StackSeen,
    StepFile,
    ThreadSample,
)
from trainprobe.model.moment import NS
from trainprobe.model.report import STEP_BUCKETS
from trainprobe.model.sample import HostSample, Inspection, ProcessSample
from trainprobe.pipeline import watch
from trainprobe.pipeline.busy import Busy
from trainprobe.pipeline.passed import Passed
from trainprobe.pipeline.stalls import Entry, StallBook

BY_WORKERS = frozenset({Cause.WORKER_HANG, Cause.DEADLOCK, Cause.DATA_CPU, Cause.DATA_STORAGE, Cause.STORAGE_HANG})
"""Causes whose stack is a worker's."""
MAY_BE_THE_END = frozenset({Cause.CPU_BOUND, Cause.CPU_CONTENTION, Cause.UNKNOWN})
"""What an interpreter that ends looks like for as long as it does."""
FROZEN = 4
"""Stalls that keep their black box: the latest."""
MAKEUP_EVERY = 80
"""Ordinary steps between two looks at what they are made of."""
STOPS, CONTINUE = frozenset({19, 20}), 18  # SIGSTOP, SIGTSTP; SIGCONT
EARLY = 32
"""Steps looked at while they are too uneven for a baseline."""
ROWS = 4096
"""Rows kept while no boundary comes (a driver whose optimiser never steps)."""
_BACKWARD = cell(Region.BACKWARD, Leaf.CPU)
WAITED = frozenset({Cause.DATA_CPU, Cause.DATA_STORAGE})
"""Stalls in which workers made batches, only too slowly."""


@dataclass(slots=True)
class Span:
    """A stretch of a phase; ``end_ns`` None while it lasts."""

    phase: Phase
    start_ns: int
    end_ns: int | None = None


@dataclass(slots=True)
class RankFold:
    """Everything known of one rank. ``feed_*`` take what a frame holds, in time order."""

    seen: RankSeen
    policy: Policy
    attached: bool = False
    ranks: bool = False  # other ranks belong to the run
    resumed: bool = False  # an earlier process of ours watched it
    tid: int = 0  # the driver; the main thread until another thread steps
    clock: StepClock = field(default_factory=StepClock)
    baseline: Baseline = field(default_factory=Baseline)
    book: StallBook = field(default_factory=StallBook)
    saves: Saves = field(default_factory=Saves)
    workers: Workers = field(init=False)
    ledger: dict[State, float] = field(default_factory=dict)  # ns, up to `flat` after settle()
    phases: dict[Phase, float] = field(default_factory=dict)  # ns, finished
    spans: list[Span] = field(default_factory=list)
    start_ns: int = 0
    boundary: MarkRow | None = None  # the last step's begin
    first_boundary_ns: int = 0
    latest: MarkRow | None = None
    sample: ThreadSample | None = None
    sample_ns: int = 0
    worker_samples: dict[int, ThreadSample] = field(default_factory=dict)
    processes: dict[int, ProcessSample] = field(default_factory=dict)
    exit_event: ProcessEvent | None = None
    end_ns: int | None = None
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=1024))
    histogram: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS) + 1))
    duration_sum: float = 0.0
    ordinary: dict[Item, float] = field(default_factory=dict)  # sums over all ordinary steps, after settle()
    ordinary_pool: list[float] = field(default_factory=lambda: [0.0] * LEAVES)
    ordinary_ns: float = 0.0
    late_ns: float = 0.0  # the ordinary part of steps that were late, or held a phase: as long as an ordinary step
    ordinary_steps: int = 0
    ordinary_churn: Churn = NONE
    ordinary_fetches: int = 0
    waited_pool: list[float] = field(default_factory=lambda: [0.0] * LEAVES)  # in steps that stalled for data
    waited_fetches: int = 0
    busy: Busy = field(default_factory=Busy)
    ordinary_lengths: deque[float] = field(default_factory=lambda: deque(maxlen=1024))  # seconds
    waits: Waits = field(default_factory=Waits)  # of ordinary steps
    counting: Counting = field(default_factory=Counting)
    worker_ns: float = 0.0  # live workers x time, over ordinary steps
    deaths: list[Death] = field(default_factory=list)
    passed: Passed = field(default_factory=Passed)
    stack: StackSeen | None = None
    python_threads: frozenset[int] = frozenset()  # beside the driver, as the process calls them
    pss_peak: int | None = None
    shm_peak: int | None = None
    worker_pss: int | None = None  # of one worker without shared memory, the largest mean
    worker_private: int | None = None  # of one worker what it shares with nobody, the largest mean
    taken_peak: int | None = None
    taken_workers: int = 0  # that were there then
    read_after_ns: int | None = None
    others_bytes: int | None = None
    gpu_ns: tuple[float, int] = (0.0, 0)  # of all its GPUs: busy, and of how long that is known
    gpu_told_ns: tuple[float, int] = (0.0, 0)
    cpu_from: tuple[int, int] | None = None  # (CPU ns of the driver's process, steps) when the baseline stood
    cpu_last: tuple[int, int] | None = None
    fds_peak: int | None = None
    course: Course = field(default_factory=Course)
    longest_logs: list[LogUse] = field(default_factory=list)
    limit_bytes: int | None = None
    limit_scope: str | None = None
    stepped: bool = False
    flat: Sequence[int] = field(default_factory=lambda: [0] * CELLS)  # cells at the end of the last stretch
    flat_pool: Sequence[int] = field(default_factory=lambda: [0] * LEAVES)
    live_phase: tuple[Phase, float] | None = None  # of the open step: (phase, ns)
    notices: RankNotices = field(default_factory=RankNotices)  # about limits; the run's RunLimits feeds them
    oom_killed: bool = False
    killer: ProcessEvent | None = None  # the last fatal signal sent to the driver
    devices: Devices = field(default_factory=Devices)  # the host's, shared by all ranks
    quota: Quota = field(default_factory=Quota)  # the run's, shared by its ranks
    gpu_pace: GpuPace = field(default_factory=GpuPace)
    batch_bytes: BatchBytes = field(default_factory=BatchBytes)
    swapping: Swapping = field(default_factory=Swapping)
    queueing: float = 0.0  # part of the time between the last two looks that the driver waited for a processor
    rhythm: Rhythm = field(default_factory=Rhythm)
    late: Late = field(default_factory=Late)
    first_due: int = 0  # workers that were started again and have yet to deliver for the first time
    trend: Trend = field(default_factory=Trend)
    makeup: Series = field(default_factory=Series)  # ns of an ordinary step by state, by its number
    counters: Series = field(default_factory=Series)  # what may grow with the step
    safety: Safety = field(default_factory=Safety)
    slow_files: SlowFiles = field(default_factory=SlowFiles)
    stopper: ProcessEvent | None = None  # the last signal that stopped the driver
    lines: PythonLines = field(default_factory=PythonLines)
    evenness: Evenness = field(default_factory=Evenness)
    lines_ns: int = 0  # when a stack of an ordinary step was asked for
    box: BlackBox = field(default_factory=BlackBox)
    frozen: dict[int, tuple[Second, ...]] = field(default_factory=dict)  # the box before a stall, by the stall's id_ns
    _gone: MarkRow | None = None
    _inline: bool = False  # most of the last step's fetches were by a loader without workers
    _rows: list[MarkRow] = field(default_factory=list)
    _early: list[Ordinary] = field(default_factory=list)
    _early_steps: int = 0
    _throttled_step: int = -1  # that stalled by the quota, the last one
    _passed: Stretch | None = None  # not in `ledger` yet
    _ordinary: Stretch | None = None  # ordinary steps in a row, not in `ordinary` yet
    _pool_at: dict[int, list[int]] = field(
        default_factory=dict
    )  # workers' leaf sums at the step's begin, for open stalls

    def __post_init__(self) -> None:
        self.workers = Workers(self.seen.pid)
        self.tid = self.seen.pid
        self.saves.rules = self.policy.files
        self.saves.drivers.add(self.tid)
        self.start_ns = self.seen.at_ns if self.attached else self.seen.started_ns
        if not self.attached:
            self.saves.steps_ns = None

    # ---- events ----
    def feed_row(self, row: MarkRow) -> None:
        """A mark of one of this rank's threads."""
        if row.tid != self.tid and not self._takes_over(row):
            return
        if self.latest is None and self.sample is None and row.tid == self.seen.pid and not self.resumed:
            self.start_ns = row.opened_ns or self.start_ns
        self.latest = row
        self.batch_bytes.feed(row)
        self._rows.append(row)
        if len(self._rows) > ROWS:
            self._rows[:2] = [_merged(self._rows[0], self._rows[1])]
        if row.kind == RowKind.EXIT:
            self._gone = row  # the process's own end, which comes next, tells how
            return
        if not self.stepped and row.kind in (RowKind.OPTIMIZER, RowKind.BACKWARD, RowKind.GPU):
            self._first_step(row)
        for boundary in self.clock.feed(row):
            self._step(boundary)

    def _first_step(self, row: MarkRow) -> None:
        """There are marks: what was told by the rhythm until now was the start-up."""
        self.stepped = True
        if self.saves.steps_ns is None:
            self.saves.steps_ns = row.at_ns
        if self.rhythm.cells:
            self.rhythm, self.book = Rhythm(), StallBook()
            self.phases.clear()
            self.spans.clear()

    @property
    def by_rhythm(self) -> bool:
        """Whether nothing marks its steps, so that the rhythm of its waits has to do."""
        return bool(self.seen.marks) and not self.stepped and self.end_ns is None

    @property
    def judged(self) -> bool:
        """Whether it is known what is ordinary: its start-up is over."""
        return self.baseline.stands or self.rhythm.stands

    def _takes_over(self, row: MarkRow) -> bool:
        if self.stepped or row.kind == RowKind.EXIT:
            return False
        before = self.latest or self.sample
        if before is not None:  # the main thread's time up to here stays in the ledger
            self._pass(before.cells, self.flat_pool, [])
        self.flat = row.cells
        if before is None:
            self.start_ns = row.at_ns - sum(row.cells)
        else:
            known = sum(before.cells)
            self.ledger[State.LOCK] = self.ledger.get(State.LOCK, 0.0) + max(0, row.at_ns - self.start_ns - known)
        self.tid = row.tid
        self.saves.drivers.add(row.tid)
        self._rows.clear()
        self.sample = None
        return True

    def feed_file(self, event: FileEvent) -> None:
        """A file written by a process of this rank."""
        self.saves.feed(event)
        self.safety.feed(event, self.saves)

    def feed_process(self, event: ProcessEvent) -> None:
        """Birth, death or signal of a process of this rank."""
        if event.pid == self.seen.pid and event.kind == ProcessEventKind.EXIT:
            self.workers.feed(event)
            self.exit_event = event
            self.end(event.at_ns)
            return
        if event.pid == self.seen.pid:
            self.oom_killed = self.oom_killed or event.kind == ProcessEventKind.OOM
            if event.kind == ProcessEventKind.SIGNAL and event.signal in STOPS:
                self.stopper = event
            elif event.kind == ProcessEventKind.SIGNAL and event.signal != CONTINUE:
                self.killer = event
        death = self.workers.feed(event)
        if death is not None:
            self.worker_samples.pop(death.pid, None)
            self.slow_files.forget(death.pid)
            if death.abnormal and not self.workers.driver_ended:
                self.deaths.append(death)

    def feed_stack(self, event: StackSeen) -> None:
        """A Python stack of the driver or of a worker, asked for by an open stall."""
        if event.pid == self.seen.pid and event.others:
            self.python_threads = frozenset(one.own_tid for one in event.others)
        if event.at_ns == self.lines_ns and event.pid == self.seen.pid:
            if event.frames:
                self.lines.add(event.frames)
            return
        if not event.frames or self.boundary is None or event.at_ns < self.boundary.at_ns:
            return
        if event.pid != self.seen.pid:
            self.late.worker_stacks[event.pid] = event.frames
            return
        self.stack = event
        self.late.stacks.append(event)
        del self.late.stacks[:-STACKS]

    def feed_inspection(self, seen: Inspection, at_ns: int) -> None:
        """A look at the driver, asked for because its step is late."""
        if seen.tid == self.tid:
            self.late.inspection = seen
            self.late.see_threads(seen.threads, at_ns)

    def _see_queueing(self, sample: ThreadSample, at_ns: int) -> None:
        before, spent = self.sample, at_ns - self.sample_ns
        if before is not None and spent >= NS // 2:
            places = [cell(region, Leaf.RUNQUEUE) for region in Region]
            self.queueing = sum(sample.cells[place] - before.cells[place] for place in places) / spent

    def feed_host(self, host: HostSample, at_ns: int) -> None:
        """What the whole host has and lacks."""
        self.box.host(at_ns, host)
        driver = self.latest.major_faults if self.latest else None
        workers = [p.major_faults for p in self.processes.values() if p.role == "worker" and p.pid in self.workers.live]
        known = [faults for faults in workers if faults is not None]
        self.swapping.feed(host.swap_in_pages, driver, sum(known) if known else None, at_ns)

    def feed_thread(self, sample: ThreadSample, at_ns: int) -> None:
        """An open ledger as it stands now."""
        if sample.tid == self.tid:
            if self.sample is None and self.latest is None and not self.resumed:
                self.start_ns = at_ns - sum(sample.cells)
            if self.sample is None and self.resumed:
                self._fill_gap(sample)
            if self.end_ns is None:
                self._see_queueing(sample, at_ns)
                self.sample, self.sample_ns = sample, at_ns
                self.slow_files.see(sample, at_ns)
        elif sample.level == Level.COARSE and sample.pid != self.seen.pid and sample.pid in self.workers.live:
            self.worker_samples[sample.pid] = sample
            self.slow_files.see(sample, at_ns)

    def _fill_gap(self, sample: ThreadSample) -> None:
        """What nobody watched of the step that goes on was spent in the wait that its driver is found in."""
        begun, place = self.boundary, cell(sample.region, sample.leaf)
        if begun is None or any(begun.cells) or sample.run is not RunState.BLOCKED:
            return
        gap = sample.since_ns - begun.at_ns
        if gap > 0 and sum(sample.cells) == sample.cells[place]:  # it has not left that wait since we look
            self.flat = (*begun.cells[:place], -gap, *begun.cells[place + 1 :])
            self.boundary = replace(begun, cells=self.flat)

    def feed_sample(self, sample: ProcessSample) -> None:
        """Memory and descriptors of one of its processes; ``read`` follows the last one of a frame."""
        self.processes[sample.pid] = sample
        if sample.open_fds is not None:
            self.fds_peak = max(self.fds_peak or 0, sample.open_fds)
        if sample.pid == self.seen.pid:
            self._feed_cpu(sample)

    def read(self, at_ns: int) -> None:
        """Its processes have been read: a point of the rank's course."""
        if self.end_ns is not None:
            return
        pss, shm = self.summed("pss_bytes"), self.summed("shm_bytes")
        if shm is not None:
            self.shm_peak = max(self.shm_peak or 0, self._held(shm))
        if pss is not None:
            self.pss_peak = max(self.pss_peak or 0, pss)
        if pss is not None and (old_ns := self._read_after_ns()) is not None and old_ns >= 0:
            self.read_after_ns = max(self.read_after_ns or 0, old_ns)
            taken = pss - (shm or 0) + self._held(shm or 0) + self._swapped()
            taken += self.summed("grown_bytes") or 0
            if self.workers.count > self.taken_workers:
                self.taken_workers, self.taken_peak = self.workers.count, None
            self.taken_peak = max(self.taken_peak or 0, taken)
        if (driver := self.processes.get(self.seen.pid)) is not None:
            self.box.sample(at_ns, self.workers.count, pss)
            self._feed_counters(driver, pss)
        self._feed_worker_memory()
        self.longest_logs = self.saves.longest_logs()
        self.course.add(Point(at_ns, pss, self.summed("swap_bytes"), self.workers.count, self._gpu_utilization()))

    def _gpu_utilization(self) -> float | None:
        """Of its GPUs, since it was asked last."""
        (busy, seen), (busy_before, seen_before) = self.gpu_ns, self.gpu_told_ns
        self.gpu_told_ns = self.gpu_ns
        return (busy - busy_before) / (seen - seen_before) if seen > seen_before else None

    def _feed_cpu(self, sample: ProcessSample) -> None:
        if sample.cpu_ns is None or not self.baseline.stands:
            return
        self.cpu_last = (sample.cpu_ns, self.clock.count)
        self.cpu_from = self.cpu_from or self.cpu_last

    def _feed_counters(self, sample: ProcessSample, pss: int | None) -> None:
        figures = {
            "pss_bytes": pss,
            "open_fds": sample.open_fds,
            "threads": sample.threads,
            "workers": self.workers.count,
            "log_bytes": sum(log.bytes for log in self.saves.logs.values()),
        }
        self.counters.add(self.trend.steps, {name: float(v) for name, v in figures.items() if v is not None})

    def _read_after_ns(self) -> int | None:
        """How long after the newest worker's start the oldest of the readings was made: before it, they do not add up.

        None: a process was not read. Older recordings do not tell when one was.
        """
        workers = {pid: life.start_ns for pid, life in self.workers.live.items() if life.role == "worker"}
        forked = max(workers.values(), default=self.seen.started_ns)
        read = [p for pid in (self.seen.pid, *workers) if (p := self.processes.get(pid)) and p.pss_bytes is not None]
        if len(read) <= len(workers):
            return None
        return min(forked if p.pss_read_ns is None else p.pss_read_ns for p in read) - forked

    def _swapped(self) -> int:
        """Swapped memory of all its processes, what forked ones share once."""
        return sum(_swapped(p) for p in self.processes.values() if self.workers.owns(p.pid))

    def _held(self, mapped: int) -> int:
        """Shared memory of all its processes: what they map, or have open, if that is more."""
        return max(mapped, self.summed("shm_held_bytes") or 0)

    def _feed_worker_memory(self) -> None:
        live = [p for p in self.processes.values() if p.role == "worker" and p.pid in self.workers.live]
        own = [p.pss_bytes - (p.shm_bytes or 0) for p in live if p.pss_bytes is not None]
        if own:
            self.worker_pss = max(self.worker_pss or 0, sum(own) // len(own))
        family = 1 + self.workers.count
        private = [
            max(0, p.private_bytes - (p.shm_bytes or 0)) + p.grown_bytes + _swapped_alone(p, family)
            for p in live
            if p.private_bytes is not None
        ]
        if private:
            self.worker_private = max(self.worker_private or 0, sum(private) // len(private))

    def feed_used(self, used: int) -> None:
        """Of its limit's memory, by everybody, when its processes were read."""
        pss = self.summed("pss_bytes")
        whole = self.taken_peak is not None and self.workers.count == self.workers.peak
        if pss is not None and whole and self.end_ns is None:
            self.others_bytes = max(0, used - pss)

    def known(self, pid: int) -> bool:
        """Whether ``pid`` is the driver or ever was a child of it, as far back as is remembered."""
        return self.workers.owns(pid) or pid in self.processes or any(d.pid == pid for d in self.workers.deaths)

    def summed(self, name: str) -> int | None:
        """A field of ProcessSample over all live processes of the rank; None where none is known."""
        live = [p for p in self.processes.values() if self.workers.owns(p.pid)]
        known = [value for p in live if (value := getattr(p, name)) is not None]
        return sum(known) if known else None

    # ---- steps ----
    def _step(self, row: MarkRow) -> None:
        before, self.boundary = self.boundary, row
        fetched = row.fetches - (before.fetches if before else 0)
        if fetched:
            self._inline = 2 * (row.inline_fetches - (before.inline_fetches if before else 0)) > fetched
        self.live_phase = None
        files = self._files_until(row)
        index = self.clock.count
        stretch = self._pass(row.cells, row.pool, files)
        if before is None:
            self.first_boundary_ns = row.at_ns
            self._pool_at.clear()
            return
        ns = row.at_ns - before.at_ns
        later = row.lengths[1:]  # what is before them is the first one's, and that of a row that was lost
        step = Ordinary(
            ns,
            stretch,
            row.fetches - before.fetches,
            row.backwards - before.backwards,
            (ns - sum(later), *later),
        )
        self._count(step.lengths)
        self.box.steps(before.at_ns, step.lengths)
        self.passed.add(before.at_ns, step.lengths, stretch)
        if not self.baseline.stands:
            self._learn(step, row)
        else:
            ordinary = self.ordinary_steps
            if step.steps > 1 and max(step.lengths) <= self.policy.limit_ns(self.baseline.ns):
                self._pass_ordinary(step, step.steps, churn(before, row))
            else:
                self._judge(step, before, row, index)
            if self.counting.active:
                self.counting.step(before.at_ns, row.at_ns, self.ordinary_steps - ordinary)
            self.book.resumed_id = ""
        self._see_starts(before.at_ns, row.at_ns, step.steps)
        self.stack = None
        if self.late.looks or self.late.stacks or self.late.beside:
            self.late = Late()
        self._pool_at.clear()

    def _see_starts(self, start_ns: int, end_ns: int, steps: int) -> None:
        """Workers deliver in turn: each one's first batch is due a step after another's, where a step takes one."""
        started = self.workers.starts_in(start_ns, end_ns)
        due = started if started and started != self.workers.started else self.first_due
        self.first_due = max(0, due - steps * max(1, round(self.baseline.fetches()))) if due else 0

    def _learn(self, step: Ordinary, row: MarkRow) -> None:
        self._early.append(step)
        self._early_steps += 1
        if len(self._early) < LEAST:
            return
        lengths = sorted(s.ns for s in self._early)
        middle = lengths[len(lengths) // 2]
        fit = [s for s in self._early if s.ns <= self.policy.limit_ns(middle)]
        if len(fit) < LEAST:
            del self._early[:-EARLY]
            return
        for ordinary in fit:
            self.baseline.add(ordinary)
        self._early.clear()
        self.evenness.begin(row.at_ns)
        self.take_phase(Phase.ATTACHING if self.attached else Phase.STARTUP, self.start_ns, row.at_ns)

    def _judge(self, step: Ordinary, before: MarkRow, row: MarkRow, index: int) -> None:
        usual = self.baseline.backwards()
        units = max(1, round(step.backwards / usual)) if usual else 1  # a skipped optimiser step merges two groups
        base = self.baseline.ns * units
        late = step.ns > self.policy.limit_ns(base)
        if not late and (step.ns < base + self.policy.edge_ns or self._throttled_step != index - 2):
            self._pass_ordinary(step, units, churn(before, row))
            return
        made_of = step.made_of
        pool = self._pool_excess(made_of.pool(), units)
        window = self._window(before.at_ns, row.at_ns, base, made_of.items(), pool, made_of.files)
        if self.swapping.on_host(row.at_ns):
            window = replace(window, swap_faults=max(0, row.major_faults - before.major_faults))
        extra = step.fetches - units * self.baseline.fetches()
        churned = churn(before, row)
        judgement = judge(replace(window, extra_fetches=extra, churn=churned))
        told = judgement.stall_ns
        if not late and not self._ends_throttled(judgement):
            self._pass_ordinary(step, units, churned)
            return
        self.evenness.late(row.at_ns)
        end = row.at_ns
        for cause, ns in judgement.phases.items():
            self.take_phase(Phase(cause.value), int(end - ns), end)
        if not late or told >= self._least_ns(judgement.main):
            stacks, reach = self._stacks(judgement), self._reach(judgement)
            entry = self.book.close(judgement, int(end - told), end, index - 1, stacks, reach)
            if late and entry is not None and entry.cause == Cause.CPU_THROTTLED:
                self._throttled_step = index - 1
            if entry is not None and told >= self.policy.freeze_ns and entry.steps == 1:
                self._freeze(entry)
            if judgement.main is not None and _is_waited(judgement.main):
                self.waited_pool = [total + ns for total, ns in zip(self.waited_pool, made_of.pool())]
                self.waited_fetches += step.fetches
        else:
            self.book.open = None
            if not judgement.phases:
                self.ordinary_churn += churned
                self._take_ordinary(step, units)
                return
        self.late_ns += base

    def _ends_throttled(self, judgement: Judgement) -> bool:
        """Whether a step that lost too little for a stall lost it to the quota that the step before it stalled by: it
        is raised, or enough again, in the midst of a step."""
        main = judgement.main
        return main is not None and main.cause == Cause.CPU_THROTTLED and main.ns >= self.policy.edge_ns

    def _least_ns(self, main: Claim | None) -> float:
        """What has to be lost for a stall. A late step that worked for most of its excess may have lost less than the
        minimum beside; nobody is helped by the remainder that has no cause."""
        unknown = main is not None and main.cause == Cause.UNKNOWN
        return self.policy.stall_minimum_ns * (1.0 if unknown else 0.5)

    def _pass_ordinary(self, step: Ordinary, units: int, churned: Churn) -> None:
        self.ordinary_churn += churned
        self._take_ordinary(step, units)
        self.book.open = None

    def _freeze(self, entry: Entry) -> None:
        """Keep what came before a stall."""
        self.frozen[entry.id_ns] = self.box.before(entry.start_ns)
        while len(self.frozen) > FROZEN:
            del self.frozen[next(iter(self.frozen))]

    def _stacks(self, judgement: Judgement) -> list[tuple[str, ...]]:
        """The stacks that explain a stall: the worker's where one was waited for, else the driver's."""
        worker = self.late.worker
        if worker is not None and judgement.main is not None and judgement.main.cause in BY_WORKERS:
            of_worker = self.late.stack_of(worker.pid)
            if of_worker:
                return [of_worker]
        taken = self.late.stacks
        if judgement.main is not None and judgement.main.cause == Cause.CHECKPOINT:
            taken = [one for one in taken if self._saves_at(one.at_ns)]  # when it was late, the save may have been over
        return [one.frames for one in taken]

    def _saves_at(self, at_ns: int) -> bool:
        return any(save.tid == self.tid for save in self.saves.flying(at_ns, at_ns + 1))

    def _reach(self, judgement: Judgement) -> int:
        main = judgement.main
        if main is not None and main.cause in (Cause.DATA_CPU, Cause.DATA_STORAGE):
            return max(self.policy.merge_steps, min(2 * self.workers.count, 16))
        return self.policy.merge_steps

    def _take_ordinary(self, step: Ordinary, units: int) -> None:
        if units == step.steps:
            self.baseline.add(step)
            if (self.devices.stolen or 0.0) < self.policy.stolen_share:  # else it tells of the host
                backward = step.made_of.cell(_BACKWARD) / max(1, step.ns)
                for ns in step.lengths:
                    self.trend.feed(ns, int(backward * ns))
                    self._see_makeup()
            self.ordinary_lengths.extend(ns / 1e9 for ns in step.lengths)
        if self._ordinary is None or not self._ordinary.extend(step.made_of):
            self._settle_ordinary()
            self._ordinary = step.made_of.copy()
        self.ordinary_ns += step.ns
        self.ordinary_steps += units
        self.ordinary_fetches += step.fetches
        self.worker_ns += step.ns * self.workers.count
        self.waits.step(units)
        if self.waits.full:
            self._settle_ordinary()

    def _see_makeup(self) -> None:
        if self.trend.steps % MAKEUP_EVERY == 0:
            self.makeup.add(self.trend.steps, {s.value: ns for s, ns in by_state(self.baseline.items()).items()})

    def settle(self) -> None:
        """Bring ``ledger``, ``ordinary`` and ``ordinary_pool`` up to the last boundary: before they are read."""
        self._settle_ledger()
        self._settle_ordinary()

    def _settle_ledger(self) -> None:
        passed, self._passed = self._passed, None
        for state, ns in by_state(passed.items() if passed is not None else {}).items():
            self.ledger[state] = self.ledger.get(state, 0.0) + ns

    def _settle_ordinary(self) -> None:
        run, self._ordinary = self._ordinary, None
        if run is None:
            return
        items = run.items()
        for item, ns in items.items():
            self.ordinary[item] = self.ordinary.get(item, 0.0) + ns
        self.waits.feed(items, run.files)
        self.ordinary_pool = [total + ns for total, ns in zip(self.ordinary_pool, run.pool())]

    def _count(self, lengths: Sequence[int]) -> None:
        for ns in lengths:
            told = ns / 1e9
            self.durations.append(told)
            self.duration_sum += told
            self.histogram[bisect_left(STEP_BUCKETS, told)] += 1

    def take_phase(self, phase: Phase, start_ns: int, end_ns: int) -> None:
        """A stretch of a phase is over."""
        if end_ns <= start_ns:
            return
        self.phases[phase] = self.phases.get(phase, 0.0) + (end_ns - start_ns)
        self.spans.append(Span(phase, start_ns, end_ns))
        del self.spans[:-400]

    # ---- windows ----
    def _window(
        self,
        start_ns: int,
        end_ns: int,
        base_ns: float,
        items: Mapping[Item, int],
        pool: list[float],
        files: Files,
    ) -> Window:
        ordinary = self.baseline.items()
        scale = base_ns / self.baseline.ns if self.baseline.ns else 1.0
        more = {item: ns - scale * ordinary.get(item, 0.0) for item, ns in items.items()}
        more = {item: ns for item, ns in more.items() if ns > 0}
        total, excess = sum(more.values()), end_ns - start_ns - base_ns
        factor = excess / total if total > 0 else 0.0
        started = self.workers.starts_in(start_ns, end_ns)
        return Window(
            start_ns,
            end_ns,
            base_ns,
            {item: ns * factor for item, ns in more.items()},
            items,
            pool,
            self.setting(),
            self.policy,
            usual=self.baseline.pool(),
            workers=self.workers.count,
            cpus=self.devices.cpus,
            workers_started=started,
            first_workers=self.workers.started == started,
            first_due=self.first_due,
            compile_ns=self.workers.compile_ns(start_ns, end_ns),
            saves=self.saves.flying(start_ns, end_ns),
            removals=self.saves.removed(start_ns, end_ns),
            logs=[WrittenLog(path, use.io_ns, use.bytes, use.calls) for use, of, path in files if of == FileClass.LOG],
            deaths=[d for d in self.deaths if start_ns - self.policy.death_stalls_ns <= d.at_ns <= end_ns],
            errand=self.workers.errand_in(start_ns, end_ns),
            threads=list(self.worker_samples.values()),
            stack=self.stack.frames if self.stack else (),
            late=self.late,
            python_threads=self.python_threads,
            fetches_per_backward=self.baseline.fetches() / max(1.0, self.baseline.backwards()),
            stopper=self.stopper if self.stopper and start_ns <= self.stopper.at_ns <= end_ns else None,
            devices=self.devices,
            quota=self.quota.over(start_ns, end_ns),
            slowed=self.gpu_pace.over(start_ns, end_ns),
            rivals=self.devices.rivals_at(start_ns),
            own=frozenset((self.seen.pid, *self.workers.live)),
            stolen=self.devices.stolen,
            driver_pid=self.seen.pid,
            driver_tid=self.tid,
        )

    def _pool_excess(self, pool: Sequence[float], units: int = 1) -> list[float]:
        return [max(0.0, ns - units * usual) for ns, usual in zip(pool, self.baseline.pool())]

    def setting(self) -> Setting:
        """What decides how its waits are named."""
        return setting_of(self.workers.started > 0, self._inline, self.ranks)

    def _files_until(self, row: MarkRow) -> Files:
        rows = self._rows
        if len(rows) == 1:  # most often
            rows.clear()
            return self._classes(row.files) if row.files else ()
        merged: dict[tuple[int, int], StepFile] = {}
        count = len(rows) if rows[-1] is row else next((i + 1 for i, r in enumerate(rows) if r is row), len(rows))
        for passed in rows[:count]:
            for use in passed.files:
                merged[use.dev, use.ino] = _sum(merged.get((use.dev, use.ino)), use)
        del rows[:count]
        return self._classes(merged.values())

    def _classes(self, uses: Collection[StepFile]) -> list[tuple[StepFile, FileClass, str]]:
        """What the files are for. Those that no longer had a slot of their own are taken to be like the largest."""
        named = [(use, *self.saves.class_of(use.dev, use.ino, use.bytes)) for use in uses if use.ino]
        most = max(named, key=lambda one: one[0].io_ns, default=None)
        like = most[1] if most is not None else FileClass.OTHER
        return [*named, *((use, like, "") for use in uses if not use.ino)]

    def _pass(self, cells: Sequence[int], pool: Sequence[int], files: Files) -> Stretch:
        """The time since the last stretch is over; it will be in the ledger."""
        stretch = Stretch(self.flat, cells, self.flat_pool, pool, files, self.setting())
        self.flat, self.flat_pool = cells, pool
        if self._passed is None or not self._passed.extend(stretch):
            self._settle_ledger()
            self._passed = stretch.copy()
        return stretch

    # ---- the open step ----
    def limit_ns(self) -> int | None:
        """When the present step becomes a stall; None while nothing is armed."""
        if self.boundary is None or self.end_ns is not None or not self.baseline.stands:
            return None
        return int(self.boundary.at_ns + self.policy.limit_ns(self.baseline.ns))

    def calm_ns(self, now_ns: int) -> int:
        """For how long it has stepped evenly; 0 where a step has no alarm of its own, or it saves something."""
        limit = self.limit_ns()
        if limit is None or now_ns >= limit or not self.clock.single:
            return 0
        if any(save.kind_of(self.policy.files) == FileClass.CHECKPOINT for save in self.saves.open.values()):
            return 0
        return self.evenness.lasts_ns(now_ns)

    def armed(self) -> Armed | None:
        """The alarm of the present step; None while there is no limit."""
        limit, row = self.limit_ns(), self.boundary
        if limit is None or row is None:
            return None
        return Armed(self.tid, row.steps, row.backwards, row.at_ns, limit)

    def look(self, now_ns: int) -> None:
        """Open a stall, or bring the open one up to date, from the thread samples of this frame."""
        limit = self.limit_ns()
        if limit is None or now_ns < limit or self.boundary is None or self.sample is None or self.sample_ns < limit:
            return
        watch.look(self.late, self.sample, self._waited_for(), self.devices, self.policy,
                   since_ns=self.boundary.at_ns, now_ns=self.sample_ns)  # fmt: skip
        delta = [max(0, a - b) for a, b in zip(self.sample.cells, self.flat)]
        live = self.live_files()
        items = flatten(delta, [(use, of) for use, of, _ in live], self.setting())
        window = self._window(self.boundary.at_ns, self.sample_ns, self.baseline.ns, items, self._live_pool(), live)
        extra = max(0, self.sample.fetches - self.boundary.fetches) - self.baseline.fetches()
        judgement = judge(replace(window, extra_fetches=extra))
        main = judgement.main
        self.live_phase = next(((Phase(c.value), ns) for c, ns in judgement.phases.items()), None)
        if main is None or main.cause is None or judgement.stall_ns < self._least_ns(main):
            self.book.open = None
            return
        cause = max(judgement.shares, key=lambda c: judgement.shares[c])
        if cause in MAY_BE_THE_END and now_ns < limit + self._until_told_ns(self.boundary.at_ns):
            return
        start = int(self.boundary.at_ns + self.baseline.ns)
        stacks = self._stacks(judgement)
        entry = Entry(
            start,
            None,
            judgement.stall_ns,
            cause,
            dict(judgement.shares),
            self.clock.count,
            self.clock.count,
            1,
            main.summary,
            list(main.chain),
            list(main.evidence),
            stacks[-1] if stacks else (),
            stacks,
            main.ns,
        )
        self.book.begin(entry, self._reach(judgement))

    def _until_told_ns(self, boundary_ns: int) -> int:
        """A loader whose workers all went in this step went with the training, or is between two epochs."""
        gone = self.workers.count == 0 and any(at >= boundary_ns for at in self.workers.ends)
        return self.policy.open_end_ns if gone else self.policy.open_cpu_ns

    def live_files(self, since: int | None = None) -> list[tuple[StepFile, FileClass, str]]:
        """Files of the open step (or since a moment): what finished calls took, and the saves that the driver has open
        with the call in flight. Their proportions count, not their sums."""
        out = self._classes(self.sample.files) if self.sample is not None else []
        if since is None:
            since = self.boundary.at_ns if self.boundary else 0
        for save in [*self.saves.open.values(), *self.saves.closed[-4:]]:
            if save.tid != self.tid or (save.end_ns is not None and save.end_ns < since):
                continue
            use = StepFile(
                save.key[1], save.key[2], save.write_ns + save.sync_ns + save.meta_ns + 1, save.gap_ns + 1, save.bytes
            )
            out.append((use, save.kind_of(self.policy.files), save.path))
        return out

    def _waited_for(self) -> list[ThreadSample]:
        """Its children, but where it has workers not the other programs that it started: those wait as they like."""
        roles = {pid: life.role for pid, life in self.workers.live.items()}
        if "worker" not in roles.values():
            return list(self.worker_samples.values())
        return [one for pid, one in self.worker_samples.items() if roles.get(pid, "worker") == "worker"]

    def _live_pool(self) -> list[float]:
        """Workers' time by leaf in the open step, as far as samples tell."""
        total = [0.0] * LEAVES
        for pid, sample in self.worker_samples.items():
            sums = [sum(sample.cells[region * LEAVES + leaf] for region in Region) for leaf in range(LEAVES)]
            base = self._pool_at.setdefault(pid, sums)
            for leaf in range(LEAVES):
                total[leaf] += sums[leaf] - base[leaf]
            busy = sample.leaf not in (Leaf.PIPE_READ, Leaf.POLL, Leaf.LOCK)
            if (
                sums is base and busy and self.boundary is not None
            ):  # first look: what it does now counts from when it began
                total[sample.leaf] += max(0, self.sample_ns - max(sample.since_ns, self.boundary.at_ns))
        return total

    # ---- the end ----
    def end(self, at_ns: int) -> None:
        """The driver's process is gone (or we leave it)."""
        if self.end_ns is not None:
            return
        if self._gone is not None:
            self._close(self._gone.at_ns, self._gone.cells)
        else:
            self._close(at_ns, self.sample.cells if self.sample else None)

    def _close(self, at_ns: int, cells: Sequence[int] | None) -> None:
        for boundary in self.clock.flush():
            self._step(boundary)
        latest = self.latest
        files = self._files_until(latest) if latest is not None and self._rows else []
        if latest is not None and sum(latest.cells) > (sum(cells) if cells else 0):
            cells = latest.cells
        items = self._pass(cells, self.flat_pool, files).items() if cells is not None else {}
        self.end_ns = at_ns
        self.live_phase = None
        open_stall, self.book.open = self.book.open, None
        if not self.judged:
            self.take_phase(Phase.ATTACHING if self.attached else Phase.STARTUP, self.start_ns, at_ns)
            return
        if self.boundary is None:
            return
        killed = self.exit_event is not None and bool(self.exit_event.signal)
        failed = self.exit_event is not None and bool(self.exit_event.code)
        if open_stall is not None and (killed or (failed and open_stall.ns >= self.policy.gave_up_ns)):
            self._stalled_to_the_end(open_stall, at_ns)
            return
        self._tail(items, at_ns)

    def _stalled_to_the_end(self, entry: Entry, at_ns: int) -> None:
        entry.end_ns = at_ns
        whole = max(0.0, at_ns - entry.start_ns)
        factor = whole / entry.ns if entry.ns else 0.0
        entry.shares = {cause: ns * factor for cause, ns in entry.shares.items()}
        entry.ns = whole
        for cause, ns in entry.shares.items():
            self.book.seconds[cause] = self.book.seconds.get(cause, 0.0) + ns
        self.book.counts[entry.cause] = self.book.counts.get(entry.cause, 0) + 1
        self.book.last_start[entry.cause] = entry.start_ns
        self.book.total += 1
        self.book.entries.append(entry)

    def _tail(self, items: dict[Item, int], at_ns: int) -> None:
        """After the last step: a last evaluation where there is evidence for one, the rest is shutdown."""
        assert self.boundary is not None
        latest = self.latest
        extra = (latest.fetches - self.boundary.fetches if latest else 0) - self.baseline.fetches()
        quiet = sum(ns for (_, region, _), ns in items.items() if region == Region.NO_GRAD)
        fetch = sum(ns for (_, region, _), ns in items.items() if region == Region.FETCH)
        start = self.boundary.at_ns
        if extra >= self.policy.evaluation_fetches and quiet + fetch > 0:
            self.take_phase(Phase.EVALUATION, start, int(start + quiet + fetch))
            start = int(start + quiet + fetch)
        self.take_phase(Phase.SHUTDOWN, start, at_ns)


def _is_waited(main: Claim) -> bool:
    """Whether workers made batches meanwhile; in calls that nobody knows a cause of, too."""
    unknown = main.cause == Cause.UNKNOWN and any(state == State.DATA_WAIT for state, _, _ in main.taken)
    return main.cause in WAITED or unknown


def _sum(a: StepFile | None, b: StepFile) -> StepFile:
    if a is None:
        return b
    return StepFile(b.dev, b.ino, a.io_ns + b.io_ns, a.gap_ns + b.gap_ns, a.bytes + b.bytes, a.calls + b.calls)


def _merged(older: MarkRow, newer: MarkRow) -> MarkRow:
    files: dict[tuple[int, int], StepFile] = {}
    for use in (*older.files, *newer.files):
        files[use.dev, use.ino] = _sum(files.get((use.dev, use.ino)), use)
    return replace(newer, files=tuple(files.values()))


def _swapped(process: ProcessSample) -> int:
    """Its part of swapped pages. VmSwap counts in each forked process what all of them share."""
    return (process.swap_bytes if process.swap_share_bytes is None else process.swap_share_bytes) or 0


def _swapped_alone(process: ProcessSample, family: int) -> int:
    """Its own swapped pages: the others are swapped in each of the ``family`` of forked processes, a part for each."""
    part, all_ = process.swap_share_bytes, process.swap_read_bytes
    if part is None or all_ is None or family < 2:
        return _swapped(process)
    return max(0, (family * part - all_) // (family - 1))
