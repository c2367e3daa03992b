"""When a process's maps are read again: often while it is young, rarely later."""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque

from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

WATCHED_AGES = tuple(int(s * NS) for s in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 60))
CANDIDATE_AGES = tuple(int(s * NS) for s in (0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 60))
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
    owner: int = 0  # who answers for it

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


class _Queue:
    """Looks in time order; of those that are due, each owner's in turn. Each look is moved twice, however many wait."""

    def __init__(self) -> None:
        self._later: list[tuple[int, int, Poll]] = []  # a heap
        self._due: OrderedDict[int, deque[tuple[int, Poll]]] = OrderedDict()  # by owner
        self._turn = 0

    def push(self, poll: Poll, at_ns: int) -> None:
        self._turn += 1
        heapq.heappush(self._later, (at_ns, self._turn, poll))

    def pop(self, now_ns: int) -> Poll | None:
        while self._later and self._later[0][0] <= now_ns:
            at, _, poll = heapq.heappop(self._later)
            self._due.setdefault(poll.owner, deque()).append((at, poll))
        return self._next() if self._due else None

    def _next(self) -> Poll:
        owner, polls = self._due.popitem(last=False)
        _, poll = polls.popleft()
        if polls:
            self._due[owner] = polls  # behind the others
        return poll

    def next_ns(self, current: dict[int, Poll]) -> int | None:
        """When the next look is due of those that are still current."""
        while self._due:
            at, poll = next(iter(self._due.values()))[0]
            if current.get(poll.pid) is poll:
                return at
            self._next()
        while self._later and current.get(self._later[0][2].pid) is not self._later[0][2]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None


class Polls:
    """The looks that are due. A newer exec of a pid replaces the older entry."""

    def __init__(self) -> None:
        self._watched, self._candidates = _Queue(), _Queue()
        self._current: dict[int, Poll] = {}
        self._of: defaultdict[int, dict[int, Poll]] = defaultdict(dict)  # candidates by owner
        self._places = CANDIDATES_LIMIT  # that no candidate has

    def __len__(self) -> int:
        return len(self._current)

    def add(self, pid: int, born_ns: int, *, watched: bool, now_ns: int, owner: int = 0) -> None:
        """Begin to look at a process. One that is older than the first ages is looked at once now, then by its age."""
        self.forget_process(pid)
        if not watched and not self._places and not self._make_room(owner):
            return
        poll = self._current[pid] = Poll(pid, born_ns, watched, owner=owner)
        if not watched:
            self._of[owner][pid] = poll
            self._places -= 1
        at = poll.next_ns()
        if at <= now_ns:
            for bit in range(24, -1, -1):  # the last turn that is past: of an old process there are a million
                poll.turn += 1 << bit
                poll.turn -= 1 << bit if poll.next_ns() > now_ns else 0
            at = now_ns
        self._push(poll, at)

    def _make_room(self, owner: int) -> bool:
        """The owner with most candidates gives up his latest, unless that is the one who asks."""
        most = max(self._of, key=lambda one: len(self._of[one]))
        if len(self._of[most]) <= len(self._of.get(owner, ())) + 1:
            return False
        self.forget_process(next(reversed(self._of[most])))
        return True

    def __contains__(self, pid: int) -> bool:
        return pid in self._current

    def forget_process(self, pid: int) -> None:
        poll = self._current.pop(pid, None)
        if poll is not None and not poll.watched:
            self._places += 1
            del self._of[poll.owner][pid]
            if not self._of[poll.owner]:
                del self._of[poll.owner]

    def again(self, poll: Poll) -> None:
        """The look gave nothing: look again when the process is older."""
        poll.turn += 1
        self._push(poll, poll.next_ns())

    def next_due(self, now_ns: int) -> Poll | None:
        """A process to be looked at now; give it back with ``again`` or ``forget_process``."""
        for queue in (self._watched, self._candidates):
            while (poll := queue.pop(now_ns)) is not None:
                if self._current.get(poll.pid) is poll:
                    return poll
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
        watched, candidate = (queue.next_ns(self._current) for queue in (self._watched, self._candidates))
        if candidate is None:
            return watched
        together = candidate + -candidate % TOGETHER_NS
        return together if watched is None else min(watched, together)

    def _push(self, poll: Poll, at_ns: int) -> None:
        (self._watched if poll.watched else self._candidates).push(poll, at_ns)
