"""When a process's maps are read again: often while it is young, rarely later."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from trainprobe.model.moment import NS

WATCHED_AGES = tuple(int(s * NS) for s in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 60))
CANDIDATE_AGES = tuple(int(s * NS) for s in (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 60))
CANDIDATES_LIMIT = 8192
LATER_LIMIT_NS = 3600 * NS
TOGETHER_NS = NS // 4
"""Candidates are looked at so often at most, those of a moment together: a host may start a hundred processes a second,
and most are gone by then."""
WATCHED_LATER_NS = 60 * NS


@dataclass(slots=True)
class Poll:
    """A process whose maps are looked at. ``ticks`` None: not looked at yet."""

    pid: int
    born_ns: int  # its exec
    watched: bool
    turn: int = 0  # looks so far
    ticks: int | None = None
    used: tuple[int, int] | None = None  # processor time and resident bytes at the look before

    def next_ns(self) -> int:
        """When the coming look is due. Candidates: behind the listed ages at doubled ones, later each hour."""
        ages = WATCHED_AGES if self.watched else CANDIDATE_AGES
        if self.turn < len(ages):
            return self.born_ns + ages[self.turn]
        beyond = self.turn - len(ages) + 1
        if self.watched:
            return self.born_ns + ages[-1] + beyond * WATCHED_LATER_NS
        doublings = LATER_LIMIT_NS.bit_length() - ages[-1].bit_length()
        if beyond <= doublings:
            return self.born_ns + (ages[-1] << beyond)
        return self.born_ns + (ages[-1] << doublings) + (beyond - doublings) * LATER_LIMIT_NS


class Polls:
    """The looks that are due, in time order. A newer exec of a pid replaces the older entry."""

    def __init__(self) -> None:
        self._watched: list[tuple[int, int, Poll]] = []  # heaps
        self._candidates: list[tuple[int, int, Poll]] = []
        self._current: dict[int, Poll] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._current)

    def add(self, pid: int, born_ns: int, *, watched: bool, now_ns: int) -> None:
        """Begin to look at a process. One that is older than the first ages is looked at once now, then by its age."""
        if not watched and len(self._current) >= CANDIDATES_LIMIT:
            return
        poll = self._current[pid] = Poll(pid, born_ns, watched)
        at = poll.next_ns()
        if at <= now_ns:
            while poll.next_ns() <= now_ns:
                poll.turn += 1
            poll.turn -= 1
            at = now_ns
        self._push(poll, at)

    def __contains__(self, pid: int) -> bool:
        return pid in self._current

    def forget_process(self, pid: int) -> None:
        self._current.pop(pid, None)

    def again(self, poll: Poll) -> None:
        """The look gave nothing: look again when the process is older."""
        poll.turn += 1
        self._push(poll, poll.next_ns())

    def next_due(self, now_ns: int) -> Poll | None:
        """A process to be looked at now; give it back with ``again`` or ``forget_process``."""
        for heap in (self._watched, self._candidates):
            if (at := self._next_ns(heap)) is not None and at <= now_ns:
                return heapq.heappop(heap)[2]
        return None

    def several_due(self, now_ns: int, most: int) -> list[Poll]:
        """The same of several processes."""
        due: list[Poll] = []
        while len(due) < most and (poll := self.next_due(now_ns)) is not None:
            due.append(poll)
        return due

    def is_current(self, poll: Poll) -> bool:
        """Whether no newer exec has taken its place, and it is not forgotten."""
        return self._current.get(poll.pid) is poll

    def due_ns(self) -> int | None:
        watched, candidate = self._next_ns(self._watched), self._next_ns(self._candidates)
        if candidate is None:
            return watched
        together = candidate + -candidate % TOGETHER_NS
        return together if watched is None else min(watched, together)

    def _next_ns(self, heap: list[tuple[int, int, Poll]]) -> int | None:
        while heap and self._current.get(heap[0][2].pid) is not heap[0][2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _push(self, poll: Poll, at_ns: int) -> None:
        self._turn += 1
        heapq.heappush(self._watched if poll.watched else self._candidates, (at_ns, self._turn, poll))
