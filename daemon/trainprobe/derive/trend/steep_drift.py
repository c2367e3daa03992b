"""A test for a step that grows by much within 200 steps. There are few blocks, so tests exclude everything else.

The blocks are on a line (Theil and Sen's slope, Kendall's tau) and each quarter has its part of the growth; jumps fail
this. The slope is many standard errors, widened by the correlation of neighbours, so that correlated noise counts for
less. The last blocks are longer than all before the window; a swinging level fails this. The same holds after division
by the computing of the backward pass, which a slow machine slows alike. Where the backward is unknown, or grows alike,
the test has no result."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field

from trainprobe.derive.average import median
from trainprobe.derive.trend import robust_line as line
from trainprobe.model.dataclass import dataclass

SIZE, WINDOW = 10, 18
"""Steps of a block, blocks of the window."""
GROWTH = 0.12
"""From the middle of the window's first block to that of its last: of 20 % in 200 steps it shows 18."""
AGREE, CERTAIN, LEVELS, QUARTER = 0.8, 12.0, 0.4, 0.15
"""Kendall's tau; standard errors; squares about the line in those about two levels; of the growth, in each quarter."""
ABOVE = 1.12
"""The least ratio of the last blocks to the longest block before the window."""
MEMORY = 0.9
"""The correlation of neighbours counts up to this."""
AGAIN = 2
"""Windows in a row that show it."""
PACE_LEAST = 0.2
"""Of a block's length, that the backward's computing has to be to measure the pace with."""


@dataclass(frozen=True, slots=True)
class Block:
    """Medians of the steps of a block, in ns."""

    length: float
    backward: float  # the time on a processor within the backward pass


@dataclass(frozen=True, slots=True)
class Growth:
    """Lengths of blocks that grow, in ns. ``backward``: where not 0, they are divided by the machine's pace, and hold
    for a pace at which the backward pass computes for so many ns."""

    lengths: Sequence[float]
    backward: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.lengths)

    def pace(self, backward: float) -> float:
        """How much slower the machine is where the backward pass computes for so many ns."""
        return backward / self.backward if self.backward else 1.0


NONE = Growth(())


def at_one_pace(blocks: Sequence[Block]) -> Growth:
    """The lengths of blocks, each divided by how much slower than usual its backward pass was; none where a backward is
    not known, or too short to tell."""
    if any(block.backward < PACE_LEAST * block.length for block in blocks):
        return NONE
    usual = median(block.backward for block in blocks)
    return Growth([block.length * usual / block.backward for block in blocks], usual)


@dataclass(slots=True)
class Steep:
    """Ordinary steps in, the blocks of a steep growth out."""

    blocks: list[Block] = field(default_factory=list)
    longest: float = 0.0  # of the blocks before the window, ns
    positive: int = 0
    _lengths: list[int] = field(default_factory=list)
    _backwards: list[int] = field(default_factory=list)

    def add_step(self, ns: int, backward_ns: int) -> Growth:
        """One ordinary step; a window's blocks once they grew steeply."""
        self._lengths.append(ns)
        self._backwards.append(backward_ns)
        if len(self._lengths) < SIZE:
            return NONE
        self.blocks.append(Block(median(self._lengths), median(self._backwards)))
        self._lengths.clear()
        self._backwards.clear()
        if len(self.blocks) > WINDOW:
            self.longest = max(self.longest, self.blocks.pop(0).length)
        if len(self.blocks) < WINDOW:
            return NONE
        grown = self._grown([block.length for block in self.blocks])
        self.positive = self.positive + 1 if grown else 0
        return grown if self.positive >= AGAIN else NONE

    def _grown(self, lengths: Sequence[float]) -> Growth:
        third = WINDOW // 3
        if median(lengths[-third:]) < (1 + GROWTH / 2) * median(lengths[:third]):
            return NONE  # the usual case
        if median(lengths[-3:]) < ABOVE * self.longest:
            return NONE
        paced = at_one_pace(self.blocks)
        return paced if paced and is_steep(lengths) and is_steep(paced.lengths) else NONE


def is_steep(values: Sequence[float]) -> bool:
    """Whether values lie on a line that grows by much."""
    if line.grown(values) < GROWTH or line.agreement(values) < AGREE:
        return False
    if line.slope(values) < CERTAIN * line.error(values, MEMORY):
        return False
    if line.off_line(values) >= LEVELS * line.off_levels(values):
        return False
    edges = [place * len(values) // 4 for place in range(5)]
    quarters = [median(values[begin:end]) for begin, end in itertools.pairwise(edges)]
    least = QUARTER * (quarters[-1] - quarters[0])
    return all(after - before >= least for before, after in itertools.pairwise(quarters))
