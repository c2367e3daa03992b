"""An earlier look at the next brief burst of computing, where several were over before a Python stack was taken."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.causes.registry import SPECS
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.pipeline.stalls import StallBook, StallEntry

RECENT, LEAST = 16, 3
OFTEN_NS = 30 * NS
"""Of the latest stalls: so many that computed, within so long, and no stack of any."""
LASTS_NS, RESTS_NS = 10 * NS, 60 * NS
LATE, TURNS = 3, 5
"""A turn lasts so long, or so many late steps, whose stacks are asked for; none follows for a while; so many in all."""


@dataclass(slots=True)
class EarlyLook:
    begun_ns: int = 0  # the latest turn; 0: there was none
    stalls: int = 0  # before it
    turns: int = 0

    def wanted(self, book: StallBook, now_ns: int) -> bool:
        """Whether the present step, should it be late, is to be looked at early."""
        if not _unseen(book.entries, now_ns):
            return False
        if self.turns and now_ns - self.begun_ns < RESTS_NS:
            return now_ns - self.begun_ns < LASTS_NS and book.total - self.stalls < LATE
        if self.turns >= TURNS:
            return False
        self.begun_ns, self.stalls, self.turns = now_ns, book.total, self.turns + 1
        return True


def _unseen(entries: Sequence[StallEntry], now_ns: int) -> bool:
    bursts = [entry for entry in entries[-RECENT:] if SPECS[entry.cause].in_line is not None]
    often = len(bursts) >= LEAST and now_ns - bursts[-LEAST].start_ns <= OFTEN_NS
    return often and not any(entry.stacks for entry in bursts)
