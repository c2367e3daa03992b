"""Saves as spans of one thread's time: from the first serialising byte to the last call on the last file."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate, pairwise

from trainprobe.derive.average import median
from trainprobe.derive.files.purpose import LARGE, FileClass
from trainprobe.derive.files.save import Save
from trainprobe.derive.files.saves import Saves
from trainprobe.derive.memo import Memo
from trainprobe.derive.python.serializers import shown_by
from trainprobe.derive.steps.ledger import Item, by_state
from trainprobe.derive.trend.period import recurrence
from trainprobe.model.cause import State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import StackSeen
from trainprobe.model.moment import NS

NEXT_FILE_NS = NS // 20
"""The next file of the same save is opened so soon after the last call on the one before; one that was made ready in
between, into the same directory, as much later as that takes."""
MADE_READY_IN_NS = 0.25
"""Bytes that are made ready in 1 ns then, at least."""
LEAST = 8
"""Ordinary steps without a save that show what those with one have beyond them."""
WORTH = 0.1
"""Of the largest save: what a save has at least to count."""
BETWEEN = 0.1
"""Of its writes: CPU time between them from which on a save is serialised while it is written."""
BYTES_IN_NS = 0.1
"""Bytes that serialising makes in 1 ns at least, where no stack shows that it went on."""
COPIED_IN_NS = 2.0
"""Bytes that are copied from the GPU in 1 ns at least."""
EVALUATED = 0.1
"""Batches that a step with a save fetches beyond the others, from which on evaluations come with the saves."""
LOGGED_NS = NS // 10_000
"""Time in calls on logs that it has beyond the others, from which on a callback comes with the saves."""
SERIALIZES = frozenset((State.COMPUTE, region, Leaf.CPU) for region in (Region.STEP, Region.NO_GRAD))
"""Where the CPU time of ordinary steps is that may go into saves."""
COPIES = frozenset((State.GPU_WAIT, region, Leaf.GPU) for region in (Region.STEP, Region.NO_GRAD))
"""Where the waits of ordinary steps are that may be for a save's copies from the GPU."""


@dataclass(frozen=True, slots=True)
class SaveSpan:
    """One save of one or more files: first open to last call, ns."""

    start_ns: int
    end_ns: int
    bytes: int
    write_ns: int
    gap_ns: int
    path: str  # of the first file
    main: str = ""  # path of the largest file, which the save is told by …
    largest: int = 0  # … and its bytes
    calls_ns: int = 0  # in the calls on its files, and between two of one file
    ready: int = 0  # bytes of the files that are ready made
    between_ns: int = 0  # from the last call on one file to the open of the next, where that is ready made …
    between_bytes: int = 0  # … and the bytes of those

    @property
    def per_byte(self) -> float | None:
        """ns that making a byte ready took between its files; None: not known."""
        return self.between_ns / self.between_bytes if self.between_bytes else None

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
        calls_ns = _calls_ns(save)
        closed_ns = max(until_ns, save.start_ns + calls_ns)
        end = min(end_ns, closed_ns if save.end_ns is None else save.end_ns)
        main, named = save.sums, (save.bytes, save.write_ns, save.gap_ns, save.path)
        one = SaveSpan(save.start_ns, end, *named, main.path, main.largest, calls_ns)
        if one.ready_made:
            one = replace(one, ready=one.bytes)
        last = out[-1] if out else None
        if last is not None and save.start_ns - last.end_ns < NEXT_FILE_NS + _made_ready_ns(last, one):
            out[-1] = _joined(last, one)
        else:
            out.append(one)
    return out


def _made_ready_ns(before: SaveSpan, one: SaveSpan) -> float:
    beside = one.path.rpartition("/")[0] == before.path.rpartition("/")[0]
    return one.bytes / MADE_READY_IN_NS if one.ready_made and beside else 0.0


def _joined(one: SaveSpan, later: SaveSpan) -> SaveSpan:
    main = later if later.largest > one.largest else one
    return SaveSpan(
        one.start_ns,
        max(one.end_ns, later.end_ns),
        one.bytes + later.bytes,
        one.write_ns + later.write_ns,
        one.gap_ns + later.gap_ns,
        one.path,
        main.main,
        main.largest,
        one.calls_ns + later.calls_ns,
        one.ready + later.ready,
        one.between_ns + (max(0, later.start_ns - one.end_ns) if later.ready_made else 0),
        one.between_bytes + (later.bytes if later.ready_made else 0),
    )


def written_again(saves: Saves, since_ns: int) -> int:
    """How many times the one file was begun anew and written since then that was so most often, of those that would be
    checkpoints after the first step."""
    begun = [save for save in saves.closed if save.start_ns >= since_ns and save.created]
    likely = (one for one in begun if one.kind_in_training(saves.rules) == FileClass.CHECKPOINT)
    return max(Counter(save.path for save in likely).values(), default=0)


def blocked_ns(saves: Saves) -> int:
    """How long the drivers were in the calls of their closed checkpoints, and serialised for them."""
    own = sum(save.blocked_ns(save.end_ns or 0) for save in saves.closed_checkpoints() if save.tid in saves.drivers)
    return own + sum(ns for key, ns in saves.gone.ns.items() if key.endswith("/true") and key != "other/true")


def _calls_ns(save: Save) -> int:
    return save.write_ns + save.sync_ns + save.meta_ns + save.rename_ns + save.gap_ns


def ahead_ns(
    first: SaveSpan,
    since_ns: int,
    stacks: Sequence[StackSeen],
    per_byte: float = 1 / BYTES_IN_NS,
    *,
    measured: bool = False,
) -> int:
    """For how long before a save's first open, at most, its thread may have serialised.

    ``since_ns``: when the thread can have begun. A stack that is no save's ends it; without any stack it is what bytes
    of files that were ready made may take, ``per_byte`` ns at most. So it is behind a stack that is no save's, where
    that was ``measured``.
    """
    before = [one for one in stacks if since_ns <= one.at_ns < first.start_ns and one.frames]
    if not before:
        return max(0, min(first.start_ns - since_ns, int(first.ready * per_byte)))
    if not shown_by(before[-1].frames):
        return min(first.start_ns - before[-1].at_ns, int(first.ready * per_byte)) if measured else 0
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


def spans_of(steps: ConsecutiveSteps, saves: Iterable[Save]) -> list[SaveSpan]:
    """The saves that begin in each of these steps: with another step another save begins, however soon."""
    own = list(saves)
    ends = accumulate(steps.lengths, initial=steps.start_ns) if own else ()
    return [save for begin_ns, end_ns in pairwise(ends) for save in spans(own, begin_ns, end_ns)]


@dataclass(frozen=True, slots=True)
class StepsThatSave:
    """What these steps were made of."""

    items: Mapping[Item, int]
    fetches: int
    single: bool  # else they had several backwards each, some of which may have come before the save


@dataclass(slots=True)
class AheadOfSaves:
    """How long, at most, saves took directly before their first files were opened: sums in ns."""

    ns: float = 0.0
    serialized_ns: float = 0.0  # of it on the CPU
    copied_ns: float = 0.0  # of it in waits for copies

    def add(self, save: SaveSpan, since_ns: int) -> None:
        """``since_ns``: when the save can have begun."""
        before = max(0, save.start_ns - since_ns)
        serialized, copied = min(before, save.ready / BYTES_IN_NS), min(before, save.bytes / COPIED_IN_NS)
        self.ns += max(serialized, copied)
        self.serialized_ns += serialized
        self.copied_ns += copied

    def copied_only(self) -> AheadOfSaves:
        """The same where others compute before a save, too: what bytes take to copy from the GPU is the save's."""
        return AheadOfSaves(self.copied_ns, 0.0, self.copied_ns)


def _at_most(items: Mapping[Item, float], ns: float) -> dict[Item, float]:
    total = sum(items.values())
    return {item: spent * min(1.0, ns / total) for item, spent in items.items()} if ns > 0 and total > 0 else {}


def _of_saves(beyond: Mapping[Item, float], kinds: Container[Item]) -> dict[Item, float]:
    return {item: ns for item, ns in beyond.items() if item in kinds and ns > 0}


@dataclass(slots=True)
class SavingSteps:
    """When a driver saved, by the records of its files. Saves far smaller than the largest do not count in ``count``
    and ``recent``: they are no reason to save more rarely."""

    count: int = 0  # saves since there was a baseline
    largest: int = 0  # bytes of one
    path: str = ""  # of the latest one's first file
    main: str = ""  # of its largest
    ordinary: int = 0  # of them: in ordinary steps
    ordinary_ns: int = 0  # in those, from the first open to the last call
    ordinary_ahead_ns: int = 0  # directly before, at most
    ordinary_steps: int = 0  # steps that held them
    calls_ns: int = 0  # in the calls of these saves, by their records
    ahead: AheadOfSaves = field(default_factory=AheadOfSaves)
    items: dict[Item, int] = field(default_factory=dict)  # of these steps
    fetches: int = 0  # in them
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=64))  # number of the step, ns of start
    aheads: deque[float] = field(default_factory=lambda: deque(maxlen=16))  # ns per byte, of steps with nothing beside
    memo: Memo = field(default_factory=Memo)  # what is made of ``recent``

    def add_saves(self, saves: Sequence[SaveSpan], steps: ConsecutiveSteps, *, judged: bool) -> None:
        """The saves of steps that follow one another; ``judged``: whether there was a baseline."""
        if not saves:
            return
        self.memo.clear()
        ends = list(accumulate(steps.lengths, initial=steps.start_ns))[1:]
        for save in saves:
            if self.largest < WORTH * save.bytes:
                self.count = 0
                self.recent.clear()
            self.largest = max(self.largest, save.bytes)
            if save.bytes < WORTH * self.largest:
                continue
            number = steps.first + min(bisect_right(ends, save.start_ns), len(ends) - 1)
            beside = save.path.startswith(self.path.rpartition("/")[0] + "/")
            self.count += judged and not (beside and self.recent and self.recent[-1][0] == number)
            self.path, self.main = save.path, save.main
            if not self.recent or self.recent[-1][0] != number:
                self.recent.append((number, save.start_ns))

    def add_ordinary(self, saves: Sequence[SaveSpan], steps: ConsecutiveSteps, of: StepsThatSave) -> None:
        """They lay in ordinary steps, which begin with the optimiser."""
        self.ordinary += len(saves)
        self.ordinary_ns += sum(save.end_ns - save.start_ns for save in saves)
        self.calls_ns += sum(min(save.calls_ns, save.end_ns - save.start_ns) for save in saves)
        self.ordinary_steps += len(steps.lengths)
        self.fetches += of.fetches
        for item, ns in of.items.items():
            self.items[item] = self.items.get(item, 0) + ns
        optimizer_ns = of.items.get((State.COMPUTE, Region.OPTIMIZER, Leaf.CPU), 0)
        starts = list(accumulate(steps.lengths, initial=steps.start_ns))[:-1]
        for save in saves:
            begun = starts[bisect_right(starts, save.start_ns) - 1] + optimizer_ns // len(starts)
            self.ahead.add(save, begun)
            if of.single and save.ready_made:
                self.ordinary_ahead_ns += ahead_ns(save, begun, ())

    def serializing(self, ordinary: Mapping[Item, float], steps: int, fetches: int) -> dict[Item, float]:
        """What the saves of ordinary steps take beside state `checkpoint`: CPU time and waits for copies from the GPU.
        All ordinary steps are ``steps`` and have ``ordinary``, ``fetches``.

        Where enough steps have no save, it is what steps with one have beyond the others, as far as the saves' records
        leave room for it. Else it is CPU time, by these records alone.
        """
        others = steps - self.ordinary_steps
        if others < LEAST:
            called_ns = by_state(ordinary).get(State.CHECKPOINT, 0.0)
            room = max(0.0, self.ordinary_ns - called_ns) + self.ordinary_ahead_ns
            return _at_most({item: ns for item, ns in ordinary.items() if item in SERIALIZES}, room)
        part = self.ordinary_steps / others
        beyond = {item: (1 + part) * ns - part * ordinary.get(item, 0.0) for item, ns in self.items.items()}
        logged = sum(ns for (state, _, _), ns in beyond.items() if state == State.LOGGING)
        ahead = self.ahead
        if self._evaluates(beyond, self.fetches - part * (fetches - self.fetches)):
            ahead = AheadOfSaves()
        elif logged > LOGGED_NS * self.ordinary_steps:
            ahead = ahead.copied_only()
        inside = max(0, self.ordinary_ns - self.calls_ns)
        copied = _at_most(_of_saves(beyond, COPIES), inside + ahead.copied_ns)
        spent = sum(copied.values())
        cpu = min(inside + ahead.serialized_ns, inside + ahead.ns - spent)
        return copied | _at_most(_of_saves(beyond, SERIALIZES), max(0.0, cpu))

    def _evaluates(self, beyond: Mapping[Item, float], fetches: float) -> bool:
        """Whether evaluations come with the saves: more is fetched, or more is done with gradients off than on."""
        work = _of_saves(beyond, SERIALIZES | COPIES)
        quiet = sum(ns for (_, region, _), ns in work.items() if region == Region.NO_GRAD)
        return fetches > EVALUATED * self.ordinary_steps or 2 * quiet > sum(work.values())

    @property
    def ahead_per_byte(self) -> float | None:
        """ns that serialising one byte before the first open usually takes; None: not known."""
        return median(self.aheads) if self.aheads else None

    @property
    def every(self) -> int | None:
        """Steps between two of them; None: not known, or without a rhythm."""
        return self.memo.get(_every, self.recent)

    @property
    def period_ns(self) -> float:
        """Time between two of them; 0: not known."""
        return self.memo.get(_period_ns, self.recent)


def _every(recent: Iterable[tuple[int, int]]) -> int | None:
    return recurrence([step for step, _ in recent], least=1)


def _period_ns(recent: Iterable[tuple[int, int]]) -> float:
    starts = [start for _, start in recent]
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
