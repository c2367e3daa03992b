"""Room on the file systems that checkpoints go to, asked beside the loop: statvfs on a hung mount does not return."""

from __future__ import annotations

import os

from trainprobe.collect.patience import Patience
from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import SpaceSample


class Spaces:
    """Asks for the room that a process would find in a directory of its own."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._patience = Patience()

    def read(self, pid: int, directory: str) -> SpaceSample | None:
        """None: the process or the directory is gone, or the file system does not answer."""
        place = f"{self._proc.root}/{pid}/root{directory}"
        answer = self._patience.read(pid, lambda: _asked(place))
        if not answer:
            return None
        available, free = (int(word) for word in answer.split())
        return SpaceSample(pid, directory, available, free if free >= 0 else None)

    def hanging(self) -> tuple[int, ...]:
        """Processes whose file system does not answer."""
        return self._patience.hanging()


def _asked(place: str) -> bytes | None:
    try:
        space = os.statvfs(place)
    except OSError:
        return None
    free = space.f_favail if space.f_files else -1
    return b"%d %d" % (space.f_bavail * space.f_frsize, free)
