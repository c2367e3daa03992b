"""What all ordinary steps of a rank were made of, and how they grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from trainprobe.causes.base import take_items
from trainprobe.causes.waiting import CPU, STORAGE, SWAP
from trainprobe.derive.python.code_lines import PythonLines, WorkerStacks
from trainprobe.derive.steps.baseline import Baseline, Ordinary
from trainprobe.derive.steps.instruction_counting import Counting
from trainprobe.derive.steps.interval import Interval
from trainprobe.derive.steps.ledger import Item, by_state
from trainprobe.derive.steps.ordinary_waits import Waits
from trainprobe.derive.steps.waited_pool import WaitedPool
from trainprobe.derive.trend.drift import BACKWARD, OPTIMIZER, Trend
from trainprobe.derive.trend.series import ThinnedSeries
from trainprobe.model.cause import State
from trainprobe.model.cells import LEAVES, QUEUED, Leaf, Region, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import NO_GPU_MEMORY_CALLS, GpuMemoryCalls
from trainprobe.pipeline.rank.collectives import Collectives

MAKEUP_EVERY = 80
"""Ordinary steps between two readings of what they are made of."""
TURNS, SELDOM = 2, 20
"""So many turns of all workers, and so many batches, come for each late one where that is a single one."""
WORTH_A_WAIT, ALL_AT_ONCE = 0.7, 1.2
"""Of the waits, and of all workers' time in them: what workers do that are waited for each time."""
_FOR_PROCESSES, _BETWEEN = (State.DATA_WAIT, State.LOCK), (Region.STEP, Region.NO_GRAD)
_PRODUCTIVE = frozenset({State.COMPUTE, State.GPU_WAIT, State.CHECKPOINT, State.SLEEP})
"""States in which ordinary steps wait for nobody that is known. (A save is the checkpoint rules'. The pause that a
training's own code makes in each step may be for work that is done elsewhere.)"""
_WORK = (*CPU, *STORAGE, *SWAP)
_BACKWARD = cell(Region.BACKWARD, Leaf.CPU)
_QUEUED = tuple(cell(region, leaf) for region in Region for leaf in QUEUED)


@dataclass(slots=True)
class StepGrowth:
    """Whether ordinary steps become longer, and what grows with them. A step is as long as it would have been had it
    never waited for a CPU: what others take, or a quota, is no growth of the training."""

    trend: Trend = field(default_factory=Trend)
    makeup: ThinnedSeries = field(default_factory=ThinnedSeries)
    """ns of an ordinary step by state, and in its backward pass and its optimiser, by its number."""
    counters: ThinnedSeries = field(default_factory=ThinnedSeries)  # what may grow with the step

    def add_step(self, step: Ordinary, baseline: Baseline) -> None:
        backward = step.made_of.cell(_BACKWARD) / max(1, step.ns)
        ran = 1 - min(1.0, sum(map(step.made_of.cell, _QUEUED)) / max(1, step.ns))
        for ns in step.lengths:
            self.trend.add_step(int(ran * ns), int(backward * ns))
            if self.trend.steps % MAKEUP_EVERY == 0:
                items = baseline.items()
                made_of = {state.value: spent for state, spent in by_state(items).items() if state != State.RUNQUEUE}
                for name, region in ((BACKWARD, Region.BACKWARD), (OPTIMIZER, Region.OPTIMIZER)):
                    made_of[name] = items.get((State.COMPUTE, region, Leaf.CPU), 0.0)
                self.makeup.add(self.trend.steps, made_of)

    def add_counters(self, figures: Mapping[str, float]) -> None:
        self.counters.add(self.trend.steps, figures)


@dataclass(slots=True)
class LateBatches:
    """What the workers did in steps that stalled for data, ns by leaf."""

    pool: list[float] = field(default_factory=lambda: [0.0] * LEAVES)
    fetches: int = 0
    steps: int = 0


@dataclass(slots=True)
class OrdinarySteps:
    """Sums over all ordinary steps, in ns; `items`, `pool` and `waits` after settle()."""

    items: dict[Item, float] = field(default_factory=dict)
    pool: list[float] = field(default_factory=lambda: [0.0] * LEAVES)
    ns: float = 0.0
    late_ns: float = 0.0  # the ordinary part of steps that were late, or held a phase: as long as an ordinary step
    count: int = 0
    fetches: int = 0
    churn: GpuMemoryCalls = NO_GPU_MEMORY_CALLS
    swap_faults: int = 0  # where the kernel tells them apart
    by_workers: dict[int, float] = field(default_factory=dict)  # by the number of live workers
    late: LateBatches = field(default_factory=LateBatches)
    in_waits: WaitedPool = field(default_factory=WaitedPool)
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=1024))  # seconds
    waits: Waits = field(default_factory=Waits)
    collectives: Collectives = field(default_factory=Collectives)
    growth: StepGrowth = field(default_factory=StepGrowth)
    counting: Counting = field(default_factory=Counting)
    lines: PythonLines = field(default_factory=PythonLines)
    lines_ns: int = 0  # when a stack of an ordinary step was asked for
    of_workers: WorkerStacks = field(default_factory=WorkerStacks)
    _pending: Interval | None = None  # ordinary steps in a row, not in `items` yet

    def add_step(self, step: Ordinary, units: int, workers: int, *, saturated: bool = False) -> None:
        """Take in an ordinary step that is as long as ``units`` steps, with so many live workers, one of which perhaps
        had no time left."""
        if self._pending is None or not self._pending.extend(step.made_of):
            self.settle()
            self._pending = step.made_of.copy()
        self.ns += step.ns
        self.count += units
        self.fetches += step.fetches
        self.by_workers[workers] = self.by_workers.get(workers, 0.0) + step.ns
        self.in_waits.add_step(step, workers, saturated=saturated)
        self.waits.step(units)
        if self.waits.full:
            self.settle()

    @property
    def worker_ns(self) -> float:
        """Live workers x time."""
        return sum(workers * ns for workers, ns in self.by_workers.items())

    @property
    def workers(self) -> int | None:
        """As many as mostly lived while there were some; an evaluation's own come and go. None: there were none."""
        some = {workers: ns for workers, ns in self.by_workers.items() if workers}
        return max(some, key=lambda workers: some[workers]) if some else None

    @property
    def saturated(self) -> bool:
        """Whether a worker mostly had no time left."""
        return 2 * self.in_waits.saturated_ns > self.ns

    @property
    def works_in_waits(self) -> bool:
        """Whether workers work while they are waited for and at no other time: then they are idle for as long as the
        training computes. Environments or a pool's; a DataLoader's make no batches ahead where an epoch has few."""
        if not self.worker_ns or self.in_waits.idle or (self.fetches and not self.in_waits.busy):
            return False
        regions = (Region.FETCH,) if self.fetches else _BETWEEN
        states = (*_FOR_PROCESSES, State.SLEEP) if self.lines.polls else _FOR_PROCESSES
        waited = sum(take_items(self.items, states=states, regions=regions).values())
        worked = sum(self.pool[leaf] for leaf in _WORK)
        return WORTH_A_WAIT * waited <= worked <= ALL_AT_ONCE * waited * self.worker_ns / self.ns

    @property
    def productive(self) -> Collection[State]:
        """States that are no waits, but those of a loader that sleeps until a batch is there."""
        return _PRODUCTIVE - {State.SLEEP} if self.lines.polls else _PRODUCTIVE

    def add_waited(self, step: Ordinary) -> None:
        """Take in what the workers did in a step that stalled for data."""
        self.late.pool = [total + ns for total, ns in zip(self.late.pool, step.made_of.pool())]
        self.late.fetches += step.fetches
        self.late.steps += step.steps

    def pool_in_waits(self) -> tuple[list[float], float]:
        """The part of ``pool``, and of ``worker_ns``, that goes with the driver's waits for its workers."""
        return self.in_waits.of_all(self.pool, self.worker_ns)

    def pool_of_batches(self) -> tuple[Sequence[float], int]:
        """What workers did for so many batches, in ns. Late ones count where workers are slower than the training: they
        come once in a turn of all workers, or more often. Single late ones say nothing of the others."""
        turn = (self.workers or 1) * max(1.0, self.fetches / max(1, self.count))
        if self.late.fetches * max(SELDOM, TURNS * turn) <= self.fetches:
            return self.pool, self.fetches
        return [a + b for a, b in zip(self.pool, self.late.pool)], self.fetches + self.late.fetches

    def settle(self) -> None:
        """Bring the sums up to the last boundary: before they are read."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        items = pending.items()
        for item, ns in items.items():
            self.items[item] = self.items.get(item, 0.0) + ns
        self.waits.add_steps(items, pending.files)
        self.pool = [total + ns for total, ns in zip(self.pool, pending.pool())]
