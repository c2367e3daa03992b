"""While a training runs evenly two seconds between looks are enough; whatever is not as usual ends that."""

from __future__ import annotations

import random

from tests.builders.driver import Driver, moment, ns, played
from trainprobe.model.event import FileEvent, FileEventKind, RunEnded
from trainprobe.model.frame import Frame
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.rank import CALM_NS

EVEN = 1.1 * CALM_NS / ns(0.05)  # steps


def even() -> tuple[Driver, Pipeline]:
    driver = Driver()
    driver.begin()
    driver.train(20)
    pipeline = played(driver)
    assert not pipeline.wants().calm, "it has only just begun"
    driver.train(round(EVEN))
    return driver, played(driver, pipeline)


def test_an_even_training_is_calm() -> None:
    _, pipeline = even()
    assert pipeline.wants().calm


def test_a_host_where_nothing_runs_is_not() -> None:
    """The training that begins there is to be found soon: nothing else wakes the daemon in time."""
    pipeline = Pipeline()
    pipeline.step(Frame(moment(ns(5))))
    assert not pipeline.wants().calm


def test_a_slow_step_ends_it_for_a_while() -> None:
    driver, pipeline = even()
    driver.spend(random.uniform(0.1, 2.0))
    driver.train(2)
    assert not played(driver, pipeline).wants().calm
    driver.train(round(EVEN / 2))
    assert not played(driver, pipeline).wants().calm
    driver.train(round(EVEN / 2))
    assert played(driver, pipeline).wants().calm


def test_a_step_that_is_late_now_ends_it() -> None:
    driver, pipeline = even()
    driver.now += ns(0.5)
    assert not played(driver, pipeline).wants().calm


def test_a_checkpoint_that_is_being_written_ends_it() -> None:
    driver, pipeline = even()
    opened = FileEvent(FileEventKind.OPENED, driver.now, driver.pid, 77, 1, 9, "/runs/step-40.pt", created=True)
    driver.events.append(opened)
    driver.train(2)
    assert not played(driver, pipeline).wants().calm


def test_a_step_of_several_optimiser_steps_is_never_calm() -> None:
    """Between rows the alarm of such a step is not exact: the looks have to come as often as they can."""
    driver = Driver()
    driver.begin()
    for _ in range(round(EVEN) + 20):
        driver.fetch()
        for name in ("Optimizer.step#Adam.step", "Optimizer.step#SGD.step"):
            driver.spend(0.01)
            driver.backward()
            driver.optimizer(name)
    assert not played(driver).wants().calm


def test_a_run_that_has_ended_of_late_ends_it() -> None:
    driver, pipeline = even()
    driver.events.append(RunEnded("train.py-0123abcd", driver.now))
    assert not played(driver, pipeline).wants().calm
