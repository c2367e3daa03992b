"""Whether steps grow: block medians on several scales, a rank test for the trend, a robust slope for its size.

A level that jumps is no trend (another program came and stays): the test needs growth from block to block. One step
costs an append; each block of BLOCK steps one sort, and a test of BLOCKS numbers.

Growth that follows the CPU time of other programs is no trend of the training: growth is confirmed only after the next
reading of that time, and dropped where they took more.

Growth that is steep within 200 steps has its own, stricter test (``steep``).

A machine whose speed changes (invisible others share its processors) hides growth that a steady one shows. All
computing changes alike, so where the scatter leaves a growth in doubt, each block is divided by the time of its
backward pass, and what a growth that shows then cost is counted at that pace. The cause of growth is mostly elsewhere;
where it is not, the lengths alone decide. Where nothing marks a backward pass, a growth no larger than the swing of the
machine's own pace has to exceed all steps before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import field, replace

from trainprobe.derive.average import median
from trainprobe.derive.trend import robust_line as line
from trainprobe.derive.trend.series import ThinnedSeries
from trainprobe.derive.trend.steep_drift import NONE, SIZE, Block, Growth, Steep, at_one_pace
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

BACKWARD = "backward"
"""What of a step's make-up its backward pass computes."""
OPTIMIZER = "optimizer"
"""What of it its optimiser computes."""
BATCH = "batch_bytes"
"""The counter of a batch's size."""
BLOCK = 20  # steps
BLOCKS = 15  # of a scale's window: 300 steps on the first, twice as many on each next one
LEAST = 10  # blocks of a window that is not full yet
SCALES = 16
GROWTH = 0.035
"""Of the level at the window's begin, from the middle of its first to that of its last block: a trend of 5 % with the
noise of its blocks."""
AGREE = 0.6
"""Kendall's tau of the blocks' medians."""
RISEN = GROWTH / 4
"""The least ratio of the medians of a window's last and first third before more expensive tests run, which is rare for
even steps."""
APART = 1 / 3
"""The part of the growth outside the backward pass; below, the whole step grows alike, as on a slower machine …"""
GROWTH_ALIKE = 0.15
"""… and must exceed the longest steps before by this part, because a changing speed comes back."""
PACES, PACES_LEAST = 32, 5
"""Readings of the machine's pace that are kept: one or two minutes; fewer tell nothing of its swing."""
CERTAIN = 6.0
"""The growth in standard errors of it, by what the blocks scatter about the line."""
LEVELS = 0.7
"""Two levels must fit this much better than a line (as a part of its squares) to be the explanation."""
BRIEF_NS = 10 * NS
"""Growth within less time does not last: caches fill, the processors' clocks settle."""
BACK = 0.01
"""This near to the level before the drift, it is over."""
OTHERS_LEAST = 0.05
"""A part of the host's processors: where others take this much more than before, they may slow the steps …"""
OTHERS_PART = 0.25
"""… and where that is this part of the growth: two threads that wait for each other take twice as long when one of them
has half a processor less, which is a quarter of two."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A trend that was confirmed. Lengths in ns."""

    from_ns: float  # the level at its begin
    to_ns: float
    from_step: int  # ordinary steps, counted from the first
    to_step: int
    blocks: Growth = NONE  # that showed it

    def beyond(self, ns: float, steps: int, backward: float) -> float:
        """What so many steps took beyond the level before, where the backward computes for so many ns a step."""
        return ns - steps * self.from_ns * self.blocks.pace(backward)

    @property
    def ratio(self) -> float:
        return self.to_ns / self.from_ns - 1

    @property
    def per_1000_steps(self) -> float:
        """ns that 1000 steps add to a step."""
        return (self.to_ns - self.from_ns) / max(1, self.to_step - self.from_step) * 1000


@dataclass(slots=True)
class Earlier:
    """What is kept of blocks that have left the window: how many, and the longest."""

    blocks: int = 0
    longest: float = 0.0  # ns of its steps

    def add(self, block: Block) -> None:
        """One that has left the window."""
        self.blocks += 1
        self.longest = max(self.longest, block.length)


@dataclass(slots=True)
class Trend:
    """Ordinary steps in, a confirmed growth out."""

    growth: Drift | None = None
    last: Drift | None = None  # the drift before, that is over
    steps: int = 0
    around: ThinnedSeries = field(default_factory=ThinnedSeries)
    steep: Steep = field(default_factory=Steep)
    _lost_ns: float = 0.0  # by full blocks
    _candidate: Drift | None = None
    _candidate_ns: float = 0.0  # what it cost, should it be one
    _counted: int = 0  # steps of the block that is not full yet, whose cost was counted with blocks before
    _lengths: list[int] = field(default_factory=list)  # of the block that is not full yet
    _backwards: list[int] = field(default_factory=list)
    _scales: list[list[Block]] = field(default_factory=lambda: [[] for _ in range(SCALES)])
    _earlier: list[Earlier] = field(default_factory=lambda: [Earlier() for _ in range(SCALES)])
    _pending: list[Block | None] = field(default_factory=lambda: [None] * SCALES)
    _positive: list[int] = field(default_factory=lambda: [0] * SCALES)
    _paces: deque[int] = field(default_factory=lambda: deque(maxlen=PACES))

    @property
    def lost_ns(self) -> float:
        """Beyond the level before the drift, all drifts so far."""
        return self._lost_ns + (self._beyond(self.growth) if self.growth is not None else 0.0)

    def add_step(self, ns: int, backward_ns: int = 0) -> None:
        """One ordinary step; ``backward_ns``: of it, computing within the backward pass."""
        self.steps += 1
        steep = self.steep.add_step(ns, backward_ns)
        self._lengths.append(ns)
        self._backwards.append(backward_ns)
        if len(self._lengths) == BLOCK:
            block = Block(median(self._lengths), median(self._backwards))
            self._charge()
            self._lengths.clear()
            self._backwards.clear()
            self._counted = 0
            self._add(0, block)
            if self.growth is not None:
                self._follow(self.growth)
        if steep and self.growth is None and self._candidate is None:
            self._confirm(steep, SIZE)

    def restart(self) -> None:
        """The steps do something else from now on: their lengths are compared with those before no more."""
        self._charge()
        self._lengths.clear()
        self._backwards.clear()
        self._counted, self._candidate = 0, None
        self._begin_anew()
        self._earlier = [Earlier() for _ in range(SCALES)]

    def _begin_anew(self) -> None:
        self.last, self.growth = self.growth or self.last, None
        self._positive, self.steep = [0] * SCALES, Steep()
        self._pending = [None] * SCALES
        for blocks in self._scales:
            blocks.clear()

    def _charge(self) -> None:
        """A block is full: what its steps took beyond the level before the drift. Each step alone would count the
        longer half of all scatter, and not the shorter one."""
        if self.growth is not None:
            self._lost_ns += self._beyond(self.growth)
        elif self._candidate is not None:
            self._candidate_ns += self._beyond(self._candidate)

    def _beyond(self, grown: Drift) -> float:
        steps = self._lengths[self._counted :]
        return max(0.0, grown.beyond(sum(steps), len(steps), median(self._backwards))) if steps else 0.0

    def add_pace(self, ns: int) -> None:
        """One more reading of how fast the machine computes: the CPU time of a fixed piece of work."""
        self._paces.append(ns)

    def surroundings(self, others: float | None) -> None:
        """Adds the part of the host's processors that other programs use."""
        if others is None:
            return
        self.around.add(self.steps, {"others": others})
        self._decide(others)

    def end(self) -> None:
        """No more readings come. A growth at one pace of the machine needs none: others who slow the steps slow the
        backward pass, too."""
        if self._candidate is not None and self._candidate.blocks.backward:
            self._decide(self.around.points[-1][1]["others"])

    def _decide(self, others: float) -> None:
        candidate, self._candidate = self._candidate, None
        if candidate is not None and not self._disturbed(candidate, others):
            self.growth = candidate
            self._lost_ns += self._candidate_ns

    def _disturbed(self, grown: Drift, latest: float) -> bool:
        """Whether others took more in the last third of the steps that grew than in the first, or when read first."""
        third = (grown.to_step - grown.from_step) / 3
        points = [(step, figures["others"]) for step, figures in self.around.points]
        earlier = [value for step, value in points if step < grown.from_step][-1:]
        earlier += [value for step, value in points if grown.from_step <= step <= grown.from_step + third]
        later = [value for step, value in points[1:] if step >= grown.to_step - third]
        more = median([*later, latest]) - median(earlier or [points[0][1]])
        return more >= max(OTHERS_LEAST, OTHERS_PART * grown.ratio)

    def _add(self, scale: int, block: Block) -> None:
        blocks = self._scales[scale]
        blocks.append(block)
        if len(blocks) > BLOCKS:
            self._earlier[scale].add(blocks.pop(0))
        if self.growth is None and self._candidate is None and len(blocks) >= LEAST:
            grown = growing(blocks, self._earlier[scale], self._paces)
            self._positive[scale] = self._positive[scale] + 1 if grown else 0
            if self._positive[scale] >= 2:
                self._confirm(grown, BLOCK << scale)
        before, self._pending[scale] = self._pending[scale], None
        if before is None:
            self._pending[scale] = block
        elif scale + 1 < SCALES:
            both = Block((before.length + block.length) / 2, (before.backward + block.backward) / 2)
            self._add(scale + 1, both)

    def _confirm(self, grown: Growth, size: int) -> None:
        blocks = grown.lengths
        slope, middle, length = line.slope(blocks), median(blocks), len(blocks)
        # Where the growth begins within the window, the line begins below the level before it.
        start = max(middle - slope * (length - 1) / 2, median(blocks[:3]))
        if sum(blocks) * size < BRIEF_NS:
            return
        begin = max(0, self.steps - length * size)
        growth = Drift(start, middle + slope * (length - 1) / 2, begin, self.steps, grown)
        self._counted = len(self._lengths)
        lost_ns = sum(max(0.0, block - start) for block in blocks) * size
        if self.around.points:
            self._candidate, self._candidate_ns = growth, lost_ns
        else:  # nothing is read of the host
            self.growth = growth
            self._lost_ns += lost_ns

    def _follow(self, growth: Drift) -> None:
        lengths = [block.length / growth.blocks.pace(block.backward) for block in self._scales[0][-3:]]
        recent = median(lengths)
        if recent <= growth.from_ns * (1 + BACK):
            self._begin_anew()
            return
        level = max(growth.to_ns, recent) if lengths[-1] >= growth.to_ns else growth.to_ns
        self.growth = replace(growth, to_ns=level, to_step=self.steps)


def growing(blocks: Sequence[Block], before: Earlier, paces: Collection[int] = ()) -> Growth:
    """The lengths that show a growth: divided by the pace, or as they are; none where neither do. ``paces``: readings
    of the machine's, where a backward pass does not tell it."""
    lengths = [block.length for block in blocks]
    if not _has_risen(lengths) or (grown := line.grown(lengths)) < GROWTH:
        return NONE
    if not (paced := at_one_pace(blocks)):
        doubtful = _swing(paces) >= grown and _may_be_pace(lengths, before)
        return Growth(lengths) if grows(lengths) and not doubtful else NONE
    if grows(paced.lengths):
        return paced
    alike = abs(line.grown(paced.lengths)) < APART * grown
    return Growth(lengths) if grows(lengths) and not (alike and _may_be_pace(lengths, before)) else NONE


def _swing(paces: Collection[int]) -> float:
    """How much slower than at its quickest times the machine is at its slowest ones, of late; an eighth of the readings
    at each end may be errors. (A growth is between extremes, too.)"""
    found = sorted(paces)
    return found[7 * len(found) // 8] / found[len(found) // 8] - 1 if len(found) >= PACES_LEAST else 0.0


def _may_be_pace(lengths: Sequence[float], before: Earlier) -> bool:
    """Whether a growth that the backward has in proportion, or none that is known, may be the machine's."""
    return before.blocks < LEAST or median(lengths[-3:]) < (1 + GROWTH_ALIKE) * before.longest


def _has_risen(lengths: Sequence[float]) -> bool:
    """Whether a growth is possible at all."""
    third = len(lengths) // 3
    return median(lengths[-third:]) >= (1 + RISEN) * median(lengths[:third])


def grows(blocks: Sequence[float]) -> bool:
    """Whether the blocks agree on growth, on enough of it, and lie on a line rather than on two levels."""
    if line.agreement(blocks) < AGREE or line.grown(blocks) < GROWTH:
        return False
    length = len(blocks)
    off_line = line.off_line(blocks)
    error = (off_line / (length - 2) / ((length**3 - length) / 12)) ** 0.5
    return line.slope(blocks) >= CERTAIN * error and LEVELS * off_line < line.off_levels(blocks)
