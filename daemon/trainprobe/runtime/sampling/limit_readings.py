"""Reads limits when ``LimitSchedule`` says so, and finds how near they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from trainprobe.collect.limits import LimitReader
from trainprobe.collect.source import Sources
from trainprobe.collect.watched import Watched
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed, Event, ProcessEvent, ProcessEventKind
from trainprobe.model.moment import NS
from trainprobe.model.sample import LimitSample
from trainprobe.runtime.schedule import LimitSchedule

ASKED_NS = NS // 4  # between readings that events ask for: anybody can fail in a loop, and those are of all runs
FORGOTTEN_NS = 30 * NS  # of many processes, descriptors are counted in turn
NEAR = 0.85  # of a limit of memory: proportional memory is asked more often
HALF, QUICK = 0.5, 0.005  # and where more than half is used, and so much of the limit more than a second before


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
    """Reads limits when they are due, or when an event asks."""

    def __init__(self, limits: LimitReader, sources: Sources) -> None:
        self._limits = limits
        self._sources = sources
        self._used = _Used()
        self._between: tuple[LimitSample, ...] = ()
        self._asked: set[int] = set()  # by events since the last reading
        self._read_ns = -ASKED_NS
        self.schedule = LimitSchedule()
        self.cgroups = limits.cgroups
        """/proc/PID/cgroup of a process, as it was at the last reading."""
        self.last: tuple[LimitSample, ...] = ()

    def read_between(self, watched: Sequence[Watched], at: int) -> None:
        """Read them for ``schedule.far``; the next ``read`` gives them."""
        self._between = self._read(watched, at, (), placed=True) or self._between

    def read(self, watched: Sequence[Watched], at: int, events: Sequence[Event]) -> tuple[LimitSample, ...]:
        found, self._between = self._read(watched, at, events) or self._between, ()
        return found

    def _read(
        self, watched: Sequence[Watched], at: int, events: Sequence[Event], *, placed: bool = False
    ) -> tuple[LimitSample, ...]:
        self._asked |= {pid for event in events if (pid := _short_of_something(event)) is not None}
        if not (self.schedule.due(at) or (self._asked and at - self._read_ns >= ASKED_NS)):
            return ()
        asked, self._asked, self._read_ns = self._asked, set(), at
        found = self._sources.read("limits", lambda: self._limits.read(watched, at, asked, placed=placed), at) or []
        self.last = tuple(found)
        if at >= self._used.at_ns + self.schedule.compared_ns():
            left, near = self._used.seconds_left(found, at), self._used.near(found)
            self.schedule.judge(at, left, near=near, little_used=self._used.far(found))
            self._used.keep_readings(found, at)
        self.schedule.was_read(at)
        return self.last


def _short_of_something(event: Event) -> int | None:
    if isinstance(event, CallFailed) or (isinstance(event, ProcessEvent) and event.kind is ProcessEventKind.OOM):
        return event.pid
    return None
