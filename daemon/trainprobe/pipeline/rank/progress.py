"""Where a driver is in its training: its clock, the last boundary, and what its steps usually are."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field

from trainprobe.causes.policy import Policy, stall_limit_ns
from trainprobe.derive.steps.baseline import LEAST, Baseline, Ordinary
from trainprobe.derive.steps.changed_work import ChangedWork
from trainprobe.derive.steps.clock import StepClock
from trainprobe.derive.steps.ledger import Item
from trainprobe.derive.steps.stability import Stability
from trainprobe.derive.steps.wait_baseline import WaitBaseline
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import MarkRow
from trainprobe.model.moment import NS
from trainprobe.model.report import STEP_BUCKETS
from trainprobe.pipeline.rank.step_buffer import StepBuffer

EARLY = 32
"""Steps kept while they are too uneven for a baseline."""


@dataclass(slots=True)
class StepLengths:
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=1024))
    histogram: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS) + 1))
    total: float = 0.0

    def add(self, lengths: Sequence[int]) -> None:
        for ns in lengths:
            seconds = ns / NS
            self.recent.append(seconds)
            self.total += seconds
            self.histogram[bisect_left(STEP_BUCKETS, seconds)] += 1


@dataclass(slots=True)
class StepProgress:
    clock: StepClock = field(default_factory=StepClock)
    baseline: Baseline = field(default_factory=Baseline)
    wait_baseline: WaitBaseline = field(default_factory=WaitBaseline)
    boundary: MarkRow | None = None  # the last step's begin
    first_boundary_ns: int = 0
    lengths: StepLengths = field(default_factory=StepLengths)
    stability: Stability = field(default_factory=Stability)
    buffer: StepBuffer = field(default_factory=StepBuffer)
    first_due: int = 0  # workers that were started again and have yet to deliver for the first time
    throttled_step: int = -1  # the last one that stalled by the quota
    changed: ChangedWork = field(default_factory=ChangedWork)
    _early: list[Ordinary] = field(default_factory=list)

    def freeze(self) -> None:
        """No more steps come. Each holds on to the whole ledger of two marks."""
        self.baseline.freeze()
        self.buffer.settle()

    @property
    def judged(self) -> bool:
        """Whether it is known what is ordinary: the start-up is over."""
        return self.baseline.stands or self.wait_baseline.stands

    def limit_ns(self, policy: Policy) -> int | None:
        """When the present step becomes a stall; None while no step can."""
        if self.boundary is None or not self.baseline.stands:
            return None
        return int(self.boundary.at_ns + stall_limit_ns(policy, self.baseline.ns))

    def excess(self, items: Mapping[Item, int], ns: int, base_ns: float) -> dict[Item, float]:
        """What an interval of length ``ns`` has beyond an ordinary one of ``base_ns``, in ns by item."""
        usual = self.baseline.items()
        scale = base_ns / self.baseline.ns if self.baseline.ns else 1.0
        more = {item: spent - scale * usual.get(item, 0.0) for item, spent in items.items()}
        more = {item: spent for item, spent in more.items() if spent > 0}
        total, excess = sum(more.values()), ns - base_ns
        factor = excess / total if total > 0 else 0.0
        return {item: spent * factor for item, spent in more.items()}

    def learn_step(self, step: Ordinary, at_ns: int, policy: Policy) -> bool:
        """Take in a step before there is a baseline; whether there is one now."""
        self._early.append(step)
        if len(self._early) < LEAST:
            return False
        lengths = sorted(s.ns for s in self._early)
        middle = lengths[len(lengths) // 2]
        fit = [s for s in self._early if s.ns <= stall_limit_ns(policy, middle)]
        if len(fit) < LEAST:
            del self._early[:-EARLY]
            return False
        for ordinary in fit:
            self.baseline.add(ordinary)
        self._early.clear()
        self.stability.begin(at_ns)
        return True

    def count_starts(self, started: int, *, first: bool, steps: int) -> None:
        """Workers deliver in turn: each one's first batch is due a step after another's, where a step takes one."""
        due = started if started and not first else self.first_due
        self.first_due = max(0, due - steps * max(1, round(self.baseline.fetches()))) if due else 0
