"""More drivers than anybody trains with: some are watched, all are counted, and those that end make room."""

from __future__ import annotations

from collections.abc import Iterable

from tests.builders.driver import PID, Driver, moment, played
from trainprobe.cli.style import Style
from trainprobe.cli.text import ranks_table
from trainprobe.model.event import RankSeen
from trainprobe.model.report import Run
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.run.ranks import DRIVERS, RANKS

RUN = "train.py-0123abcd"


def begun() -> tuple[Driver, Pipeline]:
    driver = Driver()
    driver.begin()
    driver.train(20)
    return driver, played(driver)


def stepped(pipeline: Pipeline, after: Driver, tids: Iterable[int], steps: int = 1) -> list[Driver]:
    """Further threads of the process that make steps."""
    drivers = [Driver(tid=tid, now=after.now) for tid in tids]
    for one in drivers:
        one.train(steps)
        played(one, pipeline)
    return drivers


def only(pipeline: Pipeline, at: int) -> Run:
    (run,) = pipeline.report(moment(at)).runs
    return run


def test_of_many_drivers_of_a_process_some_are_watched_and_all_counted() -> None:
    first, pipeline = begun()
    crowd = stepped(pipeline, first, range(PID + 1, PID + 1500), steps=2)
    run = only(pipeline, crowd[-1].now)
    assert [rank.name for rank in run.ranks] == ["0", *(f"0.{n}" for n in range(1, DRIVERS))]
    assert {rank.steps.count for rank in run.ranks[1:]} == {2}
    assert run.ranks[0].steps.count == 20, "what the others do is not the first one's"
    assert run.totals.ranks == 1500
    told = list(ranks_table(run, run.ranks[0], Style()))
    assert told[0].startswith("1500 ranks")
    assert told[-1] == "  … and 1468 more"


def test_a_driver_whose_thread_has_ended_makes_room_for_the_next() -> None:
    """As where each epoch is a thread of its own."""
    first, pipeline = begun()
    at = first
    for tid in range(PID + 1, PID + 100):
        (at,) = stepped(pipeline, at, [tid], steps=3)
        at.exit()
        at.events.pop()  # of the process: only the thread ends
        played(at, pipeline)
    run = only(pipeline, at.now)
    assert run.totals.ranks == 100
    assert [rank.name for rank in run.ranks] == ["0", *(f"0.{n}" for n in range(101 - DRIVERS, 100))]
    assert run.ranks[-1].steps.count == 3


def test_of_many_processes_of_a_run_some_are_watched_and_those_that_end_make_room() -> None:
    first, pipeline = begun()
    for pid in range(PID + 1, PID + RANKS + 50):
        seen = Driver(pid=pid, tid=pid, now=first.now)
        seen.events.append(RankSeen(RUN, seen.now, pid, None, seen.now, rank=pid - PID))
        seen.train(2)
        played(seen, pipeline)
    run = only(pipeline, first.now)
    assert {rank.pid for rank in run.ranks} == set(range(PID, PID + RANKS))
    assert run.totals.ranks == RANKS + 50
    ended = Driver(pid=PID + 7, tid=PID + 7, now=first.now)
    ended.exit()
    played(ended, pipeline)
    late = Driver(pid=5000, tid=5000, now=ended.now)
    late.events.append(RankSeen(RUN, late.now, 5000, None, late.now, rank=999))
    late.train(2)
    played(late, pipeline)
    pids = {rank.pid for rank in only(pipeline, late.now).ranks}
    assert pids == set(range(PID, PID + RANKS)) - {PID + 7} | {5000}
