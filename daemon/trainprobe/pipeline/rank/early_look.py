"""An earlier look at the next brief burst of computing, where several were over before a Python stack was taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainprobe.causes.registry import SPECS
from trainprobe.model.moment import NS
from trainprobe.pipeline.stalls import StallEntry

RECENT, LEAST = 8, 3
"""Of the latest stalls: so many that computed, and no stack of any."""
LASTS_NS, RESTS_NS = 10 * NS, 60 * NS
TURNS = 5
"""So long the next late step is looked at early, so long after that none is, and so many times in all: each look that
finds the step over costs a read of the driver's ledger."""


@dataclass(slots=True)
class EarlyLook:
    begun_ns: int = 0  # the latest turn; 0: there was none
    turns: int = 0

    def wanted(self, entries: Sequence[StallEntry], now_ns: int) -> bool:
        """Whether the present step, should it be late, is to be looked at early; ``entries``: the stalls so far."""
        if not _unseen(entries):
            return False
        if self.begun_ns and now_ns - self.begun_ns < RESTS_NS:
            return now_ns - self.begun_ns < LASTS_NS
        if self.turns >= TURNS:
            return False
        self.begun_ns, self.turns = now_ns, self.turns + 1
        return True


def _unseen(entries: Sequence[StallEntry]) -> bool:
    bursts = [entry for entry in entries[-RECENT:] if SPECS[entry.cause].in_line is not None]
    return len(bursts) >= LEAST and not any(entry.stacks for entry in bursts)
