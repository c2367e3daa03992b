"""What rules see: one builder makes it, for late steps, seconds without marks and ordinary steps alike."""

from __future__ import annotations

import ast

import pytest

from tests.builders.driver import Driver, moment, played
from tests.contract.test_project import tracked
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.causes.base import Unseen
from trainprobe.model.cells import Leaf
from trainprobe.model.frame import Frame
from trainprobe.model.report import Bottleneck
from trainprobe.model.sample import HostSample, Inspection
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.rank import window


def slow(driver: Driver, leaf: Leaf, steps: int) -> None:
    """Ordinary steps, a sixth of each in one kind of wait."""
    for _ in range(steps):
        driver.spend(0.01, leaf)
        driver.step()


def bottleneck_after_a_late_step(leaf: Leaf, seen: Inspection) -> Bottleneck:
    driver = Driver()
    driver.begin()
    slow(driver, leaf, 40)
    pipeline = played(driver, Pipeline(), host=HostSample(cpus=8))
    driver.spend(2.0, leaf)
    pipeline.step(Frame(moment(driver.now), threads=(driver.sample(leaf),), inspections=(seen,)))
    slow(driver, leaf, 100)
    return rank_of(played(driver, pipeline), driver).bottlenecks[0]


def test_a_slow_server_of_every_step_is_named_once_a_late_step_showed_it() -> None:
    found = bottleneck_after_a_late_step(Leaf.SOCKET, Inspection(1000, 1000, "S", peer="10.0.0.7:443"))
    assert found.cause == "network"
    assert "10.0.0.7:443" in found.summary


def test_a_narrow_affinity_is_named_for_ordinary_steps_too() -> None:
    found = bottleneck_after_a_late_step(Leaf.RUNQUEUE, Inspection(1000, 1000, "R", allowed_cpus=2))
    assert found.cause == "cpu_contention"
    assert 2 in [one.value for one in found.evidence]


def test_what_was_not_gathered_is_false_and_empty_and_says_why() -> None:
    unseen = Unseen("no_marks")
    assert not unseen
    assert list(unseen) == []
    assert sum(unseen) == 0
    assert unseen.reason == "no_marks"
    with pytest.raises(IndexError):
        unseen[0]
    reasons = [one.reason for one in vars(window).values() if isinstance(one, Unseen)]
    assert len(reasons) == len(set(reasons)) > 0


def test_only_one_place_makes_windows() -> None:
    makers = []
    for path in tracked("daemon/trainprobe/*.py"):
        if "Window" not in (text := path.read_text()):
            continue
        calls = [one.func for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
        makers += [path.name for call in calls if isinstance(call, ast.Name) and call.id == "Window"]
    assert makers == ["window.py"]
