"""What a process would find where it writes: how long its files are, and how much room there is.

Asked by helpers, for stat and statvfs on a hung mount do not return.
"""

from __future__ import annotations

import os

from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import FileSizeSample, SpaceSample, WrittenFile


class FilesystemStats:
    """Looks at paths as a process sees them."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc

    def room(self, pid: int, directory: str) -> SpaceSample | None:
        """On a directory's file system. None: the process or the directory is gone, or the file system does not
        answer."""
        answer = self._proc.ask(pid, "space", f"root{directory}")
        if not answer:
            return None
        available, free = (int(word) for word in answer.split())
        return SpaceSample(pid, directory, available, free if free >= 0 else None)

    def size(self, file: WrittenFile) -> FileSizeSample | None:
        """None: it is gone, its file system does not answer, or another file has its name now.

        The last because a name may lead anywhere: only the size of what the process was seen to write is told.
        """
        found = self._proc.file(file.pid, f"root{file.path}")
        if found is None:
            return None
        device, number, length = found
        same = (os.major(device) << 20 | os.minor(device), number) == (file.dev, file.ino)
        return FileSizeSample(file.pid, file.dev, file.ino, length) if same else None
