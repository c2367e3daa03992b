"""What `trainprobe run` and `attach` watch themselves, so that the daemon leaves it alone: /run/trainprobe/claims/PID.

A claim is a locked file: the kernel drops the lock when its owner ends, however it ends, so a stale claim is known by
the lock that can be taken. Only root can open it: whoever can open a file can lock it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from trainprobe.collect.procfs import Proc
from trainprobe.runtime.publishing import rundir

ANCESTORS_LIMIT = 64


class WatchLock:
    """Says until ``release`` that ``pid`` and its descendants are ours."""

    def __init__(self, pid: int, directory: Path = rundir.DIRECTORY) -> None:
        self._above = directory
        self._directory = directory / "claims"
        if not directory.is_dir():
            rundir.make_directory(directory)
        self._directory.mkdir(mode=0o755, exist_ok=True)
        self._path = self._directory / str(pid)
        temporary = self._directory / f".{pid}.{os.getpid()}"
        self._fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        temporary.rename(self._path)  # locked before anybody can find it

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)
        for directory in (self._directory, self._above):
            try:
                directory.rmdir()
            except OSError:
                return  # in use by another claim, or by the daemon


class WatchLocks:
    """The daemon's view of them."""

    def __init__(self, parent: Callable[[int], int | None], directory: Path = rundir.DIRECTORY) -> None:
        """``parent``: the parent pid of a process, None when it is gone."""
        self._directory = directory / "claims"
        self._parent = parent

    def covers(self, pid: int) -> bool:
        """Whether the process or one of its ancestors is claimed by somebody who still lives."""
        claimed = self.current()
        for _ in range(ANCESTORS_LIMIT if claimed else 0):
            if pid in claimed:
                return True
            above = self._parent(pid)
            if not above or above == pid:
                return False
            pid = above
        return False

    def current(self) -> set[int]:
        """The claimed pids; stale claims are removed."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return set()
        return {int(name) for name in names if name.isascii() and name.isdecimal() and self._is_held(name)}

    def _is_held(self, name: str) -> bool:
        path = self._directory / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(fd)


def parents(proc: Proc) -> Callable[[int], int | None]:
    """The parent pids that this procfs tells."""

    def parent(pid: int) -> int | None:
        stat = proc.stat(pid)
        return stat.ppid if stat else None

    return parent
