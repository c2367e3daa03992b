"""For how long has all that runs run evenly? The longer, the seldomer are the looks; what is not as usual ends that."""

from __future__ import annotations

import random

from tests.builders.driver import Driver, moment, ns, played
from trainprobe.derive.steps.stability import COST_NS, MOST_NS, REST_NS
from trainprobe.model.event import FileEvent, FileEventKind, RunEnded, RunStarted
from trainprobe.model.frame import Frame
from trainprobe.pipeline import Pipeline

EVEN = 800  # steps, of 0.05 s


def even() -> tuple[Driver, Pipeline]:
    driver = Driver()
    driver.begin()
    driver.train(20)
    pipeline = played(driver)
    assert pipeline.wants().stable_ns < REST_NS, "it has only just begun"
    driver.train(EVEN)
    return driver, played(driver, pipeline)


def test_an_even_training_is_calm() -> None:
    driver, pipeline = even()
    before = pipeline.wants().stable_ns
    assert ns(38) < before < ns(42)
    driver.train(100)
    assert played(driver, pipeline).wants().stable_ns == before + ns(5)


def test_a_host_where_nothing_runs_is_not() -> None:
    """The training that begins there is to be found soon: nothing else wakes the daemon in time."""
    pipeline = Pipeline()
    pipeline.step(Frame(moment(ns(5))))
    assert not pipeline.wants().stable_ns


def test_a_late_step_ends_it_for_seconds_and_costs_half_a_minute() -> None:
    driver, pipeline = even()
    before, began = pipeline.wants().stable_ns, driver.now
    driver.spend(random.uniform(0.1, 2.0))
    driver.train(2)
    assert not played(driver, pipeline).wants().stable_ns
    driver.train(random.randint(100, 900))
    after = played(driver, pipeline).wants().stable_ns
    assert after == before + driver.now - began - COST_NS


def test_a_training_that_was_even_for_long_stays_what_it_is_after_a_late_step() -> None:
    driver, pipeline = even()
    driver.train(random.randint(3000, 9000))
    assert played(driver, pipeline).wants().stable_ns == MOST_NS
    driver.spend(random.uniform(0.1, 2.0))
    driver.train(100)
    assert ns(90) < played(driver, pipeline).wants().stable_ns < ns(97)


def test_where_late_steps_come_often_nothing_is_left_of_it() -> None:
    driver, pipeline = even()
    driver.train(random.randint(0, 9000))
    for _ in range(20):
        driver.spend(random.uniform(0.1, 2.0))
        driver.train(random.randint(60, 400))
        calm = played(driver, pipeline).wants().stable_ns
    assert calm < COST_NS


def test_a_step_that_is_late_now_ends_it() -> None:
    driver, pipeline = even()
    driver.now += ns(0.5)
    assert not played(driver, pipeline).wants().stable_ns


def test_a_checkpoint_that_is_being_written_ends_it() -> None:
    driver, pipeline = even()
    opened = FileEvent(FileEventKind.OPENED, driver.now, driver.pid, 77, 1, 9, "/runs/step-40.pt", created=True)
    driver.events.append(opened)
    driver.train(2)
    assert not played(driver, pipeline).wants().stable_ns


def test_a_step_of_several_optimiser_steps_is_never_calm() -> None:
    """Between rows the alarm of such a step is not exact: the looks have to come as often as they can."""
    driver = Driver()
    driver.begin()
    for _ in range(EVEN + 20):
        driver.fetch()
        for name in ("Optimizer.step#Adam.step", "Optimizer.step#SGD.step"):
            driver.spend(0.01)
            driver.backward()
            driver.optimizer(name)
    assert not played(driver).wants().stable_ns


def test_a_run_that_has_just_ended_ends_it_for_the_others_until_all_that_it_left_is_found() -> None:
    driver, pipeline = even()
    other = Driver(pid=2000, tid=2000, now=driver.now)
    other.events.append(RunStarted("other.py-0123abcd", other.now, other.pid, ("python",), "user", "/home/user"))
    other.events.append(RunEnded("other.py-0123abcd", driver.now))
    assert not played(other, pipeline).wants().stable_ns
    driver.train(100)
    assert not played(driver, pipeline).wants().stable_ns
    driver.train(110)
    assert played(driver, pipeline).wants().stable_ns


def test_a_host_whose_last_run_has_ended_is_not() -> None:
    driver, pipeline = even()
    driver.events.append(RunEnded("train.py-0123abcd", driver.now))
    assert not played(driver, pipeline).wants().stable_ns
    driver.now += ns(60)
    assert not played(driver, pipeline).wants().stable_ns
