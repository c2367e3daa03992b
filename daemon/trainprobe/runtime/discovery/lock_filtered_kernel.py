"""The kernel as the daemon's targets see it: what a `trainprobe run` has claimed cannot be watched."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.bpf.attach.library_readers import MarksAttached
from trainprobe.model.event import FileEvent
from trainprobe.runtime.discovery.targets import WatchableKernel
from trainprobe.runtime.discovery.watch_locks import WatchLocks


class ClaimedError(OSError):
    """Somebody else watches this process."""


class Unclaimed:
    """Passes everything on, and refuses to watch what is claimed."""

    def __init__(self, kernel: WatchableKernel, claims: WatchLocks) -> None:
        self._kernel = kernel
        self._claims = claims

    def watch(self, pid: int) -> None:
        """Raises ClaimedError."""
        if self._claims.covers(pid):
            raise ClaimedError(f"process {pid} is watched by another trainprobe")
        self._kernel.watch(pid)

    def unwatch(self, pid: int) -> None:
        self._kernel.unwatch(pid)

    def ended(self, pid: int, at_ns: int) -> Sequence[FileEvent]:
        return self._kernel.ended(pid, at_ns)

    def attach_marks(self, pid: int, path: str, start: int, end: int) -> MarksAttached | None:
        return self._kernel.attach_marks(pid, path, start, end)

    def clock_by_gpu(self, pid: int) -> None:
        self._kernel.clock_by_gpu(pid)
