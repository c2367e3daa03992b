"""A report is made of the parts of the report before, where nothing in them has changed."""

from __future__ import annotations

from collections.abc import Callable

from tests.builders.driver import Driver, moment, played
from trainprobe.model.event import RankSeen, RunStarted
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank, Report, Run
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.pipeline import MADE_ANEW


def save(driver: Driver, number: int, steps: int = 12) -> None:
    driver.train(steps)
    driver.fetch()
    driver.backward()
    driver.optimizer()
    driver.write(f"/out/epoch_{number}.pth", 246_000_000, 0.3, 0.9)
    driver.train(2)


def saving(count: int) -> tuple[Driver, Pipeline]:
    driver = Driver()
    driver.begin()
    driver.train(60)
    for number in range(count):
        save(driver, number)
    return driver, played(driver)


def report(driver: Driver, pipeline: Pipeline, *, reuse: bool = False, later_ns: int = 0) -> Run:
    made: Report = pipeline.report(moment(driver.now + later_ns), reuse=reuse)
    return made.runs[0]


def made_anew(before: Rank, after: Rank, entries: Callable[[Rank], list[object]]) -> int:
    known = set(map(id, entries(before)))
    return sum(id(one) not in known for one in entries(after))


def test_stalls_and_checkpoints_that_have_ended_are_the_same_objects_in_the_next_report() -> None:
    driver, pipeline = saving(60)
    (first,) = report(driver, pipeline).ranks
    driver.step()
    (again,) = report(driver, played(driver, pipeline)).ranks
    assert len(again.stalls) == len(again.checkpoints) == 60
    assert made_anew(first, again, lambda rank: list(rank.stalls)) == 0
    assert made_anew(first, again, lambda rank: list(rank.checkpoints)) == 0


def test_one_more_stall_makes_few_objects_anew() -> None:
    """It, and those whose black box it takes."""
    driver, pipeline = saving(100)
    anew = []
    for number in range(20):
        (before,) = report(driver, pipeline).ranks
        save(driver, 100 + number)
        (after,) = report(driver, played(driver, pipeline)).ranks
        assert len(after.stalls) == 101 + number
        assert made_anew(before, after, lambda rank: list(rank.checkpoints)) == 1
        anew.append(made_anew(before, after, lambda rank: list(rank.stalls)))
    assert sorted(anew)[len(anew) // 2] <= 3


def test_what_all_stalls_of_a_cause_say_keeps_up_with_the_run() -> None:
    driver, pipeline = saving(60)
    before = report(driver, pipeline).ranks[0].stalls[5]
    driver.train(2000)
    after = report(driver, played(driver, pipeline)).ranks[0].stalls[5]
    assert before.id == after.id
    assert before.summary != after.summary


def test_a_run_of_even_steps_is_reused_for_a_second() -> None:
    driver, pipeline = saving(20)
    first = report(driver, pipeline, reuse=True)
    driver.train(5)
    assert report(driver, played(driver, pipeline), reuse=True) is first
    assert report(driver, pipeline) is not first, "the last report is of the last moment"
    latest = report(driver, pipeline)
    assert report(driver, pipeline, reuse=True, later_ns=NS) is not latest


def many(count: int) -> tuple[list[Driver], Pipeline]:
    """Runs that train alike."""
    pipeline, drivers = Pipeline(), []
    for number in range(count):
        driver, run = Driver(pid=1000 + number, tid=1000 + number), f"train.py-{number:08x}"
        driver.events = [
            RunStarted(run, driver.now, driver.pid, ("python", "train.py"), "user", "/home/user"),
            RankSeen(run, driver.now, driver.pid, None, driver.now),
        ]
        driver.train(20)
        drivers.append(driver)
        played(driver, pipeline)
    return drivers, pipeline


def test_of_many_runs_without_news_a_few_are_made_anew_each_in_its_turn() -> None:
    drivers, pipeline = many(60)
    now, made = drivers[0].now, []
    before = pipeline.report(moment(now), reuse=True).runs
    for turn in range(1, 11):
        after = pipeline.report(moment(now + turn * NS), reuse=True).runs
        made.append([one is not two for one, two in zip(before, after)])
        before = after
    assert [sum(turn) for turn in made] == [MADE_ANEW] * 10
    assert all(sum(ofone) == 2 for ofone in zip(*made)), "each in every fifth report"
    last = pipeline.report(moment(now + 11 * NS)).runs
    assert not set(map(id, last)) & set(map(id, before)), "the last report is of the last moment"


def test_news_is_told_at_once_also_among_many_runs() -> None:
    drivers, pipeline = many(40)
    pipeline.report(moment(drivers[0].now), reuse=True)
    drivers[30].exit()
    played(drivers[30], pipeline)
    runs = pipeline.report(moment(drivers[0].now + 5 * NS), reuse=True).runs
    assert runs[30].ranks[0].exit is not None


def test_a_run_with_news_is_made_anew() -> None:
    driver, pipeline = saving(20)
    first = report(driver, pipeline, reuse=True)
    save(driver, 20, steps=2)
    second = report(driver, played(driver, pipeline), reuse=True)
    assert len(second.ranks[0].stalls) == len(first.ranks[0].stalls) + 1
    driver.exit()
    third = report(driver, played(driver, pipeline), reuse=True)
    assert third is not second
    assert third.ranks[0].exit is not None
    assert third.ranks[0].exit.code == 0
