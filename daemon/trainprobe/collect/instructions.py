"""How many instructions threads execute in user space: the processor's own counter, open only while it is asked for.

What a step computes is as many instructions on a machine that is slow today as on one that is not: four equal trainings
differed by 0.01 %, while their steps differed by 5 %. A counter costs 15 us each time its thread leaves the processor
and comes back (in a virtual machine), so it is open seldom and not for long. Many virtual machines have none, which is
no fault.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Sequence

from trainprobe.collect.procfs import SMALL, Proc
from trainprobe.model.moment import NS
from trainprobe.model.sample import CountSample

REFUSED_NS = 600 * NS  # after which a machine that refused is asked again
THREADS = 16  # counted at once
_CALL = {"x86_64": 298, "aarch64": 241}  # perf_event_open
_READING = struct.Struct("=QQQ")  # count, ns enabled, ns running


class Instructions:
    """Counters of threads, by (pid, tid)."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._call = _CALL.get(os.uname().machine)
        self._open: dict[tuple[int, int], tuple[int, int, int | None]] = {}
        """Descriptor, since when, and how often the thread had been switched to by then."""
        self._refused_ns: int | None = None

    def count(self, threads: Sequence[tuple[int, int]]) -> None:
        """From now on these are counted, and no others."""
        wanted = threads[:THREADS]
        for thread in [thread for thread in self._open if thread not in wanted]:
            self._drop(thread)
        for thread in wanted:
            if thread not in self._open:
                self._begin(thread)

    def read(self) -> tuple[CountSample, ...]:
        """Each one's count since it began; of a thread that is gone, or whose counter was shared, nothing."""
        return tuple(sample for thread in list(self._open) if (sample := self._sample(thread)) is not None)

    def close(self) -> None:
        self.count(())

    def _begin(self, thread: tuple[int, int]) -> None:
        now = time.monotonic_ns()
        if self._call is None or (self._refused_ns is not None and now < self._refused_ns + REFUSED_NS):
            return
        opened = self._proc.counter(*thread, self._call)
        if isinstance(opened, int):
            self._open[thread] = (opened, time.monotonic_ns(), self._switches(thread))
        elif opened not in (None, b"%d" % errno.ESRCH):
            self._refused_ns = now

    def _sample(self, thread: tuple[int, int]) -> CountSample | None:
        descriptor, since, before = self._open[thread]
        try:
            count, enabled, running = _READING.unpack(os.read(descriptor, _READING.size))
        except (OSError, struct.error):
            self._drop(thread)
            return None
        if running < enabled or not count:  # others count too, and it had to wait for its turn
            return None
        now, switches = time.monotonic_ns(), self._switches(thread)
        switched = None if before is None or switches is None else switches - before
        return CountSample(*thread, since, now, count, switched)

    def _switches(self, thread: tuple[int, int]) -> int | None:
        """How often it came on a processor; None: it is gone, or the kernel does not say."""
        pid, tid = thread
        fields = (self._proc.read(pid, f"task/{tid}/schedstat", SMALL) or b"").split()
        return int(fields[2]) if len(fields) > 2 else None

    def _drop(self, thread: tuple[int, int]) -> None:
        os.close(self._open.pop(thread)[0])
