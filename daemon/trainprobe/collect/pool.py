"""Reads of strangers' processes by helpers: processes of ours that can be killed (``helper_program``).

The readers of /proc/PID/{cmdline,environ,maps,mem,smaps_rollup} wait for the lock of the process's memory map, those
of {stat,wchan,syscall} and of the files above for the lock of its execve(2); what lies below its root may be on a
file system that hangs. Any user can bring that about. So a helper reads, and is waited for so long and no longer.

One that is late is killed, and another one takes its place. What it was reading is read again beside the loop, by a
helper that nobody waits for; until that has an answer it costs a place of the user who answers for the process, who
has few. A helper that a signal does not end (it waits for a file system, not for a lock) is abandoned. What two helpers
ended over is treated as what hangs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from trainprobe.collect.helper_process import NOT_BEGUN, Ended, Helper, Unanswered
from trainprobe.collect.helper_program import BEYOND
from trainprobe.model.dataclass import dataclass

LIMIT_SECONDS = 0.25
AGAIN_SECONDS = 0.05
"""What is waited for a process while others of the same user hang, or when waiting took long of late."""
OF_ONE_USER, OF_ROOT = 4, 16
"""Reads that hang. With so many nothing of that user is read until one returns: a user can make reads hang at will, and
must not stop those of others. Containers run as root, many different ones on one host."""
ABANDONED, ABANDONED_OF_ONE, ABANDONED_OF_ROOT = 8, 1, 4
"""Helpers that cannot be killed. With so many, no file system or service is asked."""
SLOW_SECONDS = 0.05
SLOW_ROOM_SECONDS, SLOW_SHARE = 0.5, 0.05
"""What reads slower than that may take of the loop, for each user but root: so much at once, and this share."""
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 8.0  # before what hangs is tried again
REST_SECONDS = 2.0
DIED_SECONDS = 60.0  # so long it is reported that helpers ended before they answered
TOGETHER = 1024  # reads of one request
ROOT, NOBODY, ALL = 0, -1, -2


class Read(NamedTuple):
    """``operation``: one of ``helper_program``, and what it wants. ``pid``: whose it is; negative: no process's."""

    pid: int
    operation: bytes
    path: bytes
    first: int = 0
    second: int = 0

    @property
    def place(self) -> Place:
        return self.pid, self.operation in BEYOND


Place = tuple[int, bool]
"""A process, and whether more than the kernel is asked."""


@dataclass(slots=True)
class _Hung:
    uid: int
    read: Read
    again: float
    pause: float = PAUSE_SECONDS
    abandoned: Helper | None = None  # it has been killed, and has not ended


@dataclass(slots=True)
class _Waited:
    """When the time of each user's slow reads will be made up for; ``ALL``: that of all together."""

    until: dict[int, float] = field(default_factory=dict)

    def took(self, uid: int, now: float, seconds: float) -> None:
        self.until = {user: until for user, until in self.until.items() if until > now}
        self.until[uid] = max(now, self.until.get(uid, 0.0)) + seconds / SLOW_SHARE

    def too_long(self, uid: int, now: float) -> bool:
        return self.until.get(uid, 0.0) - now >= SLOW_ROOM_SECONDS / SLOW_SHARE


@dataclass(slots=True)
class HelperDeaths:
    """When two helpers after each other ended before they answered, of all pools, and over which process; NOBODY: they
    had not begun to read."""

    last: tuple[float, int] | None = None

    def of_late(self, now: float) -> tuple[int, ...]:
        """That process, for some time."""
        return (self.last[1],) if self.last is not None and now - self.last[0] < DIED_SECONDS else ()


class HelperPool:
    """One helper, and one more while something hangs. For one thread, or several that may wait for each other."""

    def __init__(
        self,
        owner: Callable[[int], int] = lambda _pid: ROOT,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[], Helper] = Helper,
        deaths: HelperDeaths | None = None,
    ) -> None:
        """``owner``: the user who answers for a process; it raises OSError where there is none. ``deaths``: noted
        there."""
        self._deaths = deaths or HelperDeaths()
        self._owner_of, self._clock, self._start = owner, clock, start
        self._helper: Helper | None = None
        self._hung: dict[Place, _Hung] = {}
        self._probe: tuple[Helper, Place, float] | None = None  # it tries again what hangs, until then
        self._waited = _Waited()
        self._resting = 0.0  # until then nothing is asked
        self.elsewhere: Callable[[], Iterable[int]] = tuple
        """The users of other processes of ours that cannot be killed: they take the same places."""
        self._lock = threading.Lock()

    def ask(self, reads: Sequence[Read]) -> list[bytes | int | None]:
        """The answers; None: there is no such file or process, or it hangs, or others of its user do. An int is a
        descriptor, the caller's to close."""
        with self._lock:
            if self._hung:
                self._look_after()
            answers: list[bytes | int | None] = [None] * len(reads)
            for begin in range(0, len(reads), TOGETHER):
                part = self._allowed(range(begin, min(begin + TOGETHER, len(reads))), reads)
                while part:
                    part = self._allowed(self._ask(part, reads, answers), reads)
            return answers

    def _ask(self, part: list[int], reads: Sequence[Read], answers: list[bytes | int | None]) -> list[int]:
        """What is left to ask for."""
        began = self._clock()
        try:
            found = self._asked([reads[number] for number in part])
        except Unanswered as without:
            read = None if without.at == NOT_BEGUN else reads[part[without.at]]
            if isinstance(without, Ended):
                self._deaths.last = self._clock(), NOBODY if read is None else read.pid
            if read is None:
                self._rest()
                return []
            self._gave_up(read, began)
            return part
        for number, answer in zip(part, found, strict=True):
            answers[number] = answer
        slow = self._slow([reads[number].pid for number in part]) if self._clock() - began >= SLOW_SECONDS else None
        if slow is not None:
            self._took(self.owner(slow), began)
        return []

    def _slow(self, pids: Sequence[int]) -> int | None:
        """Whose read took long, of the latest request; None: that is not known."""
        stood_at = self._helper.stood_at if self._helper else NOT_BEGUN
        alone = len({*pids}) == 1
        return pids[stood_at] if alone or stood_at != NOT_BEGUN else None

    def _asked(self, reads: list[Read]) -> list[bytes | int | None]:
        """Raises Late, and Ended where another helper ended too: one that nobody asked for a while has ended."""
        once = False
        while True:
            helper = self._helper = self._helper or self._start()
            try:
                helper.ask([read[1:] for read in reads])
                return helper.wait(lambda at: self._limit(reads[at].pid))
            except Ended:
                self._helper = None
                helper.ended()  # which reaps it
                helper.close()
                if once:
                    raise
                once = True

    def _limit(self, pid: int) -> float:
        uid, now = self.owner(pid), self._clock()
        short = self._waited.too_long(ALL, now) or any(one.uid == uid for one in self._hung.values())
        return AGAIN_SECONDS if short else LIMIT_SECONDS

    def _rest(self) -> None:
        """This host has no time for a helper now."""
        helper, self._helper, self._resting = self._helper, None, self._clock() + REST_SECONDS
        if helper and not helper.kill():
            helper.close()

    def _gave_up(self, read: Read, began: float) -> None:
        helper, self._helper = self._helper, None
        uid, now = self.owner(read.pid), self._clock()
        self._took(uid, began)
        left = None if helper is None or helper.kill() else helper
        self._hung[read.place] = _Hung(uid, read, now + PAUSE_SECONDS, abandoned=left)

    def _took(self, uid: int, began: float) -> None:
        now = self._clock()
        for user in {uid, ALL} - {ROOT}:
            self._waited.took(user, now, now - began)

    def _allowed(self, part: Iterable[int], reads: Sequence[Read]) -> list[int]:
        now = self._clock()
        if now < self._resting:
            return []
        if not self._hung and not self._waited.until and not [*self.elsewhere()]:
            return list(part)
        places = Counter(one.uid for one in self._hung.values())
        abandoned = self._abandoned()
        allowed = []
        for number in part:
            pid, beyond = reads[number].place
            uid = self.owner(pid)
            most, lost = (OF_ROOT, ABANDONED_OF_ROOT) if uid == ROOT else (OF_ONE_USER, ABANDONED_OF_ONE)
            full = places[uid] >= most or self._waited.too_long(uid, now)
            gone = beyond and (abandoned[uid] >= lost or abandoned.total() >= ABANDONED)
            if not (full or gone or (pid, beyond) in self._hung):
                allowed.append(number)
        return allowed

    def _abandoned(self) -> Counter[int]:
        return Counter([one.uid for one in self._hung.values() if one.abandoned] + [*self.elsewhere()])

    def is_silent(self, pid: int) -> bool:
        """Whether nothing is asked of the process now: it hangs, or others of its user do, or this host has no time."""
        with self._lock:
            return pid in self.hanging() or not self._allowed((0,), (Read(pid, b"read", b""),))

    def has_room(self, pid: int) -> bool:
        """Whether another process of ours may read memory of this one: none of its user's keeps one of ours."""
        uid, abandoned = self.owner(pid), self._abandoned()
        return abandoned[uid] < ABANDONED_OF_ONE and abandoned.total() < ABANDONED

    def owner(self, pid: int) -> int:
        """The user who answers for a process; NOBODY: it is gone."""
        try:
            return self._owner_of(pid)
        except OSError:
            return NOBODY

    def _is_there(self, pid: int) -> bool:
        return pid < 0 or self.owner(pid) != NOBODY

    def hanging(self) -> tuple[int, ...]:
        """Processes that cannot be read now."""
        return tuple({pid for pid, _ in self._hung})

    def died(self) -> tuple[int, ...]:
        """The process over which helpers ended of late, here or in another pool; NOBODY: they had not begun."""
        return self._deaths.of_late(self._clock())

    def abandoned(self) -> list[tuple[int, int, int]]:
        """(helper, process, user) of each helper that was killed and does not end."""
        return [(one.abandoned.pid, place[0], one.uid) for place, one in self._hung.items() if one.abandoned]

    def look_after(self) -> None:
        """Now and then, whether something is asked or not."""
        with self._lock:
            self._look_after()

    def _look_after(self) -> None:
        if self._helper and self._helper.ended():
            self._helper.close()
            self._helper = None
        if not self._hung:
            return
        now = self._clock()
        for one in self._hung.values():
            if one.abandoned and one.abandoned.ended():
                one.abandoned, one.again = None, now
        self._hung = {place: one for place, one in self._hung.items() if one.abandoned or self._is_there(place[0])}
        self._look_after_probe(now)

    def _look_after_probe(self, now: float) -> None:
        helper: Helper | None = None
        if self._probe:
            helper, place, until = self._probe
            one = self._hung.get(place)
            if helper.answered():
                self._hung.pop(place, None)
            elif now < until and not helper.ended():
                return
            else:
                left = None if helper.kill() else helper
                helper = None
                if one:
                    one.pause = min(2 * one.pause, LONGEST_PAUSE_SECONDS)
                    one.again, one.abandoned = now + one.pause, left
            self._probe = None
        due = [(one.again, place) for place, one in self._hung.items() if not one.abandoned and one.again <= now]
        if not due:
            if helper:
                helper.close()
            return
        place = min(due)[1]
        helper = helper or self._start()
        try:
            helper.ask([self._hung[place].read[1:]])
            self._probe = helper, place, now + LIMIT_SECONDS
        except Ended:
            helper.close()

    def seconds(self) -> float:
        """Processor time of the helpers that have not ended."""
        helpers = [self._helper, self._probe[0] if self._probe else None]
        return sum(helper.seconds() for helper in helpers if helper)

    def close(self) -> None:
        """End all that can be ended."""
        with self._lock:
            for helper in (self._helper, self._probe and self._probe[0]):
                if helper:
                    helper.close()
            self._helper = self._probe = None
