"""The open step: what samples, stacks and inspections say of it before it ends."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from trainprobe.derive.python.frameworks import FrameworkSeen
from trainprobe.derive.python.stacks import is_idle_worker
from trainprobe.derive.steps.late_step import STACKS, LateStepObservations
from trainprobe.derive.workers import WorkerPool
from trainprobe.model.cells import LEAVES, QUEUED, Leaf, Region, ThreadState, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import StackSeen, ThreadSample
from trainprobe.model.moment import NS
from trainprobe.model.sample import Inspection
from trainprobe.pipeline.rank.early_look import EarlyLook

_QUEUED = tuple(cell(region, Leaf.RUNQUEUE) for region in Region)
_USED = len(Region) * LEAVES
QUIET = tuple(cell(Region.NO_GRAD, leaf) for leaf in Leaf)
SAMPLES = 256  # of one step
LATER = 0.6
"""Of a step."""
_IDLE = frozenset({Leaf.PIPE_READ, Leaf.POLL, Leaf.LOCK})
_STORAGE = (Leaf.FILE_READ, Leaf.FAULT, Leaf.SWAP, Leaf.RECLAIM)
_WORK = tuple(cell(region, leaf) for region in Region for leaf in Leaf if leaf not in (*_IDLE, *QUEUED))
SATURATED = 0.8
"""Of its time: a worker of a loader that keeps up waits for work at times."""
_WAKE_UPS = 0.002
"""Of its time: an idle worker of a DataLoader looks each few seconds whether the training lives."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Several rounds of a loader's workers, each of which makes a batch in each."""

    ns: float
    steps: int


@dataclass(slots=True)
class _Worked:
    """What a worker had done when it was sampled last, and when it was found to have worked. Times in ns."""

    at_ns: int
    spent_ns: int
    worked_ns: int
    worked_step: int  # of the driver
    since: tuple[int, int] = (0, 0)  # when its part of several turns of the workers began, and what it had done by then


@dataclass(slots=True)
class OpenStep:
    """The latest samples of the rank's threads, and what was observed since the step is late."""

    sample: ThreadSample | None = None  # of the driver
    sample_ns: int = 0
    worker_samples: dict[int, ThreadSample] = field(default_factory=dict)
    queueing: float = 0.0  # part of the time between the last two samples that the driver waited for a processor
    stack: StackSeen | None = None
    late: LateStepObservations = field(default_factory=LateStepObservations)
    framework: FrameworkSeen = field(default_factory=FrameworkSeen)  # of all stacks so far
    inspected: Inspection | None = None  # the latest inspection, of this step or of an earlier late one
    early: EarlyLook = field(default_factory=EarlyLook)
    python_threads: frozenset[int] = frozenset()  # without the driver; tids as the process has them
    pool: list[float] = field(default_factory=list)  # of the workers in this step, as samples show it; [] none
    servers: set[str] = field(default_factory=set)
    """Peers of sockets at which the driver was late, and that are no ranks: of all steps so far."""
    quiet: list[tuple[int, int]] = field(default_factory=list)
    """When samples of the driver came in this step, and for how long gradients had been off by then, ns."""
    _worked: dict[int, _Worked] = field(default_factory=dict)  # by worker
    _unused: set[int] = field(default_factory=set)  # workers that have made no batch for long
    _saturated: set[int] = field(default_factory=set)  # workers that worked nearly all the time in the last turns
    _pool_at: dict[int, list[int]] = field(default_factory=dict)  # workers' leaf sums at the first sample in the step

    def begin(self) -> None:
        self.stack = None
        if self.late.looks or self.late.stacks or self.late.beside:
            self.late = LateStepObservations()
        self._pool_at.clear()
        self.pool = []
        self.quiet.clear()

    def add_driver_sample(self, sample: ThreadSample, at_ns: int) -> None:
        before, spent = self.sample, at_ns - self.sample_ns
        if before is not None and spent >= NS // 2:
            self.queueing = sum(sample.cells[place] - before.cells[place] for place in _QUEUED) / spent
        self.sample, self.sample_ns = sample, at_ns
        if len(self.quiet) < SAMPLES:
            self.quiet.append((at_ns, sum(sample.cells[place] for place in QUIET)))

    def add_worker_sample(self, sample: ThreadSample, at_ns: int, step: int, turns: Turns) -> None:
        """``step``: that the driver is in. A worker of its own loader makes several batches in these ``turns``."""
        spent = sum(sample.cells[place] for place in _WORK)
        before = self._worked.get(sample.pid)
        works = before is None or spent - before.spent_ns > _WAKE_UPS * (at_ns - before.at_ns)
        since = (at_ns, spent) if before is None else before.since
        if at_ns - since[0] > turns.ns:
            full = spent - since[1] > SATURATED * (at_ns - since[0])
            (self._saturated.add if full else self._saturated.discard)(sample.pid)
            since = at_ns, spent
        worked = (at_ns, step) if works or before is None else (before.worked_ns, before.worked_step)
        now = _Worked(at_ns, spent, *worked, since)
        self._worked[sample.pid] = now
        if works:
            self._unused.discard(sample.pid)
        elif at_ns - now.worked_ns > turns.ns and step - now.worked_step > turns.steps:
            self._unused.add(sample.pid)

    def works_for_driver(self, at_ns: int, *, fetching: bool) -> bool | None:
        """Whether a pass at that time found a worker at work; None where it did not find the driver waiting in a fetch
        (``fetching``), else outside of the model's own passes, or no worker lived."""
        driver = self.sample
        seen = [self.worker_samples[pid] for pid, one in self._worked.items() if one.at_ns == at_ns]
        if driver is None or self.sample_ns != at_ns or driver.run != ThreadState.BLOCKED:
            return None
        regions = (Region.FETCH,) if fetching else (Region.STEP, Region.NO_GRAD)
        if not seen or driver.leaf not in _IDLE or driver.region not in regions:
            return None
        return any(one.run != ThreadState.BLOCKED or one.leaf in _STORAGE for one in seen)

    @property
    def unused_workers(self) -> Collection[int]:
        """Live ones that have made no batch for long while others have: another loader's, as an evaluation's."""
        return self._unused if len(self._unused) < len(self._worked) else ()

    @property
    def saturated(self) -> bool:
        """Whether a worker has no time left: its loader is too slow, however idle those of another one are."""
        return bool(self._saturated)

    def quiet_came_last(self, start_ns: int, end_ns: int, before: int, after: int) -> bool:
        """Whether half of the time with gradients off was in the end of the step; ``before`` and ``after``: that time,
        at its start and at its end. Without samples that is not known."""
        half, (since_ns, low) = (before + after) / 2, (start_ns, before)
        for at_ns, high in (*self.quiet, (end_ns, after)):
            if high >= half:
                part = (half - low) / (high - low) if high > low else 0.0
                return since_ns + part * (at_ns - since_ns) - start_ns > LATER * (end_ns - start_ns)
            since_ns, low = at_ns, high
        return False

    def forget(self, pid: int) -> None:
        """The process is gone."""
        self.worker_samples.pop(pid, None)
        self._pool_at.pop(pid, None)
        self._worked.pop(pid, None)
        self._unused.discard(pid)
        self._saturated.discard(pid)

    def add_stack(self, event: StackSeen, driver: int) -> None:
        if event.pid != driver:
            # of an idle one beside a busy one: another was waited for, or it was over
            if self.late.busy is None or not is_idle_worker(event.frames):
                self.late.worker_stacks[event.pid] = event.frames
            return
        self.stack = event
        self.late.stacks.append(event)
        del self.late.stacks[:-STACKS]

    def add_inspection(self, seen: Inspection, at_ns: int) -> None:
        """An inspection of the driver, asked for because its step is late."""
        self.inspected = seen
        self.late.inspect(seen, at_ns)

    def waited_for(self, workers: WorkerPool) -> list[ThreadSample]:
        """Its children, but where it has workers not the other programs that it started: those wait as they like."""
        roles = {pid: life.role for pid, life in workers.live.items()}
        if "worker" not in roles.values():
            return list(self.worker_samples.values())
        return [one for pid, one in self.worker_samples.items() if roles.get(pid, "worker") == "worker"]

    def worker_pool(self, since_ns: int) -> list[float]:
        """ns of the workers by leaf in the step that began at ``since_ns``, as far as samples show it."""
        total = [0.0] * LEAVES
        for pid, sample in self.worker_samples.items():
            sums = [sum(sample.cells[leaf:_USED:LEAVES]) for leaf in range(LEAVES)]  # over all regions
            base = self._pool_at.setdefault(pid, sums)
            for leaf in range(LEAVES):
                total[leaf] += sums[leaf] - base[leaf]
            if sums is base and sample.leaf not in _IDLE:  # the first sample: what it does now counts from its begin
                total[sample.leaf] += max(0, self.sample_ns - max(sample.since_ns, since_ns))
        self.pool = total
        return total
