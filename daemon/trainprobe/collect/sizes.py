"""How long files have grown, asked beside the loop: stat on a hung mount does not return."""

from __future__ import annotations

import os

from trainprobe.collect.patience import Patience
from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import FileSizeSample, WrittenFile


class Sizes:
    """Asks for the size of files that a process writes."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._patience = Patience()

    def read(self, file: WrittenFile) -> FileSizeSample | None:
        """None: it is gone, its file system does not answer, or another file has its name now.

        The last because a name may lead anywhere: only the size of what the process was seen to write is told.
        """
        place = f"{self._proc.root}/{file.pid}/root{file.path}"
        answer = self._patience.read(file.pid, lambda: _asked(place, file))
        return FileSizeSample(file.pid, file.dev, file.ino, int(answer)) if answer else None


def _asked(place: str, file: WrittenFile) -> bytes | None:
    try:
        found = os.stat(place)
    except (OSError, ValueError):
        return None
    same = (os.major(found.st_dev) << 20 | os.minor(found.st_dev), found.st_ino) == (file.dev, file.ino)
    return b"%d" % found.st_size if same else None
