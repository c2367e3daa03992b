"""The time to the first step, in parts: imports, data set, restore, workers, compile, other. They add up to it.

The files that the main thread opened show what it did. Where two parts overlap, the more specific one has the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainprobe.derive.files.purpose import FileRules, is_restored
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import OpenedKind, StartSeen
from trainprobe.model.moment import NS
from trainprobe.model.report import Restore, Startup

BRIDGE_NS = NS
"""Two openings of code with none of data between them are one activity where they are no further apart …"""
LIBRARY_NS = 3 * NS
"""… or the first is a shared library, which is mapped, relocated and initialised."""
DATA_NS = NS // 4
"""The same of data, whose reads count already."""
BRIEF_NS = NS // 20
"""Data that is opened between two files of code for no longer than this is the module's own."""
BEFORE_NS = NS // 2
"""The interpreter's own start is the first import's."""

Part = tuple[int, int]
"""Begin and end, ns."""


@dataclass(frozen=True, slots=True)
class BeforeFirstStep:
    """Other facts about the time before the first step, in ns."""

    begin: int
    end: int  # the first step
    compiling: Sequence[Part] = ()
    forks: Sequence[int] = ()  # of workers
    fetches: int = 0  # in fetches


def startup(start: StartSeen, before: BeforeFirstStep, rules: FileRules) -> Startup:
    activities = _activities(start, before)
    restored = [(file.opened_ns, file.last_ns) for file in start.files if is_restored(file.path, rules)]
    ordered = (
        ("compile", list(before.compiling)),
        ("restore", restored),
        ("workers", _workers(before)),
        ("imports", activities[True]),
        ("dataset", activities[False]),
    )
    spent: dict[str, float] = {}
    covered: list[Part] = []
    for name, parts in ordered:
        total = _length(covered)
        covered = _union([*covered, *_within(parts, before)])
        spent[name] = (_length(covered) - total) / NS
    return Startup(**spent, other=max(0, before.end - before.begin - _length(covered)) / NS)


def restores(start: StartSeen, before: BeforeFirstStep, rules: FileRules) -> list[Restore]:
    found: dict[str, Restore] = {}
    for file in start.files:
        if is_restored(file.path, rules) and file.opened_ns < before.end:
            one = found.setdefault(file.path, Restore(file.path, 0, 0.0))
            one.bytes = (one.bytes or 0) + file.bytes
            one.seconds = (one.seconds or 0.0) + (file.last_ns - file.opened_ns) / NS
    for one in found.values():
        if not one.bytes:  # mapped, or the reads were not watched
            one.bytes = one.seconds = None
    return list(found.values())


def _activities(start: StartSeen, before: BeforeFirstStep) -> dict[bool, list[Part]]:
    """The parts in which code (True) and data (False) was opened."""
    spans = [
        (span.kind is not OpenedKind.DATA, span.kind is OpenedKind.LIBRARY, span.begin_ns, span.end_ns)
        for span in start.spans
        if span.begin_ns < before.end
    ]
    out: dict[bool, list[Part]] = {True: [], False: []}
    latest: tuple[bool, bool, int, int] | None = None
    for place, span in enumerate(spans):
        code, library, begin, end = span
        following = spans[place + 1] if place + 1 < len(spans) else None
        if latest is not None and latest[0] and not code and following is not None and following[0]:
            code = end - begin < BRIEF_NS and following[2] - latest[3] < BRIDGE_NS
        if latest is None and begin - before.begin < BEFORE_NS:
            begin = before.begin
        if latest is not None and latest[0] == code and begin - latest[3] <= _bridge_ns(code, latest[1]):
            begin = latest[3]
        out[code].append((begin, end))
        latest = (code, library, begin, end)
    return out


def _bridge_ns(code: bool, library: bool) -> int:
    """How far apart two openings of one activity may be; ``library``: the first is one."""
    if not code:
        return DATA_NS
    return LIBRARY_NS if library else BRIDGE_NS


def _workers(before: BeforeFirstStep) -> list[Part]:
    """From the first one's start to the last one's, and until the first batches were there."""
    if not before.forks:
        return []
    return [(before.forks[0], min(before.end, before.forks[-1] + before.fetches))]


def _within(parts: Iterable[Part], before: BeforeFirstStep) -> list[Part]:
    clipped = ((max(begin, before.begin), min(end, before.end)) for begin, end in parts)
    return [(begin, end) for begin, end in clipped if end > begin]


def _union(parts: Iterable[Part]) -> list[Part]:
    """The same time in parts that are in order and apart."""
    out: list[Part] = []
    for begin, end in sorted(parts):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def _length(parts: Iterable[Part]) -> int:
    return sum(end - begin for begin, end in parts)
