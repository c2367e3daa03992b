"""A rate limiter: several at once, then a steady rate."""

from __future__ import annotations


class RateLimiter:
    """``quick`` at once after a pause, then one each ``spread_ns`` (the generic cell rate algorithm)."""

    def __init__(self, quick: int, spread_ns: int) -> None:
        self._quick = quick
        self._room_ns = 0  # when there is room for all of them again
        self.spread_ns = spread_ns

    def next_ns(self) -> int:
        """When there is room for another one."""
        return self._room_ns - (self._quick - 1) * self.spread_ns

    def left(self, now_ns: int) -> int:
        """For how many there is room now."""
        return self._quick - -(-max(0, self._room_ns - now_ns) // self.spread_ns)

    def count_one(self, now_ns: int) -> None:
        self._room_ns = max(now_ns, self._room_ns) + self.spread_ns

    def give_back(self) -> None:
        """The latest one does not count."""
        self._room_ns -= self.spread_ns

    def is_full(self, now_ns: int) -> bool:
        """Whether there is room for all of them."""
        return self._room_ns <= now_ns
