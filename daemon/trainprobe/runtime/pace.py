"""How often a report is made: at once when something rare happens, never more than ten times a second."""

from __future__ import annotations

from collections import deque

from trainprobe.model.moment import NS

REGULAR_NS = NS
LONGEST_NS = 5 * NS
SHARE = 0.002  # of a processor for the regular ones: a report of many runs comes less often
QUICK = 3  # in any second, so many follow at once …
SPREAD_NS = 140_000_000  # … and further ones at this distance: 3 + 7 a second at most


class Pace:
    """Decides when the next one is due."""

    def __init__(self) -> None:
        self._made: deque[int] = deque(maxlen=QUICK)
        self._pending = False
        self._regular_ns = REGULAR_NS

    def due_ns(self) -> int:
        """When the next one should be made."""
        if not self._made:
            return 0
        regular = self._made[-1] + self._regular_ns
        return min(regular, self._allowed_ns()) if self._pending else regular

    def due(self, now_ns: int, *, urgent: bool) -> bool:
        """Whether to make one now, which is noted as made."""
        self._pending = self._pending or urgent
        if now_ns < self.due_ns():
            return False
        self._pending = False
        self._made.append(now_ns)
        return True

    def took(self, spent_ns: int) -> None:
        """What the last one cost."""
        self._regular_ns = min(max(REGULAR_NS, round(spent_ns / SHARE)), LONGEST_NS)

    def _allowed_ns(self) -> int:
        quick_used = len(self._made) == QUICK and self._made[0] > self._made[-1] - NS
        return self._made[-1] + SPREAD_NS if quick_used else self._made[-1]
