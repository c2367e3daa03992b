"""Runs of one job: each is the next attempt of the one before, also where an earlier daemon saw that."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders.driver import Driver, moment, ns, played
from trainprobe.model.event import Event, RunEnded, RunStarted, StartSeen
from trainprobe.model.frame import Frame
from trainprobe.model.goodput import Goodput, Outcome, Progress
from trainprobe.model.moment import NS
from trainprobe.model.report import Run
from trainprobe.model.resume_state import ResumedJob
from trainprobe.pipeline import SETTLED_NS, Pipeline
from trainprobe.pipeline.jobs import KEPT, Jobs
from trainprobe.pipeline.pipeline import ENDED_AT_ONCE

JOB, LAST = "train.py-0123abcd", "/out/last.pt"
ENDED_BEFORE = Progress(outcome=Outcome.FAILED, until=1000.0)


def an_attempt(pipeline: Pipeline, at: int, name: str, *, job: str = JOB) -> Driver:
    """Ten seconds or so with one checkpoint in the middle, killed at the end."""
    pid = at // NS
    driver = Driver(pid=pid, tid=pid, now=at)
    driver.begin()
    driver.events.append(StartSeen(driver.now, pid, at, (), ()))
    driver.train(80)
    driver.write(LAST, 200_000_000, 0.6, 0.5, 0.1)
    driver.train(60)
    driver.exit(code=None, signal=9, shutdown=0.0)
    driver.events.append(RunEnded(name, driver.now))
    events = [dataclasses.replace(event, run=name) if hasattr(event, "run") else event for event in driver.events]
    driver.events = [dataclasses.replace(e, job=job) if isinstance(e, RunStarted) else e for e in events]
    played(driver, pipeline)
    return driver


def runs(pipeline: Pipeline, at: int) -> list[Run]:
    return pipeline.report(moment(at)).runs


def test_the_second_launch_goes_on_with_the_account_of_the_first() -> None:
    pipeline = Pipeline()
    first = an_attempt(pipeline, 1000 * NS, "train.py-1")
    (alone,) = runs(pipeline, first.now)
    assert alone.goodput.wasted_progress_seconds == pytest.approx(60 * 0.05, abs=0.2)
    second = an_attempt(pipeline, first.now + ns(4), "train.py-2")
    one, two = runs(pipeline, second.now)
    assert one.goodput == alone.goodput
    assert (two.goodput.attempt, two.goodput.between_attempts_seconds) == (2, pytest.approx(4))
    assert two.goodput.badput["recovery"] == pytest.approx(4)
    assert two.goodput.earlier == one.goodput.badput
    assert two.goodput.wall_seconds == pytest.approx((second.now - 1000 * NS) / NS)


def test_what_was_settled_and_forgotten_is_remembered_for_the_job() -> None:
    pipeline = Pipeline()
    at = 1000 * NS
    for number in range(20):
        driver = an_attempt(pipeline, at, f"other.py-{number}" if number else "train.py-1", job="" if number else JOB)
        at = driver.now + ns(1)
    pipeline.step(Frame(moment(at := at + SETTLED_NS)))
    driver = an_attempt(pipeline, at, "train.py-2")
    assert "train.py-1" not in {run.run for run in runs(pipeline, driver.now)}
    (found,) = (run for run in runs(pipeline, driver.now) if run.run == "train.py-2")
    assert found.goodput.attempt == 2


def test_runs_without_a_job_are_alone() -> None:
    pipeline = Pipeline()
    first = an_attempt(pipeline, 1000 * NS, "train.py-1", job="")
    second = an_attempt(pipeline, first.now + NS, "train.py-2", job="")
    assert [run.goodput.attempt for run in runs(pipeline, second.now)] == [1, 1]


def test_runs_that_are_dropped_before_a_report_leave_nothing() -> None:
    pipeline, events = Pipeline(), list[Event]()
    for number in range(1, 2 * ENDED_AT_ONCE):
        at, name = 1000 * NS + number * ns(0.02), f"train.py-{number:08x}"
        started = RunStarted(name, at, number, ("python",), "user", "/", job=f"job-{number:08x}")
        events += [started, RunEnded(name, at + ns(0.01))]
    pipeline.step(Frame(moment(at), tuple(events)))
    assert len(pipeline._jobs._attempts) <= ENDED_AT_ONCE + 1
    assert len(pipeline._jobs._latest) <= ENDED_AT_ONCE + 1


def test_an_attempt_that_goes_on_keeps_the_account_before_it_however_many_runs_end_beside_it() -> None:
    jobs = Jobs()
    jobs.keep_account(
        ResumedJob(JOB, "train.py-1", Goodput(productive_seconds=1000.0, progress=ENDED_BEFORE), user="user")
    )
    jobs.begin(RunStarted("train.py-2", 0, 1, ("python",), "user", "/", job=JOB))
    live = Run("train.py-2", ["python"], "user", "/", 2000.0)
    for number in range(3 * KEPT):
        name = f"sweep.py-{number}"
        jobs.begin(RunStarted(name, 0, 1, ("python",), "user", "/", job=name))
        jobs.with_goodput(Run(name, ["python"], "user", "/", 2000.0))
        jobs.forget({name, live.key})
    told = jobs.with_goodput(live).goodput
    assert (told.attempt, told.productive_seconds, told.between_attempts_seconds) == (2, 1000.0, 1000.0)
    assert len(jobs._accounts) <= KEPT + 3


def test_a_later_daemon_goes_on_with_what_an_earlier_one_kept() -> None:
    earlier = Pipeline()
    first = an_attempt(earlier, 1000 * NS, "train.py-1")
    (told,) = runs(earlier, first.now)
    pipeline = Pipeline()
    pipeline.step(Frame(moment(first.now), (ResumedJob(JOB, told.run, told.goodput, user=told.user),)))
    second = an_attempt(pipeline, first.now + ns(4), "train.py-2")
    (found,) = runs(pipeline, second.now)
    assert found.goodput.attempt == 2
    assert found.goodput.badput["recovery"] == pytest.approx(4)


def test_a_job_of_another_user_with_the_same_name_is_another_job() -> None:
    """Names end in 32 bits of a digest, and who knows a name can search for settings that give it."""
    jobs = Jobs()
    jobs.keep_account(
        ResumedJob(JOB, "train.py-1", Goodput(productive_seconds=1000.0, progress=ENDED_BEFORE), user="a")
    )
    for user, seconds in (("eve", 0.0), ("a", 1000.0)):
        name = f"train.py-2-{user}"
        jobs.begin(RunStarted(name, 0, 1, ("python",), user, "/", job=JOB))
        told = jobs.with_goodput(Run(name, ["python"], user, "/", 2000.0)).goodput
        assert told.productive_seconds == seconds


def test_one_users_runs_leave_the_accounts_of_the_others() -> None:
    jobs = Jobs()
    jobs.keep_account(
        ResumedJob(JOB, "train.py-1", Goodput(productive_seconds=1000.0, progress=ENDED_BEFORE), user="a")
    )
    for number in range(3 * KEPT):
        name = f"sweep.py-{number}"
        jobs.begin(RunStarted(name, 0, 1, ("python",), "eve", "/", job=name))
        jobs.with_goodput(Run(name, ["python"], "eve", "/", 2000.0))
        jobs.forget({name})
    jobs.begin(RunStarted("train.py-2", 0, 1, ("python",), "a", "/", job=JOB))
    assert jobs.with_goodput(Run("train.py-2", ["python"], "a", "/", 2000.0)).goodput.productive_seconds == 1000.0
