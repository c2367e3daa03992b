"""Failures of calls by what ran out, of processes whose own counts are no longer kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed

Sum = tuple[int, str]  # the driver's pid, what ran out


@dataclass(slots=True)
class FailureSums:
    sums: Counter[Sum] = field(default_factory=Counter)
    _known: dict[tuple[int, int, int], tuple[Sum, int]] = field(default_factory=dict)
    """The latest counts in the sums, by (pid, errno, dev)."""

    def add(self, last: CallFailed, sum_: Sum, most: int) -> None:
        """The count of a process; ``most``: of so many it is known, should one fail again."""
        self.sums[sum_] += last.count
        self._known[last.pid, last.errno, last.dev] = sum_, last.count
        if len(self._known) > most:
            del self._known[next(iter(self._known))]

    def take_back(self, event: CallFailed) -> None:
        """A process fails again: its count holds those before. A smaller one is another process's, or the kernel counts
        anew."""
        known = self._known.pop((event.pid, event.errno, event.dev), None)
        if known is not None and event.count > known[1]:
            self.sums[known[0]] -= known[1]

    def of(self, driver: int) -> Counter[str]:
        return Counter({what: count for (of, what), count in self.sums.items() if of == driver and count})

    def forget_all_but(self, drivers: Collection[int]) -> None:
        self.sums = Counter({key: count for key, count in self.sums.items() if key[0] in drivers})
        self._known = {key: one for key, one in self._known.items() if one[0][0] in drivers}
