"""Everything known of one rank, in states of one responsibility each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from math import inf

from trainprobe.causes.policy import Policy
from trainprobe.derive.files.saves import Saves
from trainprobe.derive.steps.interval import Files, Interval
from trainprobe.derive.steps.ledger import WaitContext, wait_context_of
from trainprobe.derive.workers import WorkerPool
from trainprobe.model.cause import Phase
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import RankSeen, StepFile
from trainprobe.model.moment import NS
from trainprobe.model.step_deadline import Armed
from trainprobe.pipeline.notices import RankNotices
from trainprobe.pipeline.rank.files import FileActivity
from trainprobe.pipeline.rank.ledger import LedgerSums
from trainprobe.pipeline.rank.lives import Lives
from trainprobe.pipeline.rank.memory import MemoryState
from trainprobe.pipeline.rank.open_step import OpenStep, Turns
from trainprobe.pipeline.rank.ordinary import OrdinarySteps
from trainprobe.pipeline.rank.phases import Phases
from trainprobe.pipeline.rank.progress import StepProgress
from trainprobe.pipeline.rank.surroundings import Surroundings
from trainprobe.pipeline.stalls import StallBook

TURNS, LEAST_TURNS_NS = 4, 5 * NS


@dataclass(slots=True)
class RankState:
    """One rank. ``rank.event_handlers`` take what a frame holds, in time order; ``rank.snapshot`` is for the report."""

    seen: RankSeen
    policy: Policy
    attached: bool = False
    surroundings: Surroundings = field(default_factory=Surroundings)
    resumed: bool = False  # an earlier process of ours watched it
    stepped: bool = False
    tid: int = 0  # the driver; the main thread until another thread steps
    further: int = 0  # of a process's drivers the first after that one is 1
    start_ns: int = 0
    end_ns: int | None = None
    ledger: LedgerSums = field(default_factory=LedgerSums)
    phases: Phases = field(default_factory=Phases)
    progress: StepProgress = field(default_factory=StepProgress)
    ordinary: OrdinarySteps = field(default_factory=OrdinarySteps)
    stalls: StallBook = field(default_factory=StallBook)
    open: OpenStep = field(default_factory=OpenStep)
    notices: RankNotices = field(default_factory=RankNotices)  # about limits; the run's RunLimits feeds them
    lives: Lives = field(init=False)
    memory: MemoryState = field(init=False)
    files: FileActivity = field(init=False)

    def __post_init__(self) -> None:
        self.tid = self.tid or self.seen.pid
        self.start_ns = self.start_ns or (self.seen.at_ns if self.attached else self.seen.started_ns)
        self.lives = Lives(WorkerPool(self.seen.pid))
        self.memory = MemoryState(self.lives.workers)
        self.files = FileActivity(
            Saves(self.policy.files, steps_ns=0 if self.attached else None, drivers={self.seen.pid})
        )

    @property
    def by_rhythm(self) -> bool:
        """Whether nothing marks its steps, so that the rhythm of its waits has to do."""
        unmarked = bool(self.seen.marks) or self.progress.wait_baseline.stands
        return unmarked and not self.stepped and self.end_ns is None

    @property
    def book(self) -> StallBook:
        """The stalls that count: none before it is known what is ordinary."""
        return self.stalls if self.progress.judged else StallBook(box=self.stalls.box)

    @property
    def pids(self) -> frozenset[int]:
        """The driver's process and its live children."""
        return frozenset((self.seen.pid, *self.lives.workers.live))

    def known(self, pid: int) -> bool:
        """Whether ``pid`` is the driver or ever was a child of it, as far back as is remembered."""
        workers = self.lives.workers
        return workers.owns(pid) or pid in self.memory.processes or pid in workers.dead

    def forget(self, pid: int) -> None:
        """A child has ended, or is another rank's."""
        self.open.forget(pid)
        self.files.slow.forget(pid)
        self.memory.forget(pid)
        self.lives.workers.forget(pid)

    def turns(self) -> Turns:
        """In which the workers make several batches each, in ordinary steps."""
        baseline, steps = self.progress.baseline, TURNS * self.lives.workers.count
        return Turns(max(LEAST_TURNS_NS, steps * baseline.ns) if baseline.stands else inf, steps)

    @property
    def loader_workers(self) -> int:
        """Live workers of the training's own loader, as far as others are known."""
        return max(0, self.lives.workers.count - len(self.open.unused_workers))

    def wait_context(self) -> WaitContext:
        """What decides how its waits are named."""
        ledger = self.ledger
        return wait_context_of(self.lives.workers.started > 0, ledger.inline, ledger.ranks, ledger.fetched)

    def close_interval(
        self, cells: Sequence[int], pool: Sequence[int], uses: Iterable[StepFile] = (), *, ended_ns: int = 0
    ) -> Interval:
        """The time since the last interval's end, which is over. ``ended_ns``: from its begin until the last worker
        ended, which their loader waits for outside its fetches; the ledger counts that as what it waits for them."""
        files = self.files.classed(uses, self.tid, self._boundary_ns) if uses else ()
        interval = Interval(self.ledger.cells, cells, self.ledger.pool, pool, files, self.wait_context())
        self.ledger.close_interval(interval)
        if ended_ns:
            self.ledger.count_as_data_wait(interval, ended_ns)
        return interval

    def live_files(self, since_ns: int | None = None) -> Files:
        """Files of the open step (or since a moment): what finished calls took, and the saves that the driver has open
        with the call in flight. Their proportions count, not their sums."""
        since_ns = self._boundary_ns if since_ns is None else since_ns
        sample = self.open.sample
        return [
            *(self.files.classed(sample.files, self.tid, since_ns) if sample is not None else ()),
            *self.files.written_by(self.tid, since_ns, sample, self.open.sample_ns),
        ]

    @property
    def _boundary_ns(self) -> int:
        """When the present step began; 0 before the first."""
        return self.progress.boundary.at_ns if self.progress.boundary is not None else 0

    def limit_ns(self) -> int | None:
        """When the present step becomes a stall; None while nothing is armed."""
        limit, left_ns = self.progress.limit_ns(self.policy), self.left_ns()
        if limit is None or self.end_ns is not None:
            return None
        if left_ns is None:
            return limit
        asked = self.lives.interrupted(left_ns)
        return max(limit, left_ns + (self.policy.interrupted_end_ns if asked else self.policy.open_end_ns))

    def left_ns(self) -> int | None:
        """When the training's code was left after the last step; None while it was not."""
        boundary = self.progress.boundary
        return self.lives.left_ns(boundary.at_ns if boundary is not None else 0)

    def stable_ns(self, now_ns: int) -> int:
        """For how long it has stepped evenly; 0 where a step has no alarm of its own, or it saves something."""
        limit = self.limit_ns()
        if limit is None or now_ns >= limit or not self.progress.clock.single or self.files.saving:
            return 0
        return self.progress.stability.lasts_ns(now_ns)

    def armed(self) -> Armed | None:
        """The alarm of the present step; None while there is no limit."""
        limit, row = self.limit_ns(), self.progress.boundary
        if limit is None or row is None:
            return None
        early = self.open.early.wanted(self.stalls, row.at_ns)
        return Armed(self.tid, row.steps, row.backwards, row.at_ns, limit, early, self.ledger.ranks)

    def end_startup(self, at_ns: int) -> None:
        """It is known what is ordinary, or will not be: what came before is the first phase, but where it compiled."""
        begin_ns = self.start_ns
        for compile_ns, end_ns in self.lives.workers.compiling(self.start_ns, at_ns):
            self.phases.add(self.first_phase, begin_ns, compile_ns)
            self.phases.add(Phase.COMPILE, compile_ns, end_ns)
            begin_ns = end_ns
        self.phases.add(self.first_phase, begin_ns, at_ns)

    def train_by_rhythm(self) -> None:
        """Nothing marks its steps: what was compared second by second counts, what came before is the start-up."""
        rhythm = self.progress.wait_baseline
        if rhythm.learnt_ns:
            rhythm.stands = True
            self.files.saves.begin_steps(rhythm.learnt_ns)
            self.end_startup(rhythm.learnt_ns)

    @property
    def first_phase(self) -> Phase:
        """The phase until it is known what is ordinary."""
        return Phase.ATTACHING if self.attached else Phase.STARTUP
