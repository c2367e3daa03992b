"""Steps by bursts of calls of JAX or TensorFlow: what the driver waits for is mostly the threads of its model."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.cells import Leaf, RowKind
from trainprobe.model.event import PythonThread, StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.model.sample import Inspection, ThreadLook


def steps(driver: Driver, count: int, kind: RowKind, *, slower: float = 0.0, leaf: Leaf = Leaf.LOCK) -> None:
    """Steps of 30 ms, most of them at a lock; ``slower``: seconds more in the last one, in this leaf."""
    for number in range(count):
        driver.spend(0.008)
        driver.spend(0.022, Leaf.LOCK)
        if number == count - 1:
            driver.spend(slower, leaf)
        driver.row(kind)
        driver.steps += 1


def trained(kind: RowKind, slower: float, leaf: Leaf = Leaf.LOCK) -> Rank:
    driver = Driver()
    driver.begin()
    driver.spend(3.0)
    steps(driver, 60, kind, slower=slower, leaf=leaf)
    steps(driver, 60, kind)
    return rank_of(played(driver), driver)


def test_waits_for_the_threads_that_run_the_model_are_no_loss() -> None:
    """In ordinary steps, and in one that takes longer."""
    rank = trained(RowKind.RHYTHM, random.uniform(0.5, 2.0))
    assert (rank.lost, rank.bottlenecks, rank.stalls) == ({}, [], [])
    assert rank.verdict.summary.startswith("healthy")
    assert (rank.steps.source, rank.steps.count) == ("rhythm", 120)
    assert "JAX" in rank.steps.reason
    assert rank.bound.by == "unknown"
    assert "unknown" in trained(RowKind.GPU, 1.0).lost, "calls of CUDA are waited for elsewhere"


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.CPU, "cpu_bound"), (Leaf.RUNQUEUE, "cpu_contention")])
def test_what_has_evidence_is_told(leaf: Leaf, cause: str) -> None:
    seconds = random.uniform(0.5, 2.0)
    rank = trained(RowKind.RHYTHM, seconds, leaf)
    assert rank.lost == {cause: pytest.approx(seconds, rel=0.05)}


@pytest.mark.parametrize(("state", "lost"), [("S", 2.0), ("R", 0.0)])
def test_a_wait_in_which_no_thread_computes_is_lost(state: str, lost: float) -> None:
    """The thread that makes batches sleeps; a thread of the model on a CPU at each look is the training's own work."""
    driver = Driver()
    driver.begin()
    driver.spend(3.0)
    steps(driver, 60, RowKind.RHYTHM)
    pipeline = played(driver)
    for _ in range(4):
        driver.spend(0.5, Leaf.LOCK)
        look = ThreadLook(77, 5, state, "hrtimer_nanosleep" if state == "S" else "", 0)
        seen = Inspection(driver.pid, driver.tid, "S", "futex_do_wait", threads=(look,))
        others = (PythonThread(5, "batches (train.py:12)"),)
        stack = StackSeen(driver.now, driver.pid, driver.tid, ("main (train.py:21)",), others=others)
        pipeline.step(Frame(moment(driver.now), (stack,), threads=(driver.sample(Leaf.LOCK),), inspections=(seen,)))
    steps(driver, 60, RowKind.RHYTHM)
    rank = rank_of(played(driver, pipeline), driver)
    assert sum(rank.lost.values()) == pytest.approx(lost, abs=0.05)
    if lost:
        assert "its other thread was in batches (train.py:12)" in rank.verdict.summary
