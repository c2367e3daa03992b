"""/run/trainprobe: what is published there, who owns it, and the lock that keeps a second daemon away.

The directory can be passed through by everybody and listed by the group trainprobe only: an owner reaches his own
report by its name, nobody sees what else is there.
"""

from __future__ import annotations

import fcntl
import grp
import os
from pathlib import Path

DIRECTORY = Path("/run/trainprobe")
STATE = Path("/var/lib/trainprobe")
"""Where the daemon keeps its history."""
GROUP = "trainprobe"


class AlreadyRunningError(Exception):
    """Another process holds the lock; ``pid`` is what it wrote there ("" unknown)."""

    def __init__(self, pid: str) -> None:
        super().__init__(f"a trainprobe daemon runs already (pid {pid or 'unknown'})")
        self.pid = pid


def group_id() -> int:
    """The group that may read what is published; -1 where there is no such group."""
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return -1


def make(directory: Path, *, mode: int = 0o751) -> None:
    """The directory, with its owner and mode, whether it was there or not."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(directory, 0, max(group_id(), 0))
    directory.chmod(mode)


def write(path: str, data: bytes, *, mode: int, uid: int = -1, gid: int = -1) -> None:
    """The whole file at once for every reader (rename), without waiting for a disk."""
    temporary = f"{path}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o600)
    except FileExistsError:  # of a daemon that was killed
        os.unlink(temporary)
        fd = os.open(temporary, flags, 0o600)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if (uid, gid) != (-1, -1):
                os.fchown(fd, uid, gid)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class Lock:
    """Held from ``take`` to ``drop``; the kernel drops it when the process ends in any other way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def take(self) -> None:
        """Raises AlreadyRunningError."""
        while self._fd < 0:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.read(fd, 20).decode("ascii", "replace").strip()
                os.close(fd)
                raise AlreadyRunningError(pid) from None
            if self._is_still_there(fd):
                self._fd = fd
            else:  # its last holder has removed it between our open and our lock
                os.close(fd)
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def drop(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _is_still_there(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(fd))
        except FileNotFoundError:
            return False
