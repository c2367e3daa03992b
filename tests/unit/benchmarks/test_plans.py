"""Plans: drawn from a seed, the same each time, with their faults inside the training."""

from __future__ import annotations

import json

import pytest

from benchmarks.stalls import faults
from benchmarks.stalls.plan import place


@pytest.mark.parametrize("cause", [*faults.CAUSES, "lookalike", "two"])
def test_a_plan_can_be_drawn_again_and_written_down(cause: str) -> None:
    for number in range(12):
        plan = faults.make(cause, number, seed=3)
        assert plan == faults.make(cause, number, seed=3)
        assert plan.key == f"{cause}/{number}"
        assert json.loads(json.dumps(plan.to_json()))["training"]["steps"] == plan.training["steps"]


def test_other_seeds_plan_other_times() -> None:
    assert faults.make("checkpoint", 0, seed=1).training != faults.make("checkpoint", 0, seed=2).training


@pytest.mark.parametrize("cause", faults.CAUSES)
@pytest.mark.parametrize("scale", [0.35, 1.0])
def test_every_fault_lies_in_the_training_and_after_its_baseline(cause: str, scale: float) -> None:
    for number in range(24):
        training = faults.make(cause, number, 7, scale=scale).training
        for fault in (*training["driver"], *training["data"]):
            steps = [int(step) for step in fault.get("at", {})]
            assert all(20 <= step < training["steps"] for step in steps), (number, steps)
            assert steps or "every" in fault or "every_batch" in fault


@pytest.mark.parametrize("cause", ["suspended", "cpu_throttled", "cpu_contention"])
@pytest.mark.parametrize("scale", [0.35, 1.0])
def test_what_is_done_from_outside_is_done_before_the_training_ends(cause: str, scale: float) -> None:
    for number in range(24):
        plan = faults.make(cause, number, 7, scale=scale)
        assert plan.outside
        assert max(at + seconds for _, at, seconds in plan.outside) <= 0.037 * plan.training["steps"]


def test_a_slow_reader_of_stdout_is_part_of_the_plan() -> None:
    plan = faults.make("logging", 1, 1)
    assert plan.how == "print_blob"
    assert plan.stdout_rate
    assert plan.outside == ()


def test_two_causes_have_each_their_faults() -> None:
    for number in range(20):
        plan = faults.make("two", number, 3)
        told = [*plan.training["driver"], *plan.training["data"]]
        assert [fault["id"] for fault in told] == list(range(len(told)))
        assert {fault["cause"] for fault in told} == set(plan.both)
        assert all(fault["at"] for fault in told)
        assert plan.training["workers"] == 2


def test_every_form_is_drawn() -> None:
    assert len({faults.make("checkpoint", number, 1).how for number in range(8)}) == 8
    assert len({faults.make("checkpoint", number, 1).style for number in range(12)}) >= 8


def test_styles_that_cannot_run_are_left_out() -> None:
    styles = tuple(style for style in faults.ALL if style != "lightning_fit")
    assert all(faults.make("cpu_bound", number, 1, styles).style != "lightning_fit" for number in range(30))


def test_stand_ins_become_directories() -> None:
    value = {"a": ["@slow/x.bin", "@scratch", 3], "b": {"c": "not @slow"}}
    assert place(value, {"@slow": "/mnt", "@scratch": "/tmp/s"}) == {
        "a": ["/mnt/x.bin", "/tmp/s", 3],
        "b": {"c": "not @slow"},
    }
