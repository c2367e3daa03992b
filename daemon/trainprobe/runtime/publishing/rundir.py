"""/run/trainprobe: what is published there, who owns it, and the lock that keeps a second daemon away.

The directory can be passed through by everybody and listed by the group trainprobe only: an owner reaches his own
report by its name, nobody sees what else is there. Every file in it is root's: who owns a file can grow it, and fill
the file system that all reports share.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import struct
from pathlib import Path

from trainprobe.text.saying import SaidError, saying

DIRECTORY = Path("/run/trainprobe")
STATE = Path("/var/lib/trainprobe")
"""Where the daemon keeps its history."""
GROUP = "trainprobe"


class AlreadyRunningError(SaidError):
    """Another process holds the lock."""

    def __init__(self, pid: str) -> None:
        shown = pid or saying("unknown")
        super().__init__(saying("a trainprobe daemon runs already (pid {pid})", pid=shown))


def group_id() -> int:
    """The group that may read what is published; -1 where there is no such group."""
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return -1


def make_directory(directory: Path, *, mode: int = 0o751) -> None:
    """The directory, with its owner and mode, whether it was there or not."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(directory, 0, max(group_id(), 0))
    directory.chmod(mode)


def write(path: str, data: bytes, *, mode: int, gid: int = -1, reader: int | None = None) -> None:
    """The whole file at once for every reader (rename), without waiting for a disk.

    ``reader``: a uid that may read it besides, by a POSIX ACL. Raises OSError, ENOTSUP where the file system has none.
    """
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
            if gid != -1:
                os.fchown(fd, -1, gid)
            os.fchmod(fd, mode)
            if reader is not None:
                os.setxattr(fd, _ACL, _readable_by(reader))
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


_ACL = "system.posix_acl_access"
_NO_ID = 0xFFFFFFFF


def _readable_by(uid: int) -> bytes:
    """An ACL in the kernel's form (posix_acl_xattr_header, entries): rw for the owner, r for ``uid``, else nothing."""
    owner, user, group, mask, other = 0x01, 0x02, 0x04, 0x10, 0x20
    entries = ((owner, 6, _NO_ID), (user, 4, uid), (group, 0, _NO_ID), (mask, 4, _NO_ID), (other, 0, _NO_ID))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def has_acls(path: Path) -> bool:
    """Whether the file system of an existing file has POSIX ACLs."""
    try:
        os.getxattr(path, _ACL)
    except OSError as error:
        return error.errno != errno.ENOTSUP
    return True


class Lock:
    """Held from ``acquire`` to ``release``; the kernel drops it when the process ends in any other way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def acquire(self) -> None:
        """Raises AlreadyRunningError."""
        while self._fd < 0:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _is_still_there(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(fd))
        except FileNotFoundError:
            return False
