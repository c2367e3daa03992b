"""Each user's own report, below the directory of all reports: root's file, which that user can read and not change."""

from __future__ import annotations

import errno
from pathlib import Path

from trainprobe.model.message import Message, template
from trainprobe.model.report import Source
from trainprobe.runtime.publishing import rundir

USERS = "users"
NO_ACLS = template(
    "owner_reports.no_acls",
    "{directory} is on a file system without POSIX ACLs: a user cannot read the report of his own runs",
)
REMEDY = template(
    "owner_reports.remedy",
    "a file system with POSIX ACLs there (ZFS: zfs set acltype=posixacl), or: sudo trainprobe report",
)()


def without_acls(directory: Path) -> Message:
    """Why no user gets a file below ``directory``."""
    return NO_ACLS(directory=str(directory))


class OwnerReports:
    """Files by uid. Every method raises OSError."""

    def __init__(self, above: Path) -> None:
        self._directory = above / USERS
        self.source = Source("up")
        """Whether owners get their reports, as of the last ``write``."""

    def open(self) -> None:
        """Make the directory: passed through by everybody, so that an owner reaches his file by its name."""
        rundir.make_directory(self._directory, mode=0o711)

    def path(self, uid: int) -> Path:
        return self._directory / f"{uid}.json"

    def write(self, uid: int, data: bytes) -> bool:
        """Put the file in place. False, and no file, where the file system has no ACLs: there is no other safe way.

        The user's own file could be grown by him, and one for his group is for all of its members.
        """
        try:
            rundir.write(str(self.path(uid)), data, mode=0o600, reader=uid)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            self.forget(uid)
            self.source = Source.of("unavailable", without_acls(self._directory), REMEDY)
            return False
        self.source = Source("up")
        return True

    def forget(self, uid: int) -> None:
        self.path(uid).unlink(missing_ok=True)

    def uids(self) -> list[int]:
        names = (path.name.removesuffix(".json") for path in self._directory.iterdir())
        return [int(name) for name in names if name.isascii() and name.isdecimal()]

    def close(self) -> None:
        if self._directory.is_dir():
            self.clear()
            self._directory.rmdir()

    def clear(self) -> None:
        for path in self._directory.iterdir():
            path.unlink(missing_ok=True)
