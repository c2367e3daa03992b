"""How often an even training is asked for a stack: each is a process that reads the training's memory."""

from __future__ import annotations

from itertools import pairwise

from tests.builders.driver import Driver, moment
from trainprobe.model.event import StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.pipeline import Pipeline

FRAMES = ("<module> (train.py:9)", "Linear.forward (linear.py:134)")


def test_the_longer_steps_are_even_the_seldomer_they_are_asked_for() -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    asked: list[int] = []
    for _ in range(720):
        for _ in range(5):
            driver.step(forward=0.974)  # of a second
        pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
        driver.events.clear()
        if pipeline.wants().stacks:
            asked.append(driver.now)
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, FRAMES))
    apart = [(later - earlier) / NS for earlier, later in pairwise(asked)]
    assert max(apart[:3]) <= 35, "the lines of a run are known after two minutes"
    assert sum(at < asked[0] + 60 * 60 * NS for at in asked) <= 16
    assert all(later >= earlier for earlier, later in pairwise(apart))
    assert 600 <= apart[-1] <= 605
