"""How often things are done: at once where something rare happens, within a rate where it happens again and again."""

from __future__ import annotations

from trainprobe.derive.allowance import Allowance
from trainprobe.model.moment import NS

REGULAR_NS = NS
LONGEST_NS = 5 * NS
SHARE = 0.0004  # of a processor for the regular reports: one of many runs comes less often
LATE_SHARE = 0.005  # the same while a step is late: somebody may be looking at it
QUICK = 3  # reports follow at once when there were none for a while …
SPREAD_NS = 143_000_000  # … and each of these gives room for another: 3 + 7 in any second at most
URGENT_SHARE = 0.1  # of a processor for the urgent ones: those of hundreds of processes are spread wider,
WIDEST_NS = NS // 2  # up to this


class Pace:
    """Decides when a report is made: at once when something rare happens, never more than ten times a second."""

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._allowance = Allowance(QUICK, SPREAD_NS)
        self._pending = False
        self._regular_ns = self._late_ns = REGULAR_NS
        self.late = False
        """Whether a step is late."""
        self.least_ns = REGULAR_NS
        """Between two regular ones, however little they cost."""

    def waits_ns(self) -> int | None:
        """When an urgent one that had to wait should be made; None: the next regular one is made with some turn."""
        if self._last_ns is None:
            return 0
        return self.due_ns() if self._pending else None

    def due_ns(self) -> int:
        """When the next one should be made."""
        if self._last_ns is None:
            return 0
        regular = self._last_ns + (self._late_ns if self.late else self._regular_ns)
        return min(regular, self._allowance.next_ns()) if self._pending else regular

    def due(self, now_ns: int, *, urgent: bool) -> bool:
        """Whether to make one now, which is noted as made."""
        self._pending = self._pending or urgent
        if now_ns < self.due_ns():
            return False
        self._pending = False
        self._last_ns = now_ns
        self._allowance.take(now_ns)
        return True

    def took(self, spent_ns: int) -> None:
        """What the last one cost."""
        self._regular_ns, self._late_ns = (
            min(max(self.least_ns, round(spent_ns / share)), LONGEST_NS) for share in (SHARE, LATE_SHARE)
        )
        self._allowance.spread_ns = min(max(SPREAD_NS, round(spent_ns / URGENT_SHARE)), WIDEST_NS)
