"""How often does the daemon get up for a training? Counts, which no machine's speed changes: each turn is paid for."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from tests.builders.driver import PID, Driver, ns
from tests.unit.runtime.fakes import FakeClock, FakeKernel, FakeSampler, FakeStacks, FakeTargets
from trainprobe.collect.source import Sources
from trainprobe.model.event import Event, MarkRow
from trainprobe.model.frame import Frame, FrameSamples
from trainprobe.model.moment import NS, Moment
from trainprobe.model.sample import LimitSample
from trainprobe.model.step_deadline import Armed
from trainprobe.pipeline import Pipeline
from trainprobe.runtime.observer import Observer, Outlets, Parts
from trainprobe.runtime.sampling.limit_readings import PacedLimits
from trainprobe.runtime.schedule import DETAIL_NS

SETTLED = 3 * 60  # seconds
MINUTES = 4
SLOW = 0.2  # seconds of a step, where it does not matter how many there are
RUN = "train.py-0123abcd"


@dataclass
class Training(FakeKernel):
    """A kernel with one training of some 20 steps a second, or of one each so many ``seconds``; ``late``: seconds from
    one late step to the next."""

    late: float | None = None
    seconds: float = 0.05
    driver: Driver = field(default_factory=Driver)
    limits: dict[int, int] = field(default_factory=dict)
    late_ns: int = 0
    row_ns: int = 0  # the last one

    def __post_init__(self) -> None:
        super().__init__()
        self.driver.begin()
        self.late_ns = self.driver.now + ns(SETTLED)

    def go_on(self) -> bool:
        """One more step; whether the kernel wakes the daemon as it ends."""
        began = len(self.driver.events)
        self.driver.step(self.seconds - 0.026 + random.uniform(-0.002, 0.002))
        if self.late is not None and self.driver.now >= self.late_ns:
            self.late_ns = self.driver.now + ns(self.late * random.uniform(0.8, 1.2))
            self.driver.spend(random.uniform(0.08, 0.14))
        rows = [self.row_ns, *(one.at_ns for one in self.driver.events[began:] if isinstance(one, MarkRow))]
        self.row_ns = rows[-1]
        limit = self.limits.get(self.driver.tid)
        return self.tells_ended and limit is not None and any(b - a >= limit for a, b in pairwise(rows))

    def alarm(self, steps: Collection[Armed], *, ended: bool, together: bool) -> bool:
        self.limits = {one.tid: one.limit_ns - one.began_ns for one in steps}
        return super().alarm(steps, ended=ended, together=together)

    def drain(self) -> list[Event]:
        events, self.driver.events = self.driver.events, []
        return events


class Watched:
    """A training and the daemon's observer with it, in time of their own."""

    def __init__(self, kernel: Training, sampler: FakeSampler | None = None) -> None:
        self.kernel, self.clock = kernel, FakeClock()
        self.frames: list[Frame] = []
        self.turns: list[int] = []
        self.observer = Observer(
            Parts(kernel, FakeTargets(), sampler or FakeSampler(), FakeStacks(), Pipeline(), Sources(), self.clock),
            Outlets(self.frames.append),
        )
        self.begin = self.clock.ns = kernel.driver.now

    def until(self, seconds: float) -> None:
        """Since the beginning."""
        while self.clock.ns < self.begin + ns(seconds):
            woken = False
            while not woken and self.kernel.driver.now < self.observer.due_ns():
                woken = self.kernel.go_on()
            self.turn(self.kernel.driver.now if woken else self.observer.due_ns(), woken=woken)

    def scrape(self, at_ns: int) -> None:
        """The last turn was before that moment, and the next one is after it."""
        while (due := max(self.clock.ns, self.observer.due_ns())) < at_ns:
            while self.kernel.driver.now < due:
                self.kernel.go_on()
            self.turn(due, woken=False)
        self.clock.ns = max(self.clock.ns, at_ns)

    def turn(self, at_ns: int, *, woken: bool) -> None:
        self.clock.ns = max(at_ns, self.kernel.driver.now)
        self.turns.append(self.clock.ns)
        self.observer.turn(woken=woken)


class FillingShm:
    """A /dev/shm that is full in so many seconds, from a moment on."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.since_ns = seconds, 1 << 62
        self.cgroups = None

    def read(self, _: object, now_ns: int, __: object, *, placed: bool = False) -> list[LimitSample]:
        del placed
        part = min(1.0, 0.1 + 0.9 * max(0, now_ns - self.since_ns) / ns(self.seconds))
        return [LimitSample(RUN, "shm", int(part * (1 << 30)), 1 << 30, "host", "0:25", PID)]


class LimitSampler(FakeSampler):
    """Reads limits alone."""

    def __init__(self, limits: FillingShm) -> None:
        self.limits = PacedLimits(limits, Sources())  # type: ignore[arg-type]

    def read(self, now: Moment, watched: Sequence[Any], events: Sequence[Event]) -> FrameSamples:
        return FrameSamples(limits=self.limits.read(watched, now.monotonic_ns, events))

    def read_limits(self, now: Moment, watched: Sequence[Any]) -> None:
        self.limits.read_between(watched, now.monotonic_ns)

    def due_ns(self) -> int | None:
        return self.limits.schedule.wanted_ns()

    @property
    def far(self) -> bool:  # type: ignore[override]
        return self.limits.schedule.far


def minutes_of(kernel: Training) -> list[tuple[int, int]]:
    """(turns, looks) of each minute, from the one on in which it is settled."""
    watched = Watched(kernel)
    watched.until(SETTLED + 60 * MINUTES)
    edges = [watched.begin + ns(SETTLED + 60 * minute) for minute in range(MINUTES + 1)]
    looks = [frame.at.monotonic_ns for frame in watched.frames]
    every = watched.turns, looks
    return [tuple(sum(a <= at < b for at in some) for some in every) for a, b in pairwise(edges)]  # type: ignore[misc]


def test_an_even_training_is_looked_at_twice_a_minute() -> None:
    """And its limits are read between: each eight seconds."""
    for turns, looks in minutes_of(Training()):
        assert looks <= 3
        assert turns <= 8


@pytest.mark.parametrize("apart", [15, 30, 60])
def test_each_scrape_finds_as_much_more_as_it_comes_later(apart: int) -> None:
    """Looks are not in step with scrapes, however long ago their first one was."""
    watched = Watched(Training(seconds=SLOW))
    watched.until(SETTLED + random.uniform(0, 60))
    first, found = watched.clock.ns, []
    for number in range(20):
        watched.scrape(first + ns(apart * number + random.uniform(-0.1, 0.1)))
        found.append(watched.frames[-1].at.monotonic_ns)
        watched.observer.look_sooner()
    assert [b - a for a, b in pairwise(found[2:])] == pytest.approx([ns(apart)] * 17, abs=ns(0.5))


def test_a_late_step_now_and_then_costs_a_few_looks() -> None:
    for turns, looks in minutes_of(Training(late=random.uniform(45, 60))):
        assert 3 <= looks <= 22
        assert turns <= 45


def test_a_training_that_has_become_late_all_the_time_is_soon_looked_at_each_second() -> None:
    for _, looks in minutes_of(Training(late=random.uniform(5, 10)))[1:]:
        assert looks >= 50


def test_a_step_that_hangs_while_looks_are_farthest_apart_gets_ten_looks_a_second() -> None:
    watched = Watched(Training())
    watched.until(SETTLED)
    kernel, driver = watched.kernel, watched.kernel.driver
    kernel.go_on()
    looks, limit = len(watched.frames), kernel.limits[driver.tid]
    driver.spend((limit + ns(random.uniform(0.15, 0.35))) / NS)  # the kernel's clock sees it
    kernel.samples = [driver.sample()]
    watched.turn(driver.now, woken=True)
    assert len(watched.frames) == looks + 1
    for _ in range(10):
        before = watched.clock.ns
        driver.spend((watched.observer.due_ns() - before) / NS)
        kernel.samples = [driver.sample()]
        watched.turn(driver.now, woken=False)
        assert watched.clock.ns - before <= DETAIL_NS
    assert len(watched.frames) == looks + 11


@pytest.mark.parametrize("after", range(0, 30, 3))
def test_what_fills_between_looks_that_are_farthest_apart_is_warned_of(after: float) -> None:
    """Which it does in a quarter of a minute, whenever it begins."""
    filling = FillingShm(15.0)
    watched = Watched(Training(), LimitSampler(filling))
    filling.since_ns = watched.begin + ns(SETTLED + after)
    watched.until(SETTLED + after + 14)
    (run,) = watched.observer.report().runs
    assert [one.cause for rank in run.ranks for one in rank.warnings] == ["shm_exhaustion"]
