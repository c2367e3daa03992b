"""How long a driver has stepped evenly, which makes sampling passes rare. A late step removes a part of it, not all."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

REST_NS = 4 * NS
"""Within this time after a late step another one is likely."""
COST_NS = 30 * NS
"""A late step removes this much: where they come more often, nothing is left."""
MOST_NS = 120 * NS
"""The maximum: what was long ago says nothing of a training that has become uneven."""


@dataclass(slots=True)
class Stability:
    """Time that grows while steps stay even; each late step removes a part."""

    _since_ns: int | None = None
    _late_ns: int = 0

    def begin(self, at_ns: int) -> None:
        self._since_ns = self._late_ns = at_ns

    def late(self, at_ns: int) -> None:
        since = at_ns if self._since_ns is None else self._since_ns
        self._since_ns = min(at_ns, max(since, at_ns - MOST_NS) + COST_NS)
        self._late_ns = at_ns

    def lasts_ns(self, now_ns: int) -> int:
        """The even time; 0 right after a late step."""
        if self._since_ns is None or now_ns - self._late_ns < REST_NS:
            return 0
        return min(now_ns - self._since_ns, MOST_NS)
