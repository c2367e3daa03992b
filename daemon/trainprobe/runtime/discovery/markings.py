"""Libraries that have no marks yet: when the kernel side is asked for which of them, each owner in turn (pure)."""

from __future__ import annotations

from collections import Counter

from trainprobe.collect.mapping import Mapping
from trainprobe.model.dataclass import dataclass
from trainprobe.runtime.discovery.user_shares import ROOT

MARKING_NS, LONGEST_MARKING_NS = 20_000_000, 80_000_000
"""Between questions whether a library has been read: twice as long each time, up to this."""
AGAIN_NS, DOUBLINGS = 100_000_000, 9
"""Before a library that was refused, or could not be opened, is asked for again: up to 51 s."""
OF_ONE, OF_ROOT = 5, 20  # libraries of an owner that are asked for in turn; one more than may hang
AT_ONCE = 64


@dataclass(slots=True)
class Marking:
    """A library of a process: it is being read, or ``failures`` times it was refused or could not be opened."""

    owner: int
    library: Mapping
    due_ns: int = 0
    asked_ns: int = 0
    pause_ns: int = MARKING_NS
    reading: bool = True
    failures: int = 0

    def ask_again(self, now: int) -> None:
        """It is being read, or waits for its turn."""
        self.reading, self.due_ns = True, now + self.pause_ns
        self.pause_ns = min(2 * self.pause_ns, LONGEST_MARKING_NS)

    def ask_later(self, now: int) -> None:
        self.reading, self.due_ns = False, now + (AGAIN_NS << min(self.failures, DOUBLINGS))
        self.failures += 1


class Markings:
    """By process, each owner's in the order in which they came."""

    def __init__(self) -> None:
        self._markings: dict[int, Marking] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._markings

    def begin(self, pid: int, owner: int, library: Mapping) -> Marking:
        marking = self._markings.setdefault(pid, Marking(owner, library))
        marking.owner, marking.library = owner, library
        return marking

    def end(self, pid: int) -> None:
        self._markings.pop(pid, None)

    def due_ns(self) -> int | None:
        return min((marking.due_ns for marking in self._markings.values()), default=None)

    def take_due(self, now: int) -> list[tuple[int, Marking]]:
        """Those to ask for now: the first of each owner, then the second of each; among equals the one that was asked
        for longest ago. The others are due again a little later."""
        places: Counter[int] = Counter()
        due: list[tuple[int, int, int, Marking]] = []
        for pid, marking in self._markings.items():
            if marking.reading or marking.due_ns <= now:
                place = places[marking.owner]
                places[marking.owner] += 1
                if marking.due_ns <= now:
                    due.append((place, marking.asked_ns, pid, marking))
        due.sort(key=lambda one: one[:3])
        chosen: list[tuple[int, Marking]] = []
        for place, _, pid, marking in due:
            if len(chosen) < AT_ONCE and place < (OF_ROOT if marking.owner == ROOT else OF_ONE):
                marking.asked_ns = now
                chosen.append((pid, marking))
            else:
                marking.due_ns = now + MARKING_NS
        return chosen
