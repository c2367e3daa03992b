"""The training's own clock: what really happened, from inside, independent of any observer.

Times are CLOCK_MONOTONIC nanoseconds. Rows are kept in memory and written once, at exit, so that keeping the truth
costs a step well under a microsecond and never touches a file in the middle of a run.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim import Optimizer

now = time.monotonic_ns


def process_start_ns() -> int:
    """When this process began (CLOCK_MONOTONIC, to a clock tick; suspended time would make it earlier)."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


class Truth:
    """Rows of one process; ``path`` gets them as JSON lines when the process ends normally or by an exception."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid = os.getpid()
        self._rows: list[dict[str, Any]] = []
        self._iterations: list[tuple[int, int, int, int, int, int, tuple[int | None, int | None]]] = []
        self._schedstat: int | None = None
        self._rows.append(
            {"row": "start", "pid": self._pid, "process": process_start_ns(), "mono": now(), "wall": time.time_ns()}
        )
        atexit.register(self.write)

    def iteration(
        self, step: int, begin: int, stepping: int, end: int, fetch_ns: int, fetch_unblocked_ns: int = 0
    ) -> None:
        """One iteration of the loop: [begin, end] with the wait for its data inside it.

        ``stepping`` is the instant just before the (first) optimiser's step; ``fetch_ns`` the time spent in getting
        the iteration's batches, of which it was ``fetch_unblocked_ns`` on a processor or waited for one.
        """
        self._iterations.append((step, begin, stepping, end, fetch_ns, fetch_unblocked_ns, self._scheduled()))

    def unblocked(self) -> int:
        """Nanoseconds that this thread has been on a processor, or runnable without one, so far."""
        ran, queued = self._scheduled()
        return (ran or 0) + (queued or 0)

    def _scheduled(self) -> tuple[int | None, int | None]:
        """Nanoseconds that this thread has been on a processor, and runnable without one; None: not counted here."""
        try:
            if self._schedstat is None:
                self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
            _, queued, _ = os.pread(self._schedstat, 64, 0).split()
            return time.thread_time_ns(), int(queued)  # schedstat's own first figure is as old as the last tick
        except (OSError, ValueError):
            return None, None

    def planted(self, fault: int, cause: str, begin: int, end: int, **facts: Any) -> None:
        """A fault that the driver itself carried out."""
        self._rows.append({"row": "planted", "fault": fault, "cause": cause, "begin": begin, "end": end, **facts})

    def phase(self, name: str, begin: int, end: int) -> None:
        self._rows.append({"row": "phase", "phase": name, "begin": begin, "end": end})

    def count_steps(self, *optimizers: Optimizer) -> None:
        """Counts the optimisers' steps as they begin: a worker's death is raised wherever the driver is.

        That is also inside a step, or between it and ``iteration``: the training has then taken one step more than it
        could note.
        """
        row: dict[str, Any] = {"row": "count", "optimizer_steps": 0}
        self._rows.append(row)

        def begin(*_: object) -> None:
            row["optimizer_steps"] += 1

        for optimizer in optimizers:
            optimizer.register_step_pre_hook(begin)

    def count(self, **counts: int) -> None:
        """Totals that are known only at the end, such as ``optimizer_steps``."""
        self._rows.append({"row": "count", **counts})

    def write(self) -> None:
        """Idempotent; a forked child that inherited the rows writes nothing."""
        if os.getpid() != self._pid or not self._rows:
            return
        rows, self._rows = self._rows, []
        names = ("step", "begin", "stepping", "end", "fetch", "fetch_unblocked", "ran", "queued")
        rows.extend(
            {"row": "iteration", **dict(zip(names, (*figures, *scheduled)))} for *figures, scheduled in self._iterations
        )
        rows.append({"row": "end", "mono": now(), "wall": time.time_ns()})
        with open(self.path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def worker_planted(path: str, fault: int, cause: str, begin: int, end: int, **facts: Any) -> None:
    """A rare fault carried out in a worker process, which may not live to its end: one line, appended at once."""
    row = {"row": "worker", "fault": fault, "cause": cause, "begin": begin, "end": end, "pid": os.getpid(), **facts}
    line = (json.dumps(row) + "\n").encode()
    descriptor = os.open(path + ".workers", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
