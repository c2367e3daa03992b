"""Reads that may never return, done beside the loop.

/proc/PID/{maps,cmdline,environ,smaps_rollup} take the memory map's lock of the process that is read. Where a thread of
it holds that lock while its file system hangs, the reader hangs too (as ``ps`` does). So these reads are done by a
thread with a time limit; one that does not come back is left behind until it does.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable

LIMIT_SECONDS = 0.25
LEFT_BEHIND = 4  # threads; when so many hang, nothing is asked any more until one returns

Job = Callable[[], bytes | None]


class Patience:
    """Runs one read at a time with a limit. A pid whose read hangs is not asked again until that read returns."""

    def __init__(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._limit = limit_seconds
        self._worker: _Worker | None = None
        self._hanging: dict[int, _Worker] = {}

    def read(self, pid: int, job: Job) -> bytes | None:
        """What the job returns; None when it takes too long."""
        self._hanging = {p: worker for p, worker in self._hanging.items() if worker.busy}
        if pid in self._hanging or len(self._hanging) >= LEFT_BEHIND:
            return None
        worker = self._worker = self._worker or _Worker()
        done, data = worker.do(job, self._limit)
        if not done:
            self._hanging[pid] = worker
            self._worker = None
            worker.stop()
        return data

    def hanging(self) -> tuple[int, ...]:
        """Processes whose memory map cannot be read now."""
        return tuple(pid for pid, worker in self._hanging.items() if worker.busy)


class _Worker:
    """A thread that does one job after the other and ends when told to."""

    def __init__(self) -> None:
        self.busy = False
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="proc-reader", daemon=True).start()

    def do(self, job: Job, seconds: float) -> tuple[bool, bytes | None]:
        self.busy = True
        self._jobs.put(job)
        try:
            return True, self._answers.get(timeout=seconds)
        except queue.Empty:
            return False, None

    def stop(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the loop's: here they would kill
        while (job := self._jobs.get()) is not None:
            data = job()
            self.busy = False
            self._answers.put(data)
