"""What a process would find where it writes: how long its files are, and how much room there is.

Asked beside the loop, for stat and statvfs on a hung mount do not return.
"""

from __future__ import annotations

import os

from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import FileSizeSample, SpaceSample, WrittenFile


class Places:
    """Looks at paths as a process sees them."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc

    def room(self, pid: int, directory: str) -> SpaceSample | None:
        """On a directory's file system. None: the process or the directory is gone, or the file system does not
        answer."""
        place = self._seen_by(pid, directory)
        answer = self._proc.patient(pid, lambda: _room(place))
        if not answer:
            return None
        available, free = (int(word) for word in answer.split())
        return SpaceSample(pid, directory, available, free if free >= 0 else None)

    def size(self, file: WrittenFile) -> FileSizeSample | None:
        """None: it is gone, its file system does not answer, or another file has its name now.

        The last because a name may lead anywhere: only the size of what the process was seen to write is told.
        """
        place = self._seen_by(file.pid, file.path)
        answer = self._proc.patient(file.pid, lambda: _size(place, file))
        return FileSizeSample(file.pid, file.dev, file.ino, int(answer)) if answer else None

    def _seen_by(self, pid: int, path: str) -> str:
        return f"{self._proc.root}/{pid}/root{path}"


def _room(place: str) -> bytes | None:
    try:
        space = os.statvfs(place)
    except (OSError, ValueError):
        return None
    free = space.f_favail if space.f_files else -1
    return b"%d %d" % (space.f_bavail * space.f_frsize, free)


def _size(place: str, file: WrittenFile) -> bytes | None:
    try:
        found = os.stat(place)
    except (OSError, ValueError):
        return None
    same = (os.major(found.st_dev) << 20 | os.minor(found.st_dev), found.st_ino) == (file.dev, file.ino)
    return b"%d" % found.st_size if same else None
