"""Whether the training reads back swapped memory now. Major faults may also be about files: older kernels do not tell
them apart, and then the host's count of swapped pages decides."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

RECENT_NS = 5 * NS  # the host is read every 2 s
WORTH = 20  # major faults of a driver, or of its workers, between two readings of the host: fewer cost next to nothing


@dataclass(slots=True)
class Swapping:
    """Counters as last read, and when they last rose together."""

    _pages: int | None = None
    _driver: int | None = None
    _workers: int | None = None
    _host_ns: int | None = None
    _own_ns: int | None = None

    def add_counts(self, pages: int | None, driver: int | None, workers: int | None, at_ns: int) -> None:
        """The host's pages read back from swap and its major faults, cumulative; None: not known."""
        if _rose(self._pages, pages, 1):
            self._host_ns = at_ns
            if _rose(self._driver, driver, WORTH) or _rose(self._workers, workers, WORTH):
                self._own_ns = at_ns
        self._pages, self._driver, self._workers = pages, driver, workers

    def feed_step(self, faults: int, at_ns: int) -> None:
        """The driver's major faults on no file in a step, or all of them in one that is late: it may be over before the
        host is read."""
        if faults >= WORTH:
            self._own_ns = at_ns

    def on_host(self, now_ns: int) -> bool:
        """Whether the host read back swapped pages lately."""
        return self._host_ns is not None and now_ns - self._host_ns <= RECENT_NS

    def by_training(self, now_ns: int) -> bool:
        """Whether the driver or its workers had many major faults meanwhile."""
        return self._own_ns is not None and now_ns - self._own_ns <= RECENT_NS


def _rose(before: int | None, after: int | None, least: int) -> bool:
    return before is not None and after is not None and after - before >= least
