# SPDX-License-Identifier: Apache-2.0
"""The clock of trainings that nothing else marks the steps of: the call of CUDA that comes once in each, or the bursts
in which JAX or TensorFlow let go of the interpreter's lock.

First the calls that come a few times a step are counted: waits, copies, launches of whole graphs. Only where none of
them comes evenly do launches of kernels get a probe too, in that process alone, and they lose it where they are too
many. docs/cuda.md says why.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import c_uint32
from dataclasses import field
from typing import TypeAlias

from trainprobe.bpf import abi
from trainprobe.bpf.abi import BeatKind
from trainprobe.bpf.attach.closing import close_in_background
from trainprobe.bpf.attach.mapped_files import MappedCode
from trainprobe.bpf.attach.mark_table import Mark
from trainprobe.bpf.load.maps import Map
from trainprobe.derive.steps.recurring import SLOW, before_rhythm, bursts, once_a_step
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

LOOK_NS = NS
LEARN_NS = 10 * NS
"""A call is sought among those of so long a time at first; of twice that where there is none, for slower steps."""
LEARN_BURSTS_NS = 4 * NS
"""The same for bursts. They are judged only when it is over: while it starts, a training calls evenly, too."""
LEARN_LIMIT_NS = 320 * NS
MOST_LAUNCHES = 5000  # a second: a probe on each takes 1.4 % of a core where it is single-stepped
MOST_CLOCKS = 64
MOST_LOOKS = 40  # that are kept until bursts are found among them

Calls: TypeAlias = "dict[tuple[int, int], tuple[int, tuple[int, ...]]]"
"""By thread and place: the kind of call (BeatKind), and the intervals between its calls."""
Look: TypeAlias = "tuple[int, dict[tuple[int, int], array[int]]]"
"""When (ns), and the intervals until then of what may come in bursts."""
AttachFor = Callable[[int, MappedCode, tuple[Mark, ...]], list[int]]
"""(pid, where it maps the library, marks) -> descriptors of probes in that process alone."""


@dataclass
class Clock:
    since_ns: int
    learn_ns: int
    before: Calls = field(default_factory=dict)
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=MOST_LOOKS))  # until there is a call
    call: tuple[int, int] | None = None
    until: list[tuple[int, Sequence[int]]] = field(default_factory=list)  # the looks at it, if it comes in bursts
    least: int = 0  # the gap between its bursts
    starting: int = 0  # its bursts before the first step
    alone: bool = False  # there is no CUDA in the process: only releases may be its clock
    launches: bool = False  # to be probed, and releases
    dear: bool = False  # they were, and are too many
    models: Sequence[MappedCode] = ()  # libraries that run models: calls from there may come in bursts, one a step
    rare: dict[bytes, list[int]] = field(default_factory=dict)  # descriptors by library
    often: dict[bytes, list[int]] = field(default_factory=dict)


class GpuClocks:
    """Clocks by process. ``look_after`` belongs to the loop, ``probe`` to a thread that may wait for a disk."""

    def __init__(
        self, beats: Map[abi.GpuCaller, abi.GpuBeat], clocks: Map[c_uint32, abi.GpuCaller], attach_for: AttachFor
    ) -> None:
        self._beats, self._clocks, self._attach_for = beats, clocks, attach_for
        self._lock = threading.Lock()  # for all below
        self._known: dict[int, Clock] = {}
        self._looked_ns = 0

    def __contains__(self, pid: int) -> bool:
        return pid in self._known

    def begin(self, pid: int, models: Sequence[MappedCode] = (), *, alone: bool = False) -> None:
        """Nothing else marks the steps of this process; again does no harm. ``models``: its libraries that run models;
        ``alone``: it has no CUDA beside them."""
        with self._lock:
            if pid not in self._known and len(self._known) < MOST_CLOCKS:
                learn_ns = LEARN_BURSTS_NS if alone else LEARN_NS
                now_ns = time.monotonic_ns()
                self._known[pid] = Clock(now_ns, learn_ns, alone=alone, launches=alone)
                self._known[pid].looks.append((now_ns, {}))
                self._clocks.put(c_uint32(pid), abi.GpuCaller())
            if pid in self._known:
                self._known[pid].models = models

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
        close_in_background([*clock.rare.values(), *clock.often.values()])

    def probe(self, pid: int, place: MappedCode, rare: tuple[Mark, ...], often: tuple[Mark, ...]) -> None:
        """Put probes on a library of CUDA: ``rare`` on what comes a few times a step, ``often`` on launches, where they
        are wanted. Again does no harm."""
        clock = self._known.get(pid)
        if clock is None:
            return
        if rare and place.path not in clock.rare:
            self._keep_probes(pid, clock, clock.rare, place.path, self._attach_for(pid, place, rare))
        if clock.launches and place.path not in (kept := clock.often):
            self._keep_probes(pid, clock, kept, place.path, self._attach_for(pid, place, often))

    def _keep_probes(
        self, pid: int, clock: Clock, kept: dict[bytes, list[int]], path: bytes, descriptors: list[int]
    ) -> None:
        """Unless they are wanted no longer: attaching takes its time."""
        with self._lock:
            wanted = self._known.get(pid) is clock and (kept is clock.rare or kept is clock.often)
            if wanted and descriptors:  # where there are none, the next look tries again
                kept[path] = descriptors
                return
        close_in_background([descriptors])

    def look_after(self, now_ns: int) -> list[int]:
        """Once a second: find calls that mark steps. Processes whose launches are to be probed from now on."""
        if not self._known or now_ns - self._looked_ns < LOOK_NS:
            return []
        self._looked_ns = now_ns
        known = list(self._known.items())  # another thread may begin or end one meanwhile
        calls: dict[int, Calls] = {pid: {} for pid, _ in known}
        for key, beat in self._beats.entries():
            if key.tgid in calls:
                calls[key.tgid][key.tid, key.what] = beat.kind, tuple(beat.intervals)
        return [pid for pid, clock in known if self._learn(pid, clock, calls[pid], now_ns)]

    def _learn(self, pid: int, clock: Clock, calls: Calls, now_ns: int) -> bool:
        """Whether launches are to be probed."""
        new = {call: (kind, _more(of, clock.before.get(call))) for call, (kind, of) in calls.items()}
        if clock.call is None:
            clock.looks.append((now_ns, {call: array("I", of) for call, of in _of_models(clock, calls).items()}))
        over = now_ns - clock.since_ns >= clock.learn_ns
        if clock.call is not None and (not over or any(new.get(clock.call, (0, ()))[1])):
            if over:
                clock.since_ns, clock.before = now_ns, calls
                self._adapt(pid, clock, new)
            return False
        found = once_a_step({call: of for call, (kind, of) in new.items() if kind == BeatKind.WAIT})
        launched = found is None
        if launched and clock.launches:
            found = self._launch(clock, new, now_ns, over=over)
        if found is None and not over:
            return False
        started, clock.since_ns, clock.before = bool(clock.before), now_ns, calls
        if found is not None:
            self._take_call(pid, clock, found)
            if not launched:
                self._drop_launches(clock)
            return False
        if (burst := bursts(_of_models(clock, new), _of_models(clock, calls))) is not None:
            self._take_call(pid, clock, *burst)
            return False
        if clock.call is not None:
            return False
        if started or not clock.alone:  # else the first steps, or what came before them, may have been among these
            clock.learn_ns = min(2 * clock.learn_ns, LEARN_LIMIT_NS)
        asks, clock.launches = not clock.launches and not clock.dear, not clock.dear
        return asks

    def _launch(self, clock: Clock, new: Calls, now_ns: int, *, over: bool) -> tuple[int, int] | None:
        """A launch that marks steps, unless looking at all of them costs too much. Importing TensorFlow takes thousands
        of releases a second: where there is no CUDA the first time to learn is not judged by them, the next ones are
        when they are ``over``."""
        number = sum(sum(of) for kind, of in new.values() if kind != BeatKind.WAIT)
        seconds = max(1.0, (now_ns - clock.since_ns) / NS)
        if number / seconds > MOST_LAUNCHES and (not clock.alone or (over and clock.before)):
            clock.dear = True
            self._drop_launches(clock)
            return None
        return once_a_step({call: of for call, (kind, of) in new.items() if kind == BeatKind.LAUNCH})

    def _take_call(self, pid: int, clock: Clock, call: tuple[int, int], least: int = 0) -> None:
        """``least``: of a call that comes in bursts."""
        if clock.call is None and least:
            none = array("I", [0] * abi.BEAT_INTERVALS)
            clock.until = [(at_ns, of.get(call, none)) for at_ns, of in clock.looks]
        if clock.until and least and clock.call in (None, call):
            clock.starting = before_rhythm(clock.until, least, _slow_steps(clock, call))
        clock.looks.clear()
        clock.call, clock.least, clock.learn_ns = call, least, LEARN_NS
        tid, what = call
        of_call = abi.GpuCaller(tgid=pid, tid=tid, what=what, least=least, starting=clock.starting)
        self._clocks.put(c_uint32(pid), of_call)

    def _adapt(self, pid: int, clock: Clock, new: Calls) -> None:
        """Bursts of the same call may have come closer together."""
        mine = {call: of for call, of in _of_models(clock, new).items() if call == clock.call}
        if (burst := bursts(mine, mine)) is not None and burst[1] != clock.least:
            self._take_call(pid, clock, *burst)

    def _drop_launches(self, clock: Clock) -> None:
        with self._lock:
            clock.launches, often, clock.often = False, clock.often, {}
        close_in_background([*often.values()])

    def close(self) -> None:
        for pid in list(self._known):
            self.end(pid)


def _of_models(clock: Clock, new: Calls) -> dict[tuple[int, int], tuple[int, ...]]:
    """The calls that the libraries which run models make."""
    releases = {call: of for call, (kind, of) in new.items() if kind == BeatKind.RELEASE}
    return {call: of for call, of in releases.items() if any(lib.start <= call[1] < lib.end for lib in clock.models)}


def _slow_steps(clock: Clock, call: tuple[int, int]) -> int:
    """First steps, at most, that compile."""
    library = next((lib.path for lib in clock.models if lib.start <= call[1] < lib.end), b"")
    return 1 if b"_pywrap_t" in library else SLOW


def _more(now: tuple[int, ...], before: tuple[int, tuple[int, ...]] | None) -> tuple[int, ...]:
    return now if before is None else tuple(max(0, a - b) for a, b in zip(now, before[1]))
