"""A worker dies and the training waits for it: in a loader that does not look, for ever."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, played
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import ProcessEvent, ProcessEventKind
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline

WORKER = 1001


def waiting(seconds: float, sender: int = 4242) -> tuple[Driver, Pipeline]:
    """A training whose worker was killed, and which has waited for it since."""
    driver = Driver()
    driver.begin()
    driver.fork(WORKER)
    driver.fork(WORKER + 1)
    driver.train(30)
    driver.die(WORKER, None, 9, sender=sender)
    driver.step()
    driver.spend(seconds, Leaf.PIPE_READ, Region.FETCH)
    pipeline = played(driver)
    pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.PIPE_READ),)))
    return driver, pipeline


def rank_of(driver: Driver, pipeline: Pipeline) -> Rank:
    (run,) = pipeline.report(moment(driver.now)).runs
    return run.ranks[0]


def test_a_training_that_waits_for_the_dead_says_so_while_it_waits() -> None:
    driver, pipeline = waiting(7.0)
    rank = rank_of(driver, pipeline)
    assert (rank.verdict.kind, rank.verdict.cause) == ("stall", "worker_death")
    assert "worker 1001 was killed by signal 9 by bash (4242)" in rank.verdict.summary
    (stall,) = rank.stalls
    assert stall.cause == "worker_hang"
    assert stall.seconds == pytest.approx(7.0, abs=0.1)
    assert [one.pid for one in stall.evidence] == [driver.pid, WORKER]


def test_one_that_killed_itself_is_told_so() -> None:
    assert "worker 1001 was killed by signal 9 by itself" in rank_of(*waiting(7.0, WORKER)).verdict.summary


def test_whoever_kills_it_then_is_not_the_cause() -> None:
    driver, pipeline = waiting(40.0)
    driver.events.append(
        ProcessEvent(
            ProcessEventKind.SIGNAL, driver.now, driver.pid, signal=15, sender_pid=77, sender_comm="bash", by_user=True
        )
    )
    driver.exit(None, 15, shutdown=0.0)
    rank = rank_of(driver, played(driver, pipeline))
    assert (rank.verdict.kind, rank.verdict.cause) == ("stall", "worker_death")
    assert "until it was killed" in rank.verdict.summary
    assert rank.exit is not None
    assert rank.exit.signal == 15


def test_a_training_that_fails_after_a_long_wait_has_stalled_and_not_shut_down() -> None:
    driver, pipeline = waiting(40.0)
    driver.exit(1, shutdown=0.0)
    rank = rank_of(driver, played(driver, pipeline))
    assert rank.lost["worker_hang"] == pytest.approx(40.0, abs=0.1)
    assert (rank.verdict.kind, rank.verdict.cause) == ("end", "worker_death")


def test_a_new_wait_long_after_a_death_is_not_the_deads() -> None:
    driver, pipeline = waiting(0.0)
    driver.train(1500)
    driver.spend(7.0, Leaf.PIPE_READ, Region.FETCH)
    played(driver, pipeline)
    pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.PIPE_READ),)))
    assert rank_of(driver, pipeline).stalls[-1].cause == "unknown"
