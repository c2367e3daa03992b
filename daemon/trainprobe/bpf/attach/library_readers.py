# SPDX-License-Identifier: Apache-2.0
"""Threads that read libraries and put marks on them: how many there are, and which user's request is next."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import field

from trainprobe.bpf.attach.user_quota import ROOT
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import NOT_OPENED
from trainprobe.model.message import Message, template

MAX_READERS, READERS_OF_ROOT = 16, 4
READERS_OF_RETURNING = 4
"""Readers of users whose earlier libraries have taken time of late. The other places are for users who come newly, so
that one with thousands of libraries, or sixteen such users, delay nobody's first."""
WAITING_SECONDS = 0.5  # who has not asked again for so long waits no longer
KEPT_SECONDS = 5.0  # an answer waits so long for whoever asked
SHARE, LEAST_SECONDS = 1 / 60, 0.05
"""Reading takes a user's next request back by the time that it took over this share, at least this time of a library in
which nothing is found."""
USELESS_ROOM_SECONDS, USELESS_SHARE, USELESS_SECONDS = 2.0, 0.1, 600.0
"""What reading libraries in which nothing is found may take of all users together: so much at once, then this share of
the time. It keeps only those back who have had such a library in the last ten minutes."""
HELD_BACK = template(
    "source.libraries_held_back",
    "libraries of users who had useless ones of late wait: those may take {share:.0%} of the time",
)
TOLD_SECONDS = 60.0  # so long this is said after somebody had to wait
HUNG_SECONDS = 30.0
MAX_HUNG, HUNG_OF_ONE, HUNG_OF_ROOT = 64, 4, 16
"""Readers that have not come back for so long: of a user with so many no further library is read. Whoever attaches a
uprobe waits for the lock of the memory map of each process that maps the file, and a process can hold its lock."""
PASSING = (FileNotFoundError, ProcessLookupError, BlockingIOError)
"""ENOENT, ESRCH and EAGAIN say nothing about a file: the loader is still splitting the mapping, the process that was to
show the file has ended, or no child can be started at present."""
MANY_HUNG = template(
    "source.readers_hang", "{number:# reader|# readers} of libraries of user {user} {number:does|do} not come back"
)
Asked = tuple[int, int, str, int, int]  # user, process, path, and where it is mapped


@dataclass(frozen=True)
class MarksAttached:
    """Marks of one libtorch: which were found, and why not all of them ("" when nothing required is missing).

    ``refused``: it was not read, for want of room: there may be some later.
    """

    found: dict[str, bool] = field(default_factory=dict)
    reason: str | Message = ""
    refused: bool = False


class ReaderQueue:
    """Which user may begin to read a library: who has taken least of late goes before who has taken more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}  # when what a user has taken is made up for
        self._useless: dict[int, float] = {}  # by user: how long his useless library is remembered
        self._useless_until = 0.0  # when what those of all users took is made up for
        self._waiting: dict[int, tuple[float, float]] = {}  # by user: since when, and when he asked last
        self._held_back: float | None = None  # when a user was last, for what those of all users took

    def may_begin(self, uid: int, running: Counter[int]) -> bool:
        """``running``: how many readers each user has. One who may not begin now waits, and asks again."""
        now = self._clock()
        self._until = {user: until for user, until in self._until.items() if until > now}
        self._waiting = {user: at for user, at in self._waiting.items() if now - at[1] < WAITING_SECONDS}
        since, _ = self._waiting.get(uid, (now, now))
        spent = self._useless_until - now >= USELESS_ROOM_SECONDS / USELESS_SHARE
        places = READERS_OF_RETURNING if uid in self._until else MAX_READERS
        if spent and self._useless.get(uid, 0.0) > now:
            self._held_back = now
            return False
        if running[uid] >= (READERS_OF_ROOT if uid == ROOT else 1):
            self._waiting.pop(uid, None)  # for nobody but himself
            return False
        rank = self._until.get(uid, 0.0), since
        ahead = any((self._until.get(user, 0.0), at[0]) < rank for user, at in self._waiting.items() if user != uid)
        if ahead or running.total() >= places:
            self._waiting[uid] = since, now
            return False
        self._waiting.pop(uid, None)
        return True

    def took(self, uid: int, seconds: float, *, useless: bool) -> None:
        """A library of the user was read. ``useless``: nothing was found in it."""
        now = self._clock()
        if useless:
            seconds = max(seconds, LEAST_SECONDS)
            self._useless = {user: until for user, until in self._useless.items() if until > now}
            self._useless[uid] = now + USELESS_SECONDS
            self._useless_until = max(now, self._useless_until) + seconds / USELESS_SHARE
        self._until[uid] = max(now, self._until.get(uid, now)) + seconds / SHARE

    def refusal(self) -> str | Message:
        """Why somebody's library had to wait within the last minute; "" where none had to, but for its turn."""
        recent = self._held_back is not None and self._clock() - self._held_back < TOLD_SECONDS
        return HELD_BACK(share=USELESS_SHARE) if recent else ""


@dataclass
class LibraryRead:
    """A library on its way: opened, read and given its marks by a thread. ``attached`` None: another one is at it."""

    pid: int
    uid: int  # who answers for it
    start: int  # where the process maps it
    end: int
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    attached: MarksAttached | None = None
    error: OSError | None = None  # one of PASSING

    @property
    def done(self) -> bool:
        return self.ended is not None

    @property
    def hung(self) -> bool:
        return not self.done and time.monotonic() - self.began >= HUNG_SECONDS


class LibraryReaders:
    """A thread for each library that is read. The file is somebody else's: it may lie on a disk that hangs, or take its
    reader ten seconds, so nobody waits for the thread."""

    def __init__(self, work: Callable[[LibraryRead, str], MarksAttached | None]) -> None:
        """``work``: opens and marks what the process maps there. Raises OSError."""
        self._work = work
        self._queue = ReaderQueue()
        self.refusal = self._queue.refusal
        self._reads: dict[tuple[int, str], LibraryRead] = {}  # by user and path
        self._answers: dict[Asked, LibraryRead] = {}  # that nobody has asked for again yet

    def ask(self, pid: int, uid: int, path: str, start: int, end: int) -> MarksAttached | None:
        """None: not yet, ask again. Raises OSError (one of PASSING)."""
        self._take_done()
        answer = self._answers.pop((uid, pid, path, start, end), None)
        if answer is not None and answer.error is not None:
            raise answer.error
        if answer is not None and answer.attached is not None:
            return answer.attached
        if (uid, path) in self._reads:
            return None
        hung = Counter(other.uid for other in self._reads.values() if other.hung)
        if hung.total() >= MAX_HUNG or hung[uid] >= (HUNG_OF_ROOT if uid == ROOT else HUNG_OF_ONE):
            return MarksAttached({}, MANY_HUNG(number=hung[uid], user=uid), True)
        if self._queue.may_begin(uid, Counter(other.uid for other in self._reads.values()) - hung):
            one = self._reads[uid, path] = LibraryRead(pid, uid, start, end)
            threading.Thread(target=self._run, args=(one, path), name="library-reader", daemon=True).start()
        return None

    def hung(self) -> list[tuple[int, int]]:
        """(user, process) of each library whose reader does not come back."""
        return [(one.uid, one.pid) for one in self._reads.values() if one.hung]

    def _take_done(self) -> None:
        """Reads that have come back make room for others; what they found waits for whoever asked."""
        since = time.monotonic() - KEPT_SECONDS
        self._answers = {asked: one for asked, one in self._answers.items() if (one.ended or 0.0) > since}
        for (uid, path), one in list(self._reads.items()):
            if one.ended is not None:
                useless = one.attached is not None and not one.attached.refused and not any(one.attached.found.values())
                self._queue.took(uid, one.ended - one.began, useless=useless)
                self._answers[uid, one.pid, path, one.start, one.end] = self._reads.pop((uid, path))

    def _run(self, one: LibraryRead, path: str) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the loop's
        try:
            one.attached = self._work(one, path)
        except PASSING as error:
            one.error = error
        except OSError as error:
            one.attached = not_opened(path, error)
        finally:
            one.ended = time.monotonic()


def not_opened(path: str, error: OSError) -> MarksAttached:
    return MarksAttached({}, NOT_OPENED(path=path, error=error.strerror))
