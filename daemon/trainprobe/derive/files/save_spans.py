"""Saves as spans of one thread's time: from the first serialising byte to the last call on the last file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from trainprobe.derive.average import median
from trainprobe.derive.files.purpose import LARGE, FileClass
from trainprobe.derive.files.saves import Save, Saves
from trainprobe.derive.trend.period import recurrence
from trainprobe.model.event import StackSeen
from trainprobe.model.moment import NS

NEXT_FILE_NS = NS // 20
"""The next file of the same save is opened so soon after the last call on the one before."""
LEAST = 8
"""Ordinary steps without a save that show what those with one have beyond them."""
WORTH = 0.1
"""Of the largest save: what a save has at least to count."""
BETWEEN = 0.1
"""Of its writes: CPU time between them from which on a save is serialised while it is written."""
BYTES_IN_NS = 0.1
"""Bytes that serialising makes in 1 ns at least, where no stack shows that it went on."""
_FRAME = re.compile(r"(^|\.)_*(save|dump|serialize|state_dict)(?!_image|fig)[^.]*$|_save$")


@dataclass(frozen=True, slots=True)
class SaveSpan:
    """One save of one or more files: first open to last call, ns."""

    start_ns: int
    end_ns: int
    bytes: int
    write_ns: int
    gap_ns: int
    path: str  # of the first file

    @property
    def ready_made(self) -> bool:
        """Whether its bytes were in memory before it was opened: next to nothing was computed between its writes."""
        return self.bytes >= LARGE and self.gap_ns < BETWEEN * self.write_ns


def spans(saves: Iterable[Save], start_ns: int, end_ns: int, *, until_ns: int = 0) -> list[SaveSpan]:
    """The saves that begin in an interval, as far as they lie in it, in time order. A file that is still open may just
    not be closed: its save lasts as long as its calls took, or until ``until_ns`` where that is known."""
    out: list[SaveSpan] = []
    for save in sorted(saves, key=lambda one: one.start_ns):
        if not start_ns <= save.start_ns < end_ns:
            continue
        closed_ns = max(until_ns, save.start_ns + _calls_ns(save))
        end = min(end_ns, closed_ns if save.end_ns is None else save.end_ns)
        last = out[-1] if out else None
        if last is not None and save.start_ns - last.end_ns < NEXT_FILE_NS:
            out[-1] = SaveSpan(
                last.start_ns,
                max(last.end_ns, end),
                last.bytes + save.bytes,
                last.write_ns + save.write_ns,
                last.gap_ns + save.gap_ns,
                last.path,
            )
        else:
            out.append(SaveSpan(save.start_ns, end, save.bytes, save.write_ns, save.gap_ns, save.path))
    return out


def written_again(saves: Saves, since_ns: int) -> int:
    """How many times the one file was begun anew and written since then that was so most often, of those that would be
    checkpoints after the first step."""
    begun = [save for save in saves.closed if save.start_ns >= since_ns and save.created]
    likely = (one for one in begun if replace(one, early=False).kind_of(saves.rules) == FileClass.CHECKPOINT)
    return max(Counter(save.path for save in likely).values(), default=0)


def blocked_ns(saves: Saves) -> int:
    """How long the drivers were in the calls of their closed checkpoints, and serialised for them."""
    own = sum(save.blocked_ns(save.end_ns or 0) for save in saves.closed_checkpoints() if save.tid in saves.drivers)
    return own + sum(ns for key, ns in saves.gone.ns.items() if key.endswith("/true") and key != "other/true")


def _calls_ns(save: Save) -> int:
    return save.write_ns + save.sync_ns + save.meta_ns + save.rename_ns + save.gap_ns


def shown_by(stack: Sequence[str]) -> bool:
    """Whether a function on the stack is named like a save, or belongs to a serialiser."""
    names = (frame.partition(" (") for frame in stack)
    return any(_FRAME.search(name) or "serialization.py:" in place for name, _, place in names)


def ahead_ns(first: SaveSpan, since_ns: int, stacks: Sequence[StackSeen], per_byte: float = 1 / BYTES_IN_NS) -> int:
    """For how long before a save's first open, at most, its thread may have serialised.

    ``since_ns``: when the thread can have begun. A stack that is no save's ends it; without any stack it is what bytes
    that were ready made may take, ``per_byte`` ns at most.
    """
    before = [one for one in stacks if since_ns <= one.at_ns < first.start_ns and one.frames]
    if not before:
        payload = int(first.bytes * per_byte) if first.ready_made else 0
        return max(0, min(first.start_ns - since_ns, payload))
    if not shown_by(before[-1].frames):
        return 0
    others = [one.at_ns for one in before if not shown_by(one.frames)]
    return max(0, first.start_ns - max([since_ns, *others]))


def note_serialising(saves: Iterable[Save], start_ns: int, end_ns: int, spent_ns: int) -> None:
    """Enter the CPU time that a thread spent in its saves of an interval, beyond the calls, into their records: first
    between open and last call, the rest before the first open."""
    own = sorted((save for save in saves if start_ns <= save.start_ns < end_ns), key=lambda save: save.start_ns)
    for save in own:
        save.inside_ns = min(spent_ns, max(0, (save.end_ns or end_ns) - save.start_ns - _calls_ns(save)))
        spent_ns -= save.inside_ns
    if own:
        own[0].ahead_ns = min(spent_ns, own[0].start_ns - start_ns)


@dataclass(frozen=True, slots=True)
class ConsecutiveSteps:
    """Steps that follow one another: when the first one began, its number, the length of each in ns."""

    start_ns: int
    first: int
    lengths: Sequence[int]


@dataclass(slots=True)
class SavingSteps:
    """When a driver saved, by the records of its files. Saves far smaller than the largest do not count in ``count``
    and ``recent``: they are no reason to save more rarely."""

    count: int = 0  # saves since there was a baseline
    largest: int = 0  # bytes of one
    path: str = ""  # of the latest one's first file
    ordinary: int = 0  # of them: in ordinary steps
    ordinary_ns: int = 0  # in those, from the first open to the last call
    ordinary_ahead_ns: int = 0  # directly before, at most
    ordinary_steps: int = 0  # steps that held them
    ordinary_cpu_ns: int = 0  # of the CPU in these steps, outside of backward, optimiser and fetch
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=64))  # number of the step, ns of start
    aheads: deque[float] = field(default_factory=lambda: deque(maxlen=16))  # ns per byte, of steps with nothing beside

    def add_saves(self, saves: Sequence[SaveSpan], steps: ConsecutiveSteps, *, judged: bool) -> None:
        """The saves of steps that follow one another; ``judged``: whether there was a baseline."""
        if not saves:
            return
        ends = list(accumulate(steps.lengths, initial=steps.start_ns))[1:]
        for save in saves:
            if self.largest < WORTH * save.bytes:
                self.count = 0
                self.recent.clear()
            self.largest = max(self.largest, save.bytes)
            if save.bytes < WORTH * self.largest:
                continue
            self.count += judged
            self.path = save.path
            number = steps.first + min(bisect_right(ends, save.start_ns), len(ends) - 1)
            if not self.recent or self.recent[-1][0] != number:
                self.recent.append((number, save.start_ns))

    def add_ordinary(
        self, saves: Sequence[SaveSpan], steps: ConsecutiveSteps, cpu_ns: int, optimizer_ns: int | None
    ) -> None:
        """They lay in ordinary steps, which begin with the optimiser. CPU and optimiser: of all these steps;
        ``optimizer_ns`` None: more than that may come before a save."""
        self.ordinary += len(saves)
        self.ordinary_ns += sum(save.end_ns - save.start_ns for save in saves)
        self.ordinary_steps += len(steps.lengths)
        self.ordinary_cpu_ns += cpu_ns
        if optimizer_ns is None:
            return
        starts = list(accumulate(steps.lengths, initial=steps.start_ns))[:-1]
        for save in saves:
            begun = starts[bisect_right(starts, save.start_ns) - 1] + optimizer_ns // len(starts)
            self.ordinary_ahead_ns += ahead_ns(save, begun, ())

    def serializing_ns(self, called_ns: float, steps: int, cpu_ns: float) -> float:
        """The CPU time of the saves of ordinary steps, beside ``called_ns`` in their calls: what their records leave
        room for, no more than steps that save have beyond the others. All ordinary steps are ``steps`` and have
        ``cpu_ns``."""
        room = max(0.0, self.ordinary_ns - called_ns)
        others = steps - self.ordinary_steps
        if others < LEAST:
            return room + self.ordinary_ahead_ns
        beyond = self.ordinary_cpu_ns - self.ordinary_steps * (cpu_ns - self.ordinary_cpu_ns) / others
        return min(room + self.ordinary_ahead_ns, max(room, beyond))

    @property
    def ahead_per_byte(self) -> float | None:
        """ns that serialising one byte before the first open usually takes; None: not known."""
        return median(self.aheads) if self.aheads else None

    @property
    def every(self) -> int | None:
        """Steps between two of them; None: not known, or without a rhythm."""
        steps = [step for step, _ in self.recent]
        return recurrence(steps, least=1)

    @property
    def period_ns(self) -> float:
        """Time between two of them; 0: not known."""
        starts = [start for _, start in self.recent]
        return median(b - a for a, b in pairwise(starts)) if len(starts) > 2 else 0.0


@dataclass(slots=True)
class Seconds:
    """How much the driver computes in a second where nothing marks steps: by that it is known to have taken part in a
    save whose bytes other threads write."""

    at_ns: int = 0
    computed_ns: int = 0  # until then
    windows: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=64))  # start, end, computed in it

    def add_reading(self, at_ns: int, computed_ns: int, saves: Iterable[Save]) -> None:
        """Take in how much it has computed until now. A save that it began was its own to the end where it computed
        for most of that time beyond the usual. Of some the end is known late."""
        if self.at_ns and at_ns - self.at_ns < NS // 2:
            return
        if self.at_ns:
            self.windows.append((self.at_ns, at_ns, computed_ns - self.computed_ns))
        self.at_ns, self.computed_ns = at_ns, computed_ns
        if len(self.windows) < 4:
            return
        shares = sorted(spent / (end - start) for start, end, spent in self.windows)
        usual = shares[len(shares) // 4]  # the start-up computes, too
        for save in saves:
            if save.inside_ns or save.end_ns is None or save.start_ns < self.windows[0][0]:
                continue
            over = [one for one in self.windows if one[0] < save.end_ns and one[1] > save.start_ns]
            beyond = sum(spent - usual * (end - start) for start, end, spent in over)
            if beyond > (save.end_ns - save.start_ns) / 2:
                save.inside_ns = max(0, save.end_ns - save.start_ns - _calls_ns(save))
