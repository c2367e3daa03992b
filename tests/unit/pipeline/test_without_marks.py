"""Trainings whose steps nothing marks, with libtorch mapped or not: what is told of them, and what stays start-up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.builders.driver import Driver, ns, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf
from trainprobe.model.event import RankSeen, StackSeen
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline

MAPPED = "libtorch is mapped, but no optimizer step and no backward was seen"
UPDATES = ("<module> (train.py:9)", "update (spacy/language.py:1190)")
TOKENIZES = ("<module> (train.py:4)", "load (train.py:12)")
SIZE = 4_000_000


class Unmarked:
    """A driver in whose process libtorch is mapped. No step is marked."""

    def __init__(self, marks: str = "") -> None:
        self.driver, self.pipeline = Driver(), Pipeline()
        self.driver.begin()
        (self.seen,) = (event for event in self.driver.events if isinstance(event, RankSeen))
        if marks:
            self.driver.events.append(replace(self.seen, marks=marks))

    def second(self, leaf: Leaf = Leaf.CPU, spent: float = 0.0) -> None:
        self.driver.spend(spent, leaf)
        self.driver.spend(1.0 - spent)
        played(self.driver, self.pipeline, threads=(self.driver.sample(),))

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def save(self, path: str = "/run/model.joblib", each: float = 0.25) -> None:
        """A second with a save in it, as joblib writes: computing between its calls."""
        self.driver.write(path, SIZE, 0.01, gap=each - 0.01)
        self.second(spent=0.0)

    def stack(self, frames: tuple[str, ...]) -> None:
        self.driver.events.append(StackSeen(self.driver.now, self.driver.pid, self.driver.tid, frames))

    def rank(self) -> Rank:
        return rank_of(self.pipeline, self.driver)

    def ended(self, code: int = 0) -> Rank:
        """The process ends; until then nothing marked a step."""
        self.driver.events.append(replace(self.seen, at_ns=self.driver.now, marks=MAPPED))
        self.driver.exit(code, shutdown=0.1)
        rank = rank_of(played(self.driver, self.pipeline), self.driver)
        adds_up(rank)
        return rank


def startup(rank: Rank) -> float:
    return rank.counters.phase_seconds["startup"]


def test_a_process_that_ends_well_without_a_step_had_no_endless_start() -> None:
    run = Unmarked()
    run.seconds(20)
    run.second(Leaf.SOCKET, 0.8)
    run.seconds(9)
    assert startup(run.rank()) == pytest.approx(30, abs=1.5), "a step may still come"
    assert run.rank().stalls == []
    rank = run.ended()
    assert startup(rank) == pytest.approx(10, abs=1.5)
    assert rank.steps.source == "rhythm"
    assert rank.steps.reason.startswith(MAPPED)
    assert rank.lost == {"network": pytest.approx(0.8, abs=0.01)}
    assert rank.productive_seconds == pytest.approx(rank.wall_seconds - startup(rank) - 0.8, abs=0.01)


def test_one_that_fails_before_its_first_step_was_starting() -> None:
    run = Unmarked()
    run.seconds(20)
    run.second(Leaf.SOCKET, 0.8)
    rank = run.ended(1)
    assert startup(rank) == pytest.approx(rank.wall_seconds)
    assert (rank.lost, rank.stalls, rank.steps.source) == ({}, [], "none")
    assert "before the first training step" in rank.verdict.summary


@pytest.mark.parametrize("frames", [UPDATES, TOKENIZES])
def test_the_loop_of_a_library_without_torch_ends_the_start(frames: tuple[str, ...]) -> None:
    run = Unmarked()
    run.seconds(20)
    for _ in range(2):
        run.stack(frames)
        run.seconds(10)
    begun = startup(run.rank())
    assert begun == (pytest.approx(10, abs=1.5) if frames is UPDATES else pytest.approx(40, abs=1.5))


@pytest.mark.parametrize("again", [True, False])
def test_the_same_checkpoint_again_and_again_ends_the_start(again: bool) -> None:
    """A long start writes what it makes once, in parts perhaps."""
    run = Unmarked()
    run.seconds(12)
    for number in range(4):
        run.save("/run/model.joblib" if again else f"/run/part-{number}.cache")
        run.seconds(2)
    rank = run.rank()
    assert (rank.steps.source == "rhythm") == again
    assert startup(rank) == (pytest.approx(10, abs=1.5) if again else pytest.approx(25, abs=1.5))
    assert len(rank.checkpoints) == (4 if again else 0)


def test_a_late_first_step_makes_all_before_it_the_start() -> None:
    run = Unmarked()
    run.seconds(20)
    for _ in range(4):
        run.save()
    run.second(Leaf.SOCKET, 0.8)
    assert run.rank().steps.source == "rhythm"
    assert run.rank().lost
    begun = run.driver.now
    run.driver.train(60)
    rank = run.ended()
    assert rank.steps.source == "autograd"
    assert rank.stalls == rank.bottlenecks == []
    assert startup(rank) >= (begun - run.driver.now + ns(rank.wall_seconds)) / 1e9 - 0.1


@pytest.mark.parametrize("marks", ["no libtorch mapped", ""])
@pytest.mark.parametrize("short", [True, False])
def test_saves_that_come_often_are_lost_time(marks: str, short: bool) -> None:
    """As stalls, or where each is too short for one as a bottleneck."""
    each = random.uniform(0.03, 0.045) if short else random.uniform(0.1, 0.25)
    run = Unmarked(marks)
    run.seconds(12)
    for _ in range(40):
        run.save(each=each)
    rank = run.ended()
    assert rank.lost == {"checkpoint": pytest.approx(40 * each, rel=0.05)}
    assert rank.verdict.cause == "checkpoint"
    assert "of each ordinary step" not in rank.verdict.summary
    assert sum(save.blocked_seconds for save in rank.checkpoints) == pytest.approx(40 * each, rel=0.05)
    if short:
        (found,) = rank.bottlenecks
        assert "40 saves, one every" in found.summary
        assert rank.stalls == []


def test_a_save_that_is_a_stall_is_not_lost_twice() -> None:
    run = Unmarked("no libtorch mapped")
    run.seconds(20)
    run.driver.write("/run/model.pt", SIZE, 0.7)
    run.second()
    run.seconds(5)
    rank = run.ended()
    assert rank.lost == {"checkpoint": pytest.approx(0.7, abs=0.05)}


@pytest.mark.parametrize(
    ("leaf", "share", "cause"),
    [
        (Leaf.RUNQUEUE, 0.3, "cpu_contention"),
        (Leaf.RUNQUEUE, 0.02, None),
        (Leaf.THROTTLED, 0.2, "cpu_throttled"),
        (Leaf.SOCKET, 0.3, None),
    ],
)
def test_what_each_second_waits_for_a_processor_is_lost_however_usual(
    leaf: Leaf, share: float, cause: str | None
) -> None:
    """Of another wait nobody knows whether it is the program's own way of waiting for its work."""
    run = Unmarked("no libtorch mapped")
    for _ in range(40):
        run.second(leaf, share)
    rank = run.ended()
    assert [one.cause for one in rank.bottlenecks] == ([cause] if cause else [])
    assert rank.verdict.cause == cause
    if cause:
        judged = sum(rank.lost.values()) / share
        assert 25 <= judged <= 40
        assert "ordinary step" not in rank.verdict.summary
