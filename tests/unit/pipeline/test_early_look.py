"""Bursts that are over before a stack is taken: the next ones are looked at earlier, and seldom."""

from __future__ import annotations

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.event import StackSeen
from trainprobe.model.moment import NS
from trainprobe.pipeline import Pipeline

ROLLOUT = ("<module> (ppo.py:30)", "collect (ppo.py:21)", "step (env.py:9)")


class Bursts:
    """Steps of 50 ms; each 16th computes for 0.2 s more."""

    def __init__(self) -> None:
        self.driver, self.pipeline, self.asked = Driver(), Pipeline(), 0
        self.driver.begin()
        self.driver.train(40)
        self.driver.spend(0.2)

    def train(self, bursts: int, *, seen: tuple[str, ...] = ()) -> list[bool]:
        """For each burst whether it was looked at early; it then shows a stack, where there is one."""
        out = []
        for _ in range(bursts):
            self.driver.train(16)
            played(self.driver, self.pipeline)
            (armed,) = self.pipeline.armed()
            out.append(armed.early)
            self.driver.spend(0.1)
            if armed.early and seen:
                self.driver.events.append(StackSeen(self.driver.now, self.driver.pid, self.driver.tid, seen))
            self.driver.spend(0.1)
        return out


def test_the_line_of_brief_bursts_is_told() -> None:
    run = Bursts()
    early = run.train(8, seen=ROLLOUT)
    assert early == [False, False, True, *[False] * 5]
    run.driver.train(10)
    rank = rank_of(played(run.driver, run.pipeline), run.driver)
    assert rank.lost.keys() == {"cpu_bound"}
    assert [stall.summary for stall in rank.stalls if stall.python_stack and "200 ms of CPU in" in stall.summary]
    assert "step (env.py:9)" in rank.verdict.summary


def test_where_no_stack_comes_few_are_asked_for() -> None:
    run = Bursts()
    early = run.train(400)
    minutes = (run.driver.now - 10 * NS) / (60 * NS)
    assert minutes > 6
    assert sum(early) <= 5 * 3
    assert not any(run.train(100)), "five turns are all"
