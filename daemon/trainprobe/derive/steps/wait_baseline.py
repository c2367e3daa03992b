"""The clock of last resort: where nothing marks a step, each second of the driver's ledger is compared with its usual
ones. It finds waits that are new, with their seconds, and those for a processor; it finds no steps, and nothing about
time on one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field

from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import State
from trainprobe.model.cells import COMPUTING, QUEUED
from trainprobe.model.dataclass import dataclass

KEEP = 64
LEAST = 8  # windows before it judges
USUAL = 0.9
"""A wait is usual up to the share that this part of the windows has at most."""


@dataclass(frozen=True, slots=True)
class WaitWindow:
    """One window: its parts, and the waits beyond the usual. ns."""

    start_ns: int
    end_ns: int
    items: Mapping[Item, int]
    excess: Mapping[Item, float]

    @property
    def beyond_ns(self) -> float:
        return sum(self.excess.values())

    @property
    def saving_ns(self) -> float:
        return sum(ns for (state, _, _), ns in self.excess.items() if state == State.CHECKPOINT)


@dataclass(slots=True)
class WaitBaseline:
    """The parts of the driver's usual seconds. Shares are parts of a window's time."""

    since_ns: int = 0  # the present window began
    cells: Sequence[int] = ()  # as they stood then; empty: not begun
    windows: int = 0
    edge: WaitWindow | None = None  # the last window, where a stall may have begun in it
    after_stall: bool = False  # the last window was a stall
    judged_ns: int = 0  # time in windows that were compared
    learnt_ns: int = 0  # when there were enough windows to compare others with; 0: not yet
    queued: dict[Item, float] = field(default_factory=dict)  # ns for a processor, in those that were no stall
    stands: bool = False  # what they show counts: nothing marks steps
    _usual: deque[dict[Item, float]] = field(default_factory=lambda: deque(maxlen=KEEP))

    def begin(self, at_ns: int, cells: Sequence[int]) -> None:
        self.since_ns, self.cells = at_ns, cells

    def excess(self, items: Mapping[Item, int], ns: int) -> dict[Item, float]:
        """ns of each wait in a window of length ``ns`` beyond what is usual. No save is usual."""
        found = {}
        for item, spent in items.items():
            saves = item[0] == State.CHECKPOINT
            beyond = spent - (0.0 if saves else self._limit(item) * ns)
            if (saves or item[2] not in COMPUTING) and beyond > 0:
                found[item] = beyond
        return found

    def add(self, items: Mapping[Item, int], ns: int) -> None:
        self._usual.append({item: spent / ns for item, spent in items.items()})
        if self.learnt_ns:
            for item, spent in items.items():
                if item[2] in QUEUED and spent:
                    self.queued[item] = self.queued.get(item, 0.0) + spent

    def learn(self, at_ns: int) -> None:
        """Compare the windows from now on, if there are enough to compare with."""
        if len(self._usual) >= LEAST:
            self.learnt_ns = at_ns

    def _limit(self, item: Item) -> float:
        shares = sorted(window.get(item, 0.0) for window in self._usual)
        return shares[int(USUAL * (len(shares) - 1))] if shares else 0.0
