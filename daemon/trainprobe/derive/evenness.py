"""For how long has a driver stepped evenly? What seldom looks are founded on: a late step costs some of it, not all."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.model.moment import NS

REST_NS = 4 * NS
"""So long after a late step another one is likely."""
COST_NS = 30 * NS
"""What a late step takes of it: where they come more often than that, nothing is left."""
MOST_NS = 120 * NS
"""More than this is not counted: what was long ago does not help a training that has become uneven."""


@dataclass(slots=True)
class Evenness:
    """An account in time: it fills as steps go on as before, and each late one takes a part."""

    _since_ns: int | None = None
    _late_ns: int = 0

    def begin(self, at_ns: int) -> None:
        """It is known from now on what an ordinary step is."""
        self._since_ns = self._late_ns = at_ns

    def late(self, at_ns: int) -> None:
        """A late step has ended."""
        since = at_ns if self._since_ns is None else self._since_ns
        self._since_ns = min(at_ns, max(since, at_ns - MOST_NS) + COST_NS)
        self._late_ns = at_ns

    def lasts_ns(self, now_ns: int) -> int:
        """What is in the account; 0 right after a late step."""
        if self._since_ns is None or now_ns - self._late_ns < REST_NS:
            return 0
        return min(now_ns - self._since_ns, MOST_NS)
