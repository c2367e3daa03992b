"""In which steps of the driver files were opened: between two of the same save it makes none."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate

from trainprobe.derive.files.save import Save
from trainprobe.model.dataclass import dataclass

KEEP = 512


@dataclass(slots=True)
class SaveSteps:
    open: list[Save] = field(default_factory=list)  # the step in which they were opened is not over
    next: tuple[int, int] | None = None  # ns of the start, number of the step that goes on

    def add(self, save: Save) -> None:
        self.open.append(save)
        del self.open[:-KEEP]

    def enter(self, start_ns: int, first: int, lengths: Sequence[int]) -> list[Save]:
        """The driver made steps that follow one another, the first of this number. The files whose step may not be what
        it was: those that were opened before they were over, and all when it is known first that there are steps."""
        end_ns, told, known = start_ns + sum(lengths), self.open, self.next is not None
        self.next = end_ns, first + len(lengths)
        if not told:
            return []
        ends = list(accumulate(lengths, initial=start_ns))[1:]
        for save in self.open:
            if start_ns <= save.start_ns < end_ns:
                save.step = first + bisect_right(ends, save.start_ns)
        self.open = [save for save in self.open if save.start_ns >= end_ns]
        return [save for save in told if save.start_ns < end_ns] if known else told

    def step_of(self, save: Save) -> int | None:
        """The number of the step in which it was opened; None: not known."""
        if save.step is None and self.next is not None and save.start_ns >= self.next[0]:
            return self.next[1]
        return save.step
