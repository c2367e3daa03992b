"""How often limits are read: each second or two, more often where something fills within seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainprobe.collect.limits import Limits
from trainprobe.collect.source import Sources
from trainprobe.collect.watched import Watched
from trainprobe.model.event import CallFailed, Event, ProcessEvent, ProcessEventKind
from trainprobe.model.moment import NS
from trainprobe.model.sample import LimitSample

FORGOTTEN_NS = 30 * NS  # of many processes, descriptors are counted in turn
LIMITS_NS = NS
FAR_LIMITS_NS = 2 * NS  # while less than half of everything is used, and will be
SOON_SECONDS = 60.0  # growth that reaches a limit in so long is followed from its beginning: a forecast needs points
EARLY_NS = NS // 4  # turns come about once a second: what is due so soon is read in this one
HASTE_SECONDS = 20.0  # and in so long, more closely: turns are taken for it
HASTE_NS = NS // 4
HASTE_LASTS_NS, HASTE_RESTS_NS = 30 * NS, 60 * NS  # what goes up and down all the time is not worth it
NEAR = 0.85  # of a limit of memory: proportional memory is asked more often
HALF, QUICK = 0.5, 0.005  # and where more than half is used, and so much of the limit more than a second before


@dataclass(slots=True)
class _Haste:
    """Something fills within seconds. It does not last: what fills and empties again and again is left to itself."""

    on: bool = False
    until_ns: int = -HASTE_RESTS_NS

    def add_wish(self, at: int, wanted: bool) -> None:
        if wanted and at >= self.until_ns + HASTE_RESTS_NS:
            self.until_ns = at + HASTE_LASTS_NS
        self.on = wanted and at < self.until_ns


@dataclass(slots=True)
class _Used:
    """What was used of each limit a second ago or more, and what follows for when to look again."""

    at_ns: int = 0
    before: dict[tuple[str, str, str, int], tuple[int, int]] = field(default_factory=dict)  # (used, when)

    def near(self, now: Sequence[LimitSample]) -> bool:
        """Whether memory is all but used up, or on its way to be."""
        return any(
            one.used > NEAR * one.limit or (one.used > HALF * one.limit and self._growth(one) > QUICK * one.limit)
            for one in now
            if one.kind == "memory"
        )

    def far(self, now: Sequence[LimitSample]) -> bool:
        """Whether each is known and less than half used."""
        return all(_which(one) in self.before and one.used < HALF * one.limit for one in now)

    def seconds_left(self, now: Sequence[LimitSample], at: int) -> float:
        """Until the first of them is filled at its growth since then."""
        left = [
            (one.limit - one.used) / grown * (at - self.before[_which(one)][1]) / NS
            for one in now
            if (grown := self._growth(one)) > 0
        ]
        return min(left, default=math.inf)

    def keep_readings(self, now: Sequence[LimitSample], at: int) -> None:
        """This is what the next readings are compared with."""
        self.at_ns = at
        self.before = {which: seen for which, seen in self.before.items() if at - seen[1] < FORGOTTEN_NS}
        self.before.update({_which(one): (one.used, at) for one in now})

    def _growth(self, one: LimitSample) -> int:
        return one.used - self.before.get(_which(one), (one.used, 0))[0]


def _which(one: LimitSample) -> tuple[str, str, str, int]:
    return one.run, one.kind, one.place, one.pid


class PacedLimits:
    """Reads limits when they are due, or when an event asks. ``times``: regular pauses are so many times as long."""

    def __init__(self, limits: Limits, sources: Sources) -> None:
        self._limits = limits
        self._sources = sources
        self._due = 0
        self._used = _Used()
        self._haste = _Haste()
        self._glanced: tuple[LimitSample, ...] = ()
        self.times = 1
        self.near = False  # memory is all but used up, or on its way to be
        self.far = True
        self.last: tuple[LimitSample, ...] = ()

    def due_ns(self) -> int | None:
        """When limits want a turn of their own; None: they wait for the next one."""
        return self._due if self._haste.on else None

    def glance(self, watched: Sequence[Watched], at: int) -> None:
        """Read them for ``far``; the next ``read`` gives them."""
        self._glanced = self._read(watched, at, (), placed=True) or self._glanced

    def read(self, watched: Sequence[Watched], at: int, events: Sequence[Event]) -> tuple[LimitSample, ...]:
        found, self._glanced = self._read(watched, at, events) or self._glanced, ()
        return found

    def _read(
        self, watched: Sequence[Watched], at: int, events: Sequence[Event], *, placed: bool = False
    ) -> tuple[LimitSample, ...]:
        asked = {pid for event in events if (pid := _short_of_something(event)) is not None}
        if at < self._due and not asked:
            return ()
        found = self._sources.read("limits", lambda: self._limits.read(watched, at, asked, placed=placed), at) or []
        self.last = tuple(found)
        if at >= self._used.at_ns + (FAR_LIMITS_NS if self._haste.on else LIMITS_NS) - EARLY_NS:
            left = self._used.seconds_left(found, at)
            self.near = self._used.near(found)
            self._haste.add_wish(at, left < HASTE_SECONDS and (self.near or self.times == 1))
            self.far = left > SOON_SECONDS and self._used.far(found)
            self._used.keep_readings(found, at)
        pause = (FAR_LIMITS_NS if self.far else LIMITS_NS) * (1 if self.near else self.times)
        self._due = at + (HASTE_NS if self._haste.on else pause - EARLY_NS)
        return self.last


def _short_of_something(event: Event) -> int | None:
    """The process that ran into a limit."""
    if isinstance(event, CallFailed) or (isinstance(event, ProcessEvent) and event.kind is ProcessEventKind.OOM):
        return event.pid
    return None
