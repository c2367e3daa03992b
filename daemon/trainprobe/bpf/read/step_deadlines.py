# SPDX-License-Identifier: Apache-2.0
"""How long a step may take, as the kernel knows it: it wakes the reader of the ring when a step takes longer.

A timer finds a step that is still open; it runs only while a thread has a limit. For a step that has ended late the
program that emits its row wakes the reader, where that is asked for.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Mapping
from ctypes import c_uint32, c_uint64

from trainprobe.bpf import abi
from trainprobe.bpf.load.loader import Loaded

STOPPED_NS = 5 * abi.CLOCK_TICK_NS  # without a tick: its processor was taken away
_ENABLE, _DISABLE = 0x2400, 0x2401  # PERF_EVENT_IOC_*
_NOBODY = c_uint32(0)


class Alarms:
    """The kernel's tables of them, and its clock."""

    def __init__(self, loaded: Loaded) -> None:
        self._limits = loaded.map("alarms", c_uint32, abi.Alarm)
        self._threads = loaded.map("alarm_threads", c_uint32, c_uint32)
        self._seen = loaded.map("clock_seen", c_uint32, c_uint64)
        self._clock = loaded.attached.get(abi.CLOCK)
        self._set: dict[int, tuple[int, bool, bool]] = {}
        self._begun_ns = 0
        self._run(False)

    def set(self, limits: Mapping[int, int], *, ended: bool, together: bool) -> bool:
        """Nanoseconds from a row that ends a step to when the next one is late, by thread; in place of those before.

        ``ended``: late steps that have ended wake, too; ``together``: others may be told together. False: they cannot
        be kept, and none is.
        """
        wanted = {tid: (limit, ended, together) for tid, limit in limits.items()} if self._usable(limits) else {}
        if wanted != self._set:
            self._change(wanted)
        return len(wanted) == len(limits)

    def _usable(self, limits: Mapping[int, int]) -> bool:
        if self._clock is None or len(limits) > abi.ALARMS:
            return False
        now = time.monotonic_ns()
        if not self._set or now - self._begun_ns < STOPPED_NS:
            return True
        seen = self._seen.get(_NOBODY)
        return seen is not None and now - seen.value < STOPPED_NS

    def _change(self, wanted: dict[int, tuple[int, bool, bool]]) -> None:
        for tid in self._set.keys() - wanted.keys():
            self._limits.delete(c_uint32(tid))
        for tid, one in wanted.items():
            if self._set.get(tid) != one:
                limit, ended, together = one
                self._limits.put(c_uint32(tid), abi.Alarm(limit, 0, ended, together))
        if wanted.keys() != self._set.keys():
            for place, tid in enumerate([*wanted, 0][: abi.ALARMS]):
                self._threads.put(c_uint32(place), c_uint32(tid))
        if bool(wanted) != bool(self._set):
            self._run(bool(wanted))
        self._set = wanted

    def _run(self, on: bool) -> None:
        self._begun_ns = time.monotonic_ns()
        if self._clock is not None:
            fcntl.ioctl(self._clock, _ENABLE if on else _DISABLE, 0)
