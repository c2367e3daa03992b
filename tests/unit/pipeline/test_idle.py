"""A session that waits for a person's next input loses nothing: a prompt, a notebook between its cells."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf
from trainprobe.model.event import StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.model.sample import Inspection
from trainprobe.pipeline import Pipeline

KERNEL = ("<module> (ipykernel_launcher/ipykernel_launcher.py:18)", "start (ipykernel/kernelapp.py:758)",
          "run_forever (python3.11/base_events.py:607)", "select (python3.11/selectors.py:468)")  # fmt: skip
CELL = (*KERNEL[:-1], "run_code (IPython/interactiveshell.py:3577)", "<module> (1723.py:3)", "ask (1723.py:1)")


def waited(seconds: float, leaf: Leaf = Leaf.POLL, terminal: str = "", frames: tuple[str, ...] = ()) -> Rank:
    """The run's report; the wait is between two trainings, and again after the second one."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    for _ in range(2):
        _wait(driver, pipeline, seconds, leaf, terminal, frames)
        driver.train(20)
        played(driver, pipeline)
    _wait(driver, pipeline, seconds, leaf, terminal, frames)
    driver.finalize()
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    adds_up(rank)
    return rank


def _wait(
    driver: Driver, pipeline: Pipeline, seconds: float, leaf: Leaf, terminal: str, frames: tuple[str, ...]
) -> None:
    for _ in range(4):
        driver.spend(seconds / 4, leaf)
        seen = Inspection(driver.pid, driver.tid, "S", terminal=terminal)
        stack = [StackSeen(driver.now, driver.pid, driver.tid, frames)] if frames else []
        frame = Frame(moment(driver.now), (*driver.events, *stack), threads=(driver.sample(leaf),), inspections=(seen,))
        driver.events.clear()
        pipeline.step(frame)


@pytest.mark.parametrize(
    ("leaf", "terminal", "frames"),
    [
        (Leaf.POLL, "/dev/pts/3", ()),
        (Leaf.DEVICE, "/dev/tty1", ("<module> (train.py:9)", "input (train.py:3)")),
        (Leaf.POLL, "", KERNEL),
    ],
    ids=["prompt", "question", "notebook"],
)
def test_waiting_for_input_is_a_phase(leaf: Leaf, terminal: str, frames: tuple[str, ...]) -> None:
    seconds = random.uniform(3, 8)
    rank = waited(seconds, leaf, terminal, frames)
    assert (rank.lost, rank.stalls) == ({}, [])
    assert rank.counters.phase_seconds["idle"] == pytest.approx(3 * seconds, rel=0.02)
    assert len([span for span in rank.phases if span.phase == "idle"]) == 3


@pytest.mark.parametrize("frames", [(), CELL], ids=["no stack", "a cell's own wait"])
def test_other_waits_are_lost(frames: tuple[str, ...]) -> None:
    rank = waited(4.0, frames=frames)
    assert rank.counters.phase_seconds["idle"] == 0
    assert rank.lost["unknown"] >= 8 * 0.95


def test_what_is_computed_beside_a_prompt_is_lost_all_the_same() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.5)
    _wait(driver, pipeline, 4.0, Leaf.POLL, "/dev/pts/3", ())
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {"cpu_bound": pytest.approx(1.5, abs=0.05)}
    assert rank.counters.phase_seconds["idle"] == pytest.approx(4.0, abs=0.05)
