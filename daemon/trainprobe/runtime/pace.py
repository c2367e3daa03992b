"""How often a report is made: at once when something rare happens, never more than ten times a second."""

from __future__ import annotations

from trainprobe.model.moment import NS

REGULAR_NS = NS
LONGEST_NS = 5 * NS
SHARE = 0.001  # of a processor for the regular ones: a report of many runs comes less often
QUICK = 3  # so many follow at once when there were none for a while …
SPREAD_NS = 143_000_000  # … and each of these gives room for another: 3 + 7 in any second at most


class Pace:
    """Decides when the next one is due."""

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._room_ns = 0  # when there is room for QUICK again (the generic cell rate algorithm)
        self._pending = False
        self._regular_ns = REGULAR_NS
        self.least_ns = REGULAR_NS
        """Between two regular ones, however little they cost."""

    def due_ns(self) -> int:
        """When the next one should be made."""
        if self._last_ns is None:
            return 0
        regular = self._last_ns + self._regular_ns
        return min(regular, self._room_ns - (QUICK - 1) * SPREAD_NS) if self._pending else regular

    def due(self, now_ns: int, *, urgent: bool) -> bool:
        """Whether to make one now, which is noted as made."""
        self._pending = self._pending or urgent
        if now_ns < self.due_ns():
            return False
        self._pending = False
        self._last_ns = now_ns
        self._room_ns = max(now_ns, self._room_ns) + SPREAD_NS
        return True

    def took(self, spent_ns: int) -> None:
        """What the last one cost."""
        self._regular_ns = min(max(self.least_ns, round(spent_ns / SHARE)), LONGEST_NS)
