# SPDX-License-Identifier: Apache-2.0
"""The clock of trainings that nothing else marks the steps of: the call of CUDA that comes once in each.

First the calls that come a few times a step are counted: waits, copies, launches of whole graphs. Only where none of
them comes evenly do launches of kernels get a probe too, in that process alone, and they lose it where they are too
many. docs/cuda.md says why.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from ctypes import c_uint32
from dataclasses import dataclass, field
from typing import TypeAlias

from trainprobe.bpf import abi
from trainprobe.bpf.maps import Map
from trainprobe.bpf.marks import Mark, Place
from trainprobe.derive.recurring import once_a_step
from trainprobe.model.moment import NS

LOOK_NS = NS
LEARN_NS = 10 * NS
"""A call is sought among those of so long a time at first; of twice that where there is none, for slower steps."""
LEARN_LIMIT_NS = 320 * NS
MOST_LAUNCHES = 5000  # a second: a probe on each takes 1.4 % of a core where it is single-stepped
MOST_CLOCKS = 64

Calls: TypeAlias = "dict[tuple[int, int], tuple[bool, tuple[int, ...]]]"
"""By thread and place: whether it launches a kernel, and the intervals between its calls."""
AttachFor = Callable[[int, Place, tuple[Mark, ...]], list[int]]
"""(pid, where it maps the library, marks) -> descriptors of probes in that process alone."""


@dataclass
class Clock:
    """One process, and what was found of it."""

    since_ns: int
    learn_ns: int
    before: Calls = field(default_factory=dict)
    call: tuple[int, int] | None = None
    launches: bool = False  # to be probed
    dear: bool = False  # they were, and are too many
    rare: dict[bytes, list[int]] = field(default_factory=dict)  # descriptors by library
    often: dict[bytes, list[int]] = field(default_factory=dict)


class GpuClocks:
    """Clocks by process. ``look_after`` belongs to the loop, ``probe`` to a thread that may wait for a disk."""

    def __init__(
        self,
        beats: Map[abi.GpuCaller, abi.GpuBeat],
        clocks: Map[c_uint32, abi.GpuCaller],
        attach_for: AttachFor,
    ) -> None:
        self._beats, self._clocks, self._attach_for = beats, clocks, attach_for
        self._lock = threading.Lock()  # for all below
        self._known: dict[int, Clock] = {}
        self._looked_ns = 0

    def __contains__(self, pid: int) -> bool:
        return pid in self._known

    def begin(self, pid: int) -> None:
        """Nothing else marks the steps of this process; again does no harm."""
        with self._lock:
            if pid not in self._known and len(self._known) < MOST_CLOCKS:
                self._known[pid] = Clock(time.monotonic_ns(), LEARN_NS)
                self._clocks.put(c_uint32(pid), abi.GpuCaller())

    def end(self, pid: int) -> None:
        """It is gone, or has better marks."""
        with self._lock:
            clock = self._known.pop(pid, None)
        if clock is None:
            return
        self._clocks.delete(c_uint32(pid))
        for key, _ in self._beats.entries():
            if key.tgid == pid:
                self._beats.delete(key)
        let_go([*clock.rare.values(), *clock.often.values()])

    def probe(self, pid: int, place: Place, rare: tuple[Mark, ...], often: tuple[Mark, ...]) -> None:
        """Put probes on a library of CUDA: ``rare`` on what comes a few times a step, ``often`` on launches, where they
        are wanted. Again does no harm."""
        clock = self._known.get(pid)
        if clock is None:
            return
        if place.path not in clock.rare:
            self._keep(pid, clock.rare, place.path, self._attach_for(pid, place, rare))
        if clock.launches and place.path not in clock.often:
            self._keep(pid, clock.often, place.path, self._attach_for(pid, place, often))

    def _keep(self, pid: int, kept: dict[bytes, list[int]], path: bytes, descriptors: list[int]) -> None:
        with self._lock:
            if pid in self._known and descriptors:  # where there are none, the next look tries again
                kept[path] = descriptors
                return
        let_go([descriptors])

    def look_after(self, now_ns: int) -> list[int]:
        """Once a second: find calls that mark steps. Processes whose launches are to be probed from now on."""
        if not self._known or now_ns - self._looked_ns < LOOK_NS:
            return []
        self._looked_ns = now_ns
        calls: dict[int, Calls] = {pid: {} for pid in self._known}
        for key, beat in self._beats.entries():
            if key.tgid in calls:
                calls[key.tgid][key.tid, key.what] = bool(beat.launch), tuple(beat.intervals)
        return [pid for pid, clock in list(self._known.items()) if self._learn(pid, clock, calls[pid], now_ns)]

    def _learn(self, pid: int, clock: Clock, calls: Calls, now_ns: int) -> bool:
        """Whether launches are to be probed."""
        new = {call: (launch, _more(of, clock.before.get(call))) for call, (launch, of) in calls.items()}
        over = now_ns - clock.since_ns >= clock.learn_ns
        if clock.call is not None and (not over or any(new.get(clock.call, (False, ()))[1])):
            if over:
                clock.since_ns, clock.before = now_ns, calls
            return False
        found = once_a_step({call: of for call, (launch, of) in new.items() if not launch})
        launched = found is None
        if launched and clock.launches:
            found = self._launch(clock, new, now_ns)
        if found is None and not over:
            return False
        clock.since_ns, clock.before = now_ns, calls
        if found is not None:
            self._take(pid, clock, found, launched=launched)
            return False
        if clock.call is not None:
            return False
        clock.learn_ns = min(2 * clock.learn_ns, LEARN_LIMIT_NS)
        asks, clock.launches = not clock.launches and not clock.dear, not clock.dear
        return asks

    def _launch(self, clock: Clock, new: Calls, now_ns: int) -> tuple[int, int] | None:
        """A launch that marks steps, unless looking at all of them costs too much."""
        number = sum(sum(of) for launch, of in new.values() if launch)
        seconds = max(1.0, (now_ns - clock.since_ns) / NS)
        if number / seconds > MOST_LAUNCHES:
            clock.dear = True
            self._drop_launches(clock)
            return None
        return once_a_step({call: of for call, (launch, of) in new.items() if launch})

    def _take(self, pid: int, clock: Clock, call: tuple[int, int], *, launched: bool) -> None:
        clock.call, clock.learn_ns = call, LEARN_NS
        tid, what = call
        self._clocks.put(c_uint32(pid), abi.GpuCaller(tgid=pid, tid=tid, what=what))
        if not launched:
            self._drop_launches(clock)

    def _drop_launches(self, clock: Clock) -> None:
        with self._lock:
            clock.launches, often, clock.often = False, clock.often, {}
        let_go([*often.values()])

    def close(self) -> None:
        for pid in list(self._known):
            self.end(pid)


def _more(now: tuple[int, ...], before: tuple[bool, tuple[int, ...]] | None) -> tuple[int, ...]:
    return now if before is None else tuple(max(0, a - b) for a, b in zip(now, before[1]))


def let_go(descriptors: list[list[int]]) -> None:
    """Close probes without waiting: the kernel takes its time to let go of each."""
    every = [one for some in descriptors for one in some]
    if every:
        threading.Thread(target=close_all, args=(every,), name="cuda-marks", daemon=True).start()


def close_all(descriptors: list[int]) -> None:
    """Close probes, one after the other."""
    for descriptor in descriptors:
        os.close(descriptor)
