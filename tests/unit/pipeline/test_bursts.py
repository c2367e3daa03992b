"""Steps by bursts of calls of JAX or TensorFlow: what the driver waits for is mostly the threads of its model."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.cells import Leaf, RowKind
from trainprobe.model.report import Rank


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
