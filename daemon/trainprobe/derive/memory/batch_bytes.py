"""Shared memory of a batch: bytes that the workers made, divided by the batches fetched meanwhile."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import MarkRow

FILLED = 16
"""Fetches after which the workers' queues are full: from then on they make as much as is fetched."""
LEAST = 8


@dataclass(slots=True)
class BatchBytes:
    """Two counters of one ledger, from a moment on."""

    _opened_ns: int = -1
    _from: tuple[int, int] | None = None  # (bytes, batches)
    _last: tuple[int, int] = (0, 0)
    _taken: tuple[int, int] | None = None  # by `_latest`
    _latest: float | None = None

    def add_row(self, row: MarkRow) -> None:
        if row.shared_bytes is None:
            return
        now = row.shared_bytes, row.fetches - row.inline_fetches
        if row.opened_ns != self._opened_ns or now[0] < self._last[0]:  # another ledger, or workers of another pool
            self._opened_ns, self._from, self._taken = row.opened_ns, None, None
        if self._from is None and now[1] >= FILLED:
            self._from = now
        self._last = now

    @property
    def mean(self) -> float | None:
        """Bytes; None while too few batches came from workers, or none was in shared memory."""
        return self._since(self._from)

    def latest(self) -> float | None:
        """Of those since it was asked for last, where there were enough; None as above."""
        found = self._since(self._taken or self._from)
        if found is not None:
            self._taken, self._latest = self._last, found
        return self._latest

    def _since(self, begin: tuple[int, int] | None) -> float | None:
        if begin is None:
            return None
        made, fetched = (last - first for last, first in zip(self._last, begin))
        return made / fetched if fetched >= LEAST and made > 0 else None
