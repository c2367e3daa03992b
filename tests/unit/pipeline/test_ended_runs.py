"""Ended runs: what is told of them stays as it was, and what was known is let go."""

from __future__ import annotations

import dataclasses
import gc
import random
import tracemalloc

from tests.builders.driver import Driver, moment, ns, played
from trainprobe.derive.steps.baseline import TOGETHER, WINDOW
from trainprobe.derive.steps.interval import Interval
from trainprobe.model.event import RankSeen, RunEnded, RunStarted
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank, Report, Run
from trainprobe.model.sample import SharedSample
from trainprobe.pipeline import ENDED, SETTLED_NS, Pipeline
from trainprobe.pipeline.pipeline import ENDED_AT_ONCE, ENDED_RANKS, TELLING_NS


def a_run(pipeline: Pipeline, at: int, pid: int = 1000, user: str = "user", name: str = "") -> Driver:
    """A run named after its process, from its start to its end."""
    name = name or f"train.py-{pid}"
    driver = Driver(pid=pid, tid=pid, now=at)
    driver.begin()
    driver.train(60)
    driver.write("/out/model.pth", 200_000_000, 0.6, 0.5, 0.1)
    driver.train(20)
    driver.exit()
    driver.events = [
        dataclasses.replace(event, run=name) if hasattr(event, "run") else event for event in driver.events
    ]
    driver.events = [
        dataclasses.replace(event, user=user) if isinstance(event, RunStarted) else event for event in driver.events
    ]
    driver.events.append(RunEnded(name, driver.now))
    played(driver, pipeline)
    return driver


def later(pipeline: Pipeline, at: int) -> Report:
    pipeline.step(Frame(moment(at)))
    return pipeline.report(moment(at))


def only(report: Report) -> Run:
    (run,) = report.runs
    return run


def test_what_is_told_of_a_run_stays_as_it_was_at_its_end() -> None:
    pipeline = Pipeline()
    driver = a_run(pipeline, 10 * NS)
    at_its_end = only(pipeline.report(moment(driver.now)))
    assert at_its_end.ranks[0].stalls
    before, after = (only(later(pipeline, driver.now + SETTLED_NS + more)) for more in (-ns(1), ns(1)))
    assert before == after == at_its_end
    assert not pipeline.runs


def test_a_process_that_has_ended_holds_on_to_no_ledgers_of_its_steps() -> None:
    """Each is two kilobytes, and one user may have hundreds of drivers; the figures made of them stay."""
    driver = Driver()
    driver.begin()
    driver.train(200)
    pipeline = played(driver)
    going = sum(isinstance(one, Interval) for one in gc.get_objects())
    driver.exit()
    played(driver, pipeline)
    gc.collect()
    left = sum(isinstance(one, Interval) for one in gc.get_objects())
    assert left <= going - WINDOW // TOGETHER
    (rank,) = pipeline.report(moment(driver.now)).runs[0].ranks
    assert rank.steps.count == 200
    assert rank.ordinary.states["compute"] > 0.01


def test_a_settled_run_is_one_block_until_somebody_looks() -> None:
    pipeline = Pipeline()
    driver = a_run(pipeline, 10 * NS)
    told = only(later(pipeline, driver.now + SETTLED_NS + ns(1)))
    gc.collect()
    before = sum(isinstance(one, Rank) for one in gc.get_objects())
    (run,) = pipeline.report(moment(driver.now + SETTLED_NS + ns(2)), reuse=True).runs
    assert sum(isinstance(one, Rank) for one in gc.get_objects()) == before
    assert (len(run.ranks), list(run.ranks), run.ranks[0], run.ranks[:1]) == (1, told.ranks, told.ranks[0], told.ranks)


def test_a_pid_that_comes_again_is_of_the_later_run() -> None:
    pipeline = Pipeline()
    first = a_run(pipeline, 10 * NS, name="train.py-first")
    at_its_end = only(pipeline.report(moment(first.now)))
    second = a_run(pipeline, first.now + NS, name="train.py-second")
    before, after = pipeline.report(moment(second.now)).runs
    assert before == at_its_end
    assert (after.run, after.ranks[0].steps) == ("train.py-second", before.ranks[0].steps)
    assert after.ranks[0].exit is not None


def test_a_run_that_has_not_ended_is_not_settled() -> None:
    driver = Driver()
    driver.begin()
    driver.train(60)
    pipeline = played(driver)
    later(pipeline, driver.now + 2 * SETTLED_NS)
    assert list(pipeline.runs) == ["train.py-0123abcd"]


def test_a_crash_loop_for_hours_leaves_sixteen_runs_and_no_memory() -> None:
    pipeline, at, grown, last = Pipeline(), 10 * NS, [], 1000 + 3 * ENDED - 1
    tracemalloc.start()
    try:
        for pid in range(1000, last + 1):
            at = a_run(pipeline, at, pid).now + SETTLED_NS // 4
            grown.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    report = pipeline.report(moment(at))
    assert [run.run for run in report.runs] == [f"train.py-{pid}" for pid in range(last - ENDED, last + 1)]
    per_run = (grown[-1] - grown[ENDED]) / (len(grown) - 1 - ENDED)
    assert per_run < 3_000


def test_shared_memory_is_told_of_as_long_as_a_run_that_saw_it() -> None:
    pipeline, at = Pipeline(), 10 * NS
    for pid in range(1000, 1000 + 2 * ENDED):
        driver = a_run(pipeline, at, pid)
        shared = SharedSample(f"0:{pid}", f"container-{pid}", 1 << 20, 0, runs=(f"train.py-{pid}",))
        pipeline.step(Frame(moment(driver.now), shared=(shared,)))
        at = driver.now + NS
    pipeline.step(Frame(moment(at), (RunStarted("train.py-last", at, 1, ("python",), "user", "/"),)))
    assert len(pipeline.report(moment(at)).shared_memory) == ENDED


def test_a_users_crash_loop_takes_no_other_users_place() -> None:
    pipeline, at = Pipeline(), 10 * NS
    for pid in range(1000, 1000 + 2 * ENDED):
        at = a_run(pipeline, at, pid, user="colleague" if pid in (1000, 1005) else "loop").now + NS
    users = [run.user for run in pipeline.report(moment(at)).runs]
    assert users.count("colleague") == 2
    assert len(users) <= ENDED + 1


def end_together(pipeline: Pipeline, at: int, runs: int, user: str) -> int:
    """Runs of a sweep end; a moment later the next one begins, before a report is made. When that is."""
    names = [f"{user}-{at}-{number}" for number in range(runs)]
    pipeline.step(Frame(moment(at), tuple(RunStarted(name, at, 1, ("python",), user, "/") for name in names)))
    at += NS
    pipeline.step(Frame(moment(at), tuple(RunEnded(name, at - NS // 2) for name in names)))
    pipeline.step(Frame(moment(at + 1), (RunStarted(f"{user}-next", at, 1, ("python",), user, "/"),)))
    return at + 1


def ended(pipeline: Pipeline, at: int, user: str) -> int:
    report = pipeline.report(moment(at))
    return sum(run.user == user and run.ended is not None for run in report.runs)


def test_runs_that_end_together_are_reported_as_ended_before_they_are_forgotten() -> None:
    pipeline = Pipeline()
    at = end_together(pipeline, 10 * NS, 3 * ENDED, "sweep")
    assert ended(pipeline, at + TELLING_NS // 2, "sweep") == 3 * ENDED
    at = end_together(pipeline, at + TELLING_NS, 1, "colleague")
    assert ended(pipeline, at, "sweep") + ended(pipeline, at, "colleague") == ENDED


def test_runs_that_end_all_the_time_are_bounded_and_take_no_other_users_place() -> None:
    pipeline = Pipeline()
    at = end_together(pipeline, 10 * NS, ENDED - 1, "colleague") + TELLING_NS
    for _ in range(4):
        at = end_together(pipeline, at, ENDED_AT_ONCE // 2, "loop")
        pipeline.runs.pop("loop-next")
    assert ENDED_AT_ONCE - ENDED <= ended(pipeline, at, "loop") <= ENDED_AT_ONCE - ENDED + 1
    assert ended(pipeline, at, "colleague") == ENDED - 1


def test_runs_of_many_ranks_leave_no_more_of_them_than_few_have() -> None:
    """Each rank's report is some 20 kB, and those of the exporter as much again: 8 runs of 8 ranks, or one of more."""
    pipeline, at = Pipeline(), 10 * NS
    ranks = random.randrange(20, 60)
    for number in range(12):
        for user, several in (("crowd", ranks), ("colleague", 1)):
            name, pids = f"{user}-{number}", range(1000 * (number + 1), 1000 * (number + 1) + several)
            seen = (RankSeen(name, at, pid, None, at, rank=rank) for rank, pid in enumerate(pids))
            pipeline.step(Frame(moment(at), (RunStarted(name, at, 1, ("python",), user, "/"), *seen)))
            pipeline.step(Frame(moment(at + NS), (RunEnded(name, at),)))
            at += SETTLED_NS
        runs = [run for run in pipeline.report(moment(at)).runs if run.ended is not None]
        assert sum(len(run.ranks) for run in runs if run.user == "crowd") <= ENDED_RANKS + ranks
        assert len([run for run in runs if run.user == "crowd"]) >= 1
        assert len([run for run in runs if run.user == "colleague"]) == min(number + 1, ENDED - 2)
