"""Who uses the processors: asked only while a training waits for one, and seldom (a look costs 20 us a process)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, zip_longest

from trainprobe.collect.procfs import KERNEL_THREAD, Proc
from trainprobe.model.moment import NS
from trainprobe.model.sample import RivalSample

SHOWN = 8
LEAST = 0.05  # of a processor
PROCESSES = 4096
FIRST_NS, PAUSE_NS = NS // 2, 10 * NS
"""Between the first look and the second, and between further ones."""
STALE_NS = 30 * NS


class Rivals:
    """Processor time of all processes between two looks."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._before: dict[tuple[int, int], int] = {}
        self._at_ns = 0
        self._fresh = False  # the last look had nothing to compare with

    def _some(self) -> Sequence[int]:
        """All processes; of too many each user's in turn: one who has thousands hides nobody's."""
        pids = self._proc.pids()
        if len(pids) <= PROCESSES:
            return pids
        of: dict[int, list[int]] = {}
        for pid in pids:
            of.setdefault(self._proc.pool.owner(pid), []).append(pid)
        in_turn = (pid for each in zip_longest(*of.values()) for pid in each if pid is not None)
        return list(islice(in_turn, PROCESSES))

    def read(self, now_ns: int) -> tuple[RivalSample, ...]:
        """The busiest since the last look. Nothing at the first one, after a long time, and when it is too soon."""
        spent = now_ns - self._at_ns
        if self._before and spent < (FIRST_NS if self._fresh else PAUSE_NS):
            return ()
        if spent > STALE_NS:
            self._before = {}
        self._fresh = not self._before
        found: list[RivalSample] = []
        seen: dict[tuple[int, int], int] = {}
        for pid, stat in self._proc.stats(self._some()).items():
            if stat.dead:
                continue
            key = (pid, stat.ticks)
            seen[key] = stat.cpu_ns
            began = self._proc.started_ns(stat.ticks)
            used = stat.cpu_ns - self._before.get(key, 0 if began >= self._at_ns else stat.cpu_ns)
            if self._before and spent > 0 and used >= LEAST * spent:
                kernel = bool(stat.flags & KERNEL_THREAD)
                found.append(RivalSample(pid, stat.comm, used / spent, stat.threads, kernel))
        self._before, self._at_ns = seen, now_ns
        return tuple(sorted(found, key=lambda rival: -rival.cpus)[:SHOWN])
