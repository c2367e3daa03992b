"""Rows that tell of several steps at once say of a run what a row for each step says."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.driver import Driver, moment, ns
from trainprobe.model.cells import Leaf, RowKind
from trainprobe.model.event import Event, MarkRow
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline

LATE_NS = 400_000_000


def training(rng: random.Random) -> list[Event]:
    """Uneven steps, of which some write, wait, save, or stall."""
    driver = Driver()
    driver.begin()
    for number in range(400):
        what = rng.random() if number > 60 else 1.0
        driver.fetch(rng.uniform(0.001, 0.004))
        driver.spend(rng.uniform(0.02, 0.026))
        if what < 0.01:
            driver.spend(rng.uniform(0.6, 2.0), rng.choice([Leaf.SLEEP, Leaf.SOCKET, Leaf.STOPPED]))
        elif what < 0.02:
            driver.write(f"/save/{number}.pth", 500_000_000, rng.uniform(0.7, 1.5), ino=1000 + number)
        elif what < 0.4:
            driver.write("/log/lines", 100, 0.0001, ino=7, created=False)
        driver.work(rng.uniform(0.01, 0.02), Leaf.CPU)
        driver.backward()
        driver.optimizer(seconds=rng.uniform(0.004, 0.006))
    driver.exit()
    return driver.events


def each_by_itself(events: list[Event]) -> list[Event]:
    """As the kernel tells it where steps have an optimiser."""
    return [one for one in events if not (isinstance(one, MarkRow) and one.kind is RowKind.BACKWARD and one.steps)]


def together(events: list[Event], rng: random.Random) -> list[Event]:
    """What is in time waits for the next ones, up to a second."""
    out: list[Event] = []
    waiting: list[MarkRow] = []
    before = 0

    def tell() -> None:
        if waiting:
            lengths = tuple(b.at_ns - a for a, b in zip([began, *(row.at_ns for row in waiting)], waiting))
            files = tuple(use for row in waiting for use in row.files)
            out.append(replace(waiting[-1], lengths=lengths, files=files))
            waiting.clear()

    began = most = 0
    for one in events:
        if not isinstance(one, MarkRow) or one.kind is not RowKind.OPTIMIZER:
            if isinstance(one, MarkRow):
                tell()
            out.append(one)
            continue
        if one.steps <= 20 or one.at_ns - before >= LATE_NS:
            tell()
            out.append(one)
        else:
            if not waiting:
                began, most = before, rng.randint(1, 20)
            waiting.append(one)
            if len(waiting) >= most:
                tell()
        before = one.at_ns
    tell()
    return sorted(out, key=lambda event: event.at_ns)


def told_of(events: list[Event], rng: random.Random) -> Rank:
    """By frames some seconds apart."""
    pipeline, begin = Pipeline(), 0
    while begin < len(events):
        at = events[begin].at_ns + rng.randint(1, 5 * NS)
        end = next((i for i in range(begin, len(events)) if events[i].at_ns > at), len(events))
        pipeline.step(Frame(moment(max(at, events[end - 1].at_ns)), tuple(events[begin:end])))
        begin = end
    (run,) = pipeline.report(moment(events[-1].at_ns + 1)).runs
    (rank,) = run.ranks
    return rank


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6))
def test_a_run_is_the_same(seed: int) -> None:
    rng = random.Random(seed)
    events = each_by_itself(training(rng))
    singly, at_once = told_of(events, rng), told_of(together(events, rng), rng)
    assert replace(at_once.steps, per_second=None) == replace(singly.steps, per_second=None)
    assert at_once.ledger == pytest.approx(singly.ledger, abs=1e-6)
    assert [one.cause for one in at_once.stalls] == [one.cause for one in singly.stalls]
    assert [one.first_step for one in at_once.stalls] == [one.first_step for one in singly.stalls]
    for one, other in zip(at_once.stalls, singly.stalls):
        assert one.start == pytest.approx(other.start, abs=0.003)
        assert one.seconds == pytest.approx(other.seconds, abs=0.003)
    assert at_once.ordinary.count == singly.ordinary.count
    assert at_once.ordinary.seconds == pytest.approx(singly.ordinary.seconds)
    assert at_once.ordinary.states == pytest.approx(singly.ordinary.states)
    assert at_once.ordinary.fetches == pytest.approx(singly.ordinary.fetches)
    assert at_once.lost == pytest.approx(singly.lost, abs=0.01)
    assert len(at_once.checkpoints) == len(singly.checkpoints)


def test_a_row_that_was_lost_is_no_stall_and_no_ordinary_step() -> None:
    driver = Driver()
    driver.begin()
    driver.train(200)
    events = together(each_by_itself(driver.events), random.Random(3))
    lost = next(one for one in events if isinstance(one, MarkRow) and one.steps > 60 and len(one.lengths) > 5)
    pipeline = Pipeline()
    pipeline.step(Frame(moment(driver.now), tuple(one for one in events if one is not lost)))
    ((rank,),) = (run.ranks for run in pipeline.report(moment(driver.now)).runs)
    assert rank.stalls == []
    assert rank.steps.median_seconds == pytest.approx(0.05)
    assert sum(rank.ledger.values()) == pytest.approx(rank.wall_seconds, abs=0.1)


@pytest.mark.parametrize("kind", [RowKind.GPU, RowKind.RHYTHM])
@pytest.mark.parametrize("lost", [0.0, 3.0], ids=["nothing", "a row"])
def test_many_steps_of_which_one_seems_late_are_no_single_step(kind: RowKind, lost: float) -> None:
    """It was in time by what the kernel was told; steps have become shorter since. Or a row before it was lost."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()

    def step(seconds: float) -> None:
        driver.spend(seconds)
        driver.steps += 1
        driver.row(kind)

    for seconds in (*[0.3] * 30, *[0.15] * 100):
        step(seconds)
    pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
    lengths = (0.15 + lost, 0.3, *[0.15] * 14)
    for seconds in lengths:
        step(seconds)
    row = driver.events[-1]
    assert isinstance(row, MarkRow)
    pipeline.step(Frame(moment(driver.now), (replace(row, lengths=tuple(map(ns, lengths))),)))
    ((rank,),) = (run.ranks for run in pipeline.report(moment(driver.now)).runs)
    assert sum(stall.seconds for stall in rank.stalls) == pytest.approx(lost, abs=0.2)


def test_ordinary_steps_are_rows_of_their_own_length() -> None:
    driver = Driver()
    driver.begin()
    driver.train(30)
    events = together(each_by_itself(driver.events), random.Random(1))
    assert sum(len(row.lengths) > 1 for row in events if isinstance(row, MarkRow))
    pipeline = Pipeline()
    pipeline.step(Frame(moment(driver.now), tuple(events)))
    (steps,) = pipeline.take_steps(moment(driver.now))
    assert len(steps.rows) == 29
    assert all(row.count == 1 and row.seconds == pytest.approx(ns(0.05) / NS) for row in steps.rows)
    assert all(sum(row.states.values()) == pytest.approx(row.seconds) for row in steps.rows)


@pytest.mark.parametrize("steps", [1, 32, 128], ids=["each", "by the second", "by five seconds"])
def test_rows_that_nobody_takes_stay_few(steps: int) -> None:
    """Of a long ``trainprobe run``: however many steps a row of the kernel's tells of, they are kept alike."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    driver.train(40)
    pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
    most = 0
    for _ in range(8_000 // steps):
        driver.events.clear()
        driver.train(steps)
        *_, row = (one for one in driver.events if isinstance(one, MarkRow))
        pipeline.step(Frame(moment(driver.now), (replace(row, lengths=(ns(0.05),) * steps),)))
        ((rank,),) = (run.ranks.live for run in pipeline.runs.values())
        most = max(most, len(rank.progress.buffer.rows))
    (kept,) = pipeline.take_steps(moment(driver.now))
    assert most < 5000
    assert sum(row.count for row in kept.rows) == rank.progress.clock.count - 1
    assert all(one.end == pytest.approx(other.start) for one, other in pairwise(kept.rows))
