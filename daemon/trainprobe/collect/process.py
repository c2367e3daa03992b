"""Samples of watched processes: cheap fields each time, proportional memory seldom and for few at a time.

Measured on a process with torch (1500 mappings): all cheap fields together 0.05 ms; smaps_rollup 2.5 ms, 3 ms at 8 GB
resident, with the process's memory map locked for reading. So the latter is asked every 10 s at most (every 3 s while
a limit is near), for PSS_AT_ONCE processes a round, and no process costs more than PSS_SHARE of a processor. (psutil is
no cheaper: 0.07 and 2.5 ms.)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from trainprobe.collect.procfs import Proc, Rollup
from trainprobe.model.moment import NS
from trainprobe.model.sample import ProcessSample

PSS_EVERY_NS = 10 * NS
PSS_NEAR_NS = 3 * NS
PSS_AT_ONCE = 2
PSS_NEAR_AT_ONCE = 6
PSS_SHARE = 0.001


class Watched(Protocol):
    """A process to be sampled; (pid, ticks) is its identity."""

    @property
    def pid(self) -> int: ...
    @property
    def ticks(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def role(self) -> str: ...


@dataclass(slots=True)
class _Memory:
    rollup: Rollup | None = None
    due_ns: int = 0
    fd_limit: int | None = None


class Processes:
    """Reads samples; remembers each process's last proportional memory, which a sample repeats until the next one."""

    def __init__(self, proc: Proc, pss_every_ns: int = PSS_EVERY_NS, pss_at_once: int = PSS_AT_ONCE) -> None:
        self._proc = proc
        self._every = pss_every_ns
        self._at_once = pss_at_once
        self._memory: dict[tuple[int, int], _Memory] = {}

    def read(self, watched: Iterable[Watched], now_ns: int, *, near: bool = False) -> tuple[ProcessSample, ...]:
        """One sample for each process that still lives and is still the same one. ``near``: memory runs short."""
        samples, alive = [], {}
        wanted = list(watched)
        self._measure(wanted, now_ns, near)
        for process in wanted:
            stat = self._proc.stat(process.pid)
            if stat is None or stat.dead or stat.ticks != process.ticks:
                continue
            key = (process.pid, process.ticks)
            memory = alive[key] = self._memory.get(key) or _Memory()
            status = self._proc.status(process.pid)
            rollup = memory.rollup
            samples.append(
                ProcessSample(
                    pid=process.pid,
                    ppid=stat.ppid,
                    role=process.role,
                    started_ns=process.started_ns,
                    cpu_ns=stat.cpu_ns,
                    rss_bytes=stat.rss_bytes,
                    pss_bytes=rollup.pss_bytes if rollup else None,
                    swap_bytes=status.swap_bytes if status else None,
                    shm_bytes=rollup.shm_bytes if rollup else None,
                    open_fds=self._proc.open_fds(process.pid),
                    max_fds=memory.fd_limit,
                    threads=stat.threads,
                    read_bytes=self._proc.read_bytes(process.pid),
                    comm=stat.comm,
                    private_bytes=rollup.private_bytes if rollup else None,
                )
            )
        self._memory = alive
        return tuple(samples)

    def _measure(self, wanted: list[Watched], now_ns: int, near: bool) -> None:
        """Proportional memory of those that wait longest."""
        due = []
        at_once = PSS_NEAR_AT_ONCE if near else self._at_once
        soon = now_ns - PSS_NEAR_NS + self._every if near else now_ns
        for process in wanted:
            memory = self._memory.setdefault((process.pid, process.ticks), _Memory(due_ns=now_ns))
            if memory.due_ns <= soon:
                due.append((memory.due_ns, process.pid, memory))
        for _, pid, memory in sorted(due, key=lambda item: item[:2])[:at_once]:
            began = time.perf_counter_ns()
            memory.rollup = self._proc.rollup(pid) or memory.rollup
            took = time.perf_counter_ns() - began
            memory.fd_limit = self._proc.fd_limit(pid)
            memory.due_ns = now_ns + max(self._every, int(took / PSS_SHARE))
