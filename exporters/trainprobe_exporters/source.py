"""The daemon's snapshot: a file that is replaced by rename; read when it has changed, with every failure told."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from trainprobe.model.amounts import span
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Report
from trainprobe.model.vocabulary import REPORT_STALE_SECONDS

MAX_BYTES = 4 * 1024 * 1024  # the daemon keeps its snapshot below 2 MiB

_Signature = tuple[int, int, int, int]  # device, inode, mtime, size


class SnapshotError(Exception):
    """The snapshot cannot be had; the message says why and what to do."""


@dataclass(frozen=True)
class SnapshotState:
    report: Report | None  # the latest one that could be read
    is_new: bool
    problem: str  # why the report is not of now; empty: it is
    now: float  # UNIX time by the report's clock, which the host's may differ from since: it was set


class SnapshotReader:
    """Looks at the snapshot; a look never raises."""

    def __init__(self, path: Path, decode: Callable[[bytes], Report]) -> None:
        self.path = path
        self.errors = 0
        self.read_seconds: float | None = None
        self._decode = decode
        self._seen: _Signature | None = None
        self._report: Report | None = None
        self._unusable = ""  # what is wrong with the file that was seen last

    def read(self, at: Moment) -> SnapshotState:
        is_new, problem = False, ""
        try:
            is_new = self._read_if_changed()
            problem = self._unusable
        except SnapshotError as error:
            problem = str(error)
        if self._report is None:
            return SnapshotState(None, is_new, problem, at.wall_ns / NS)
        age = self._report.age(at)
        return SnapshotState(self._report, is_new, problem or _staleness(age), self._report.generated + age)

    def text(self) -> bytes:
        """The snapshot as it lies there. Raises SnapshotError."""
        return self._bytes()[0]

    def _read_if_changed(self) -> bool:
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise self._unreadable(error) from None
        if _signature(status) == self._seen:
            return False
        begun = time.monotonic()
        text, self._seen = self._bytes()
        try:
            self._report, self._unusable = self._decode(text), ""
        except Exception as error:
            # Whatever a broken snapshot does to the decoder, the exporter lives on and says so.
            self.errors += 1
            self._unusable = f"{self.path} holds no report: {type(error).__name__}: {str(error)[:200]}"
            return False
        self.read_seconds = time.monotonic() - begun
        return True

    def _bytes(self) -> tuple[bytes, _Signature]:
        try:
            # Not to hang on a pipe that somebody put there.
            with open(self.path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise self._counted(f"{self.path} is no regular file")
                text = file.read(MAX_BYTES + 1)
        except OSError as error:
            self.errors += 1
            raise self._unreadable(error) from None
        if len(text) > MAX_BYTES:
            raise self._counted(f"{self.path} is larger than {MAX_BYTES} bytes: not the daemon's")
        return text, _signature(status)

    def _counted(self, what: str) -> SnapshotError:
        self.errors += 1
        return SnapshotError(what)

    def _unreadable(self, error: OSError) -> SnapshotError:
        if isinstance(error, FileNotFoundError):
            how = "start it: systemctl start trainprobe, or trainprobe daemon"
            return SnapshotError(f"{self.path} is absent: the daemon does not run ({how})")
        if isinstance(error, PermissionError):
            return SnapshotError(f"{self.path} may not be read: run the exporter in the group trainprobe")
        return SnapshotError(f"{self.path} cannot be read: {error.strerror}")


def _staleness(age: float) -> str:
    if age <= REPORT_STALE_SECONDS:
        return ""
    return f"the latest report is {span(age)} old: the daemon hangs or was killed (systemctl status trainprobe)"


def _signature(status: os.stat_result) -> _Signature:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
