"""Is swapped memory read back just now, and by the driver? Major faults alone may be about files."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.model.moment import NS

RECENT_NS = 5 * NS  # the host is read every 2 s
WORTH = 20  # major faults of a driver between two readings of the host: fewer cost next to nothing


@dataclass(slots=True)
class Swapping:
    """Counters as last read, and when they last rose together."""

    _pages: int | None = None
    _faults: int | None = None
    _host_ns: int | None = None
    _driver_ns: int | None = None

    def feed(self, pages: int | None, faults: int | None, at_ns: int) -> None:
        """The host's pages read back from swap and the driver's major faults, both since ever; None: not known."""
        if pages is not None and self._pages is not None and pages > self._pages:
            self._host_ns = at_ns
            if faults is not None and self._faults is not None and faults - self._faults >= WORTH:
                self._driver_ns = at_ns
        self._pages, self._faults = pages, faults

    def on_host(self, now_ns: int) -> bool:
        """Whether anything of the host was read back a moment ago."""
        return self._host_ns is not None and now_ns - self._host_ns <= RECENT_NS

    def by_driver(self, now_ns: int) -> bool:
        """Whether the driver had many major faults meanwhile."""
        return self._driver_ns is not None and now_ns - self._driver_ns <= RECENT_NS
