"""Reads that may never return, done beside the loop.

The readers of /proc/PID/{cmdline,environ,maps,mem,smaps_rollup} wait for the lock of the process's memory map, those
of {stat,wchan,syscall,io} and of the files above for the lock of its execve(2). Where a thread of it holds such a lock
while its file system hangs, the reader hangs too (as ``ps`` does), and any user can bring that about. So these reads
are done by a thread with a time limit; one that does not come back is left behind until it does.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

LIMIT_SECONDS = 0.25
AGAIN_SHARE = 5
"""A read of one process is waited for so much shorter while others of the same user hang."""
LEFT_BEHIND, OF_ONE_USER, OF_ROOT = 64, 4, 16
"""Threads. Of a user with so many that hang nothing is read until one returns: a user can make reads hang at will, and
must not stop those of others. Containers run as root, many different ones on one host."""
SLOW_SECONDS = 0.05
SLOW_ROOM_SECONDS, SLOW_SHARE = 0.5, 0.05
"""What reads slower than that may take of the loop, for each user but root: so much at once, and this share."""

ROOT, NOBODY = 0, -1
T = TypeVar("T")


class Patience:
    """Reads with a limit, one at a time. A pid whose read hangs is not asked again until that read returns."""

    def __init__(
        self,
        limit_seconds: float = LIMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        uid_of: Callable[[int], int] = lambda _pid: ROOT,
    ) -> None:
        """``uid_of``: the user who answers for a process; it raises OSError where there is none."""
        self._limit = limit_seconds
        self._clock = clock
        self._uid_of = uid_of
        self._worker: _Worker | None = None
        self._hanging: dict[int, _Worker] = {}
        self._slow_until: dict[int, float] = {}  # by uid: when the time of its slow reads is made up for

    def read(self, pid: int, job: Callable[[], T | None]) -> T | None:
        """What the job returns; None when it takes too long, or when others of the same user have."""
        now, uid = self._clock(), self._owner(pid) if self._slow_until else ROOT
        if self._slow_until.get(uid, 0.0) - now >= SLOW_ROOM_SECONDS / SLOW_SHARE:
            return None
        found = self.each((pid,), lambda _: job())
        took = self._clock() - now
        if took >= SLOW_SECONDS and (uid := self._owner(pid)) != ROOT:
            self._slow_until = {user: until for user, until in self._slow_until.items() if until > now}
            self._slow_until[uid] = max(now, self._slow_until.get(uid, 0.0)) + took / SLOW_SHARE
        return found.get(pid)

    def each(self, pids: Iterable[int], job: Callable[[int], T | None]) -> dict[int, T]:
        """The same for many processes, for little more than the price of one."""
        found: dict[int, T] = {}
        left = list(pids)
        while left := self._readable(left):
            worker = self._worker = self._worker or _Worker()
            in_time = worker.do(left, job, self._limit_of(left))
            found.update(worker.found)
            if in_time:
                break
            pid, self._worker = worker.at, None
            worker.leave(self._owner(pid))
            self._hanging[pid] = worker
            left = left[left.index(pid) + 1 :]
        return found

    def _owner(self, pid: int) -> int:
        try:
            return self._uid_of(pid)
        except OSError:
            return NOBODY

    def _limit_of(self, pids: list[int]) -> float:
        hung = {worker.uid for worker in self._hanging.values()} if len(pids) == 1 else set()
        return self._limit / AGAIN_SHARE if hung and self._owner(pids[0]) in hung else self._limit

    def hanging(self) -> tuple[int, ...]:
        """Processes that cannot be read now."""
        return tuple(pid for pid, worker in self._hanging.items() if worker.busy)

    def _readable(self, pids: list[int]) -> list[int]:
        self._hanging = {pid: worker for pid, worker in self._hanging.items() if worker.busy}
        if not self._hanging:
            return pids
        if len(self._hanging) >= LEFT_BEHIND:
            return []
        users = Counter(worker.uid for worker in self._hanging.values())
        full = {uid for uid, count in users.items() if count >= (OF_ROOT if uid == ROOT else OF_ONE_USER)}
        return [pid for pid in pids if pid not in self._hanging and not (full and self._owner(pid) in full)]


class _Worker:
    """A thread that does one job after the other, until it is left behind."""

    def __init__(self) -> None:
        self.busy = False
        self.uid = ROOT  # of the process that it was left behind with
        self.at = 0  # the pid that is being read
        self.found: dict[int, Any] = {}
        self._left = False
        self._jobs: queue.SimpleQueue[tuple[list[int], Callable[[int], Any]] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="proc-reader", daemon=True).start()

    def do(self, pids: list[int], job: Callable[[int], Any], seconds: float) -> bool:
        """``found`` has the answers; False: not all of them came in time, and this worker is of no more use."""
        self.busy, self.at, self.found = True, pids[0], {}
        self._jobs.put((pids, job))
        try:
            self._done.get(timeout=seconds)
        except queue.Empty:
            self.found = dict(self.found)  # later answers are dropped
            return False
        return True

    def leave(self, uid: int) -> None:
        """End with the read that hangs."""
        self._left, self.uid = True, uid
        self._jobs.put(None)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the loop's: here they would kill
        while (asked := self._jobs.get()) is not None:
            (pids, job), found = asked, self.found
            for self.at in pids:
                if (answer := job(self.at)) is not None:
                    found[self.at] = answer
                if self._left:
                    break
            self.busy = False
            self._done.put(None)
