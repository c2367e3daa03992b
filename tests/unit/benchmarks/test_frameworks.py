"""The plans of the frameworks' trainings, and their judgement: each bar that is missed is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.frameworks.judge import Judged, judge
from benchmarks.frameworks.plans import SIZE, TRAININGS, make
from benchmarks.frameworks.run import HERE, bars
from benchmarks.stalls.plan import Plan
from benchmarks.stalls.truth import Iteration, Planted, Truth

MS = 1_000_000
SETTING = "save_steps"


@pytest.mark.parametrize("name", TRAININGS)
def test_a_plan_can_be_drawn_again_and_its_faults_lie_in_the_training(name: str) -> None:
    training = TRAININGS[name]
    assert (HERE / f"{name}.py").is_file()
    for seed in range(20):
        plan = make(name, seed)
        assert plan == make(name, seed) == make(name, seed, 0)
        assert json.loads(json.dumps(plan.training)) == plan.training
        given = plan.training
        for fault in (*given.get("driver", []), *given.get("locks", []), *given.get("data", [])):
            steps = [int(step) for step in fault["at"]]
            assert len(steps) >= 3
            if plan.kind == "stall":
                assert all(16 <= step < given["steps"] for step in steps)
                assert training.grid == 1 or all(step % training.grid == training.grid - 1 for step in steps)
        assert given.get("end", {"step": 0})["step"] < given["steps"] - 10
    assert len({json.dumps(make(name, seed).training) for seed in range(20)}) == 20


def test_over_three_seeds_enough_is_planted() -> None:
    """Without saves by steps, evaluations and what slows every step, which the training itself counts."""
    plans = [make(name, seed) for name in TRAININGS for seed in (1, 2, 3)]
    given = [fault for plan in plans if plan.kind == "stall" for fault in plan.training.get("driver", [])]
    assert sum(len(fault["at"]) for fault in given) + len(plans) >= 120


def plan(**changes: Any) -> Plan:
    drawn = Plan("hf_trainer/0", "checkpoint", "stall", "hf_trainer", "saves", 1, dict(SIZE), both=("checkpoint",))
    return replace(drawn, tags=(SETTING,), **changes)


def truth() -> Truth:
    """Forty steps of 50 ms, one with a save of 0.6 s and one with an evaluation of 0.5 s."""
    told, at = Truth(7, 0, 0), 0
    for step in range(40):
        end = at + {20: 650, 30: 550}.get(step, 50) * MS
        told.iterations.append(Iteration(step, at, end - 10 * MS, end, MS))
        at = end
    told.planted.append(Planted("checkpoint", 1_000 * MS, 1_600 * MS, 20, {}))
    told.phases.append(("evaluation", 2_100 * MS, 2_600 * MS))
    return told


def judged(advice: str = SETTING, drawn: Plan | None = None, by: Truth | None = None, **changes: Any) -> Judged:
    stall = {"start": 1.0, "end": 1.64, "seconds": 0.6, "cause": "checkpoint", "shares": {"checkpoint": 0.6}}
    rank: dict[str, Any] = {
        "pid": 7, "verdict": {"kind": "stall", "cause": "checkpoint"}, "wall_seconds": 3.1, "productive_seconds": 2.0,
        "ledger": {"compute": 2.5, "checkpoint": 0.6}, "lost": {"checkpoint": 0.6}, "steps": {"count": 40},
        "stalls": [stall], "phases": [{"phase": "evaluation", "start": 2.1, "end": 2.6}],
        "exit": {"code": 0, "signal": None, "reason": "finished", "ending": "finished"},
    }  # fmt: skip
    return judge(drawn or plan(), by or truth(), {"runs": [{"ranks": [rank | changes]}]}, advice)


def wrong(result: Judged) -> set[str]:
    return {check.name for check in result.checks if not check.ok}


def test_a_right_report_meets_each_bar() -> None:
    result = judged()
    assert wrong(result) == set()
    assert (result.faults, result.causes) == ((1, 1), (1, 1))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("steps", {"steps": {"count": 39}}),
        ("top", {"verdict": {"kind": "stall", "cause": "logging"}}),
        ("top", {"verdict": {"kind": "none", "cause": None}}),
        ("seconds", {"lost": {"checkpoint": 0.3}}),
        ("seconds", {"phases": []}),
        ("faults", {"stalls": []}),
        ("foreign", {"lost": {"checkpoint": 0.6, "cpu_bound": 0.1}}),
        ("setting", {"advice": "save every 900 steps"}),
        ("ending", {"exit": {"code": 0, "signal": None, "reason": "finished"}}),
        ("account", {"productive_seconds": 1.5}),
    ],
)
def test_what_is_wrong_is_noticed(name: str, changes: dict[str, Any]) -> None:
    assert name in wrong(judged(**changes))


@pytest.mark.parametrize(("given", "ok"), [(0.6, True), (1.1, True), (1.6, False)])
def test_what_ordinary_fetches_took_may_be_called_lost_and_no_more(given: float, ok: bool) -> None:
    """Of forty fetches the clock counted 0.4 s beyond what was planted."""
    told = Truth(7, 0, 0)
    for step in range(40):
        begin = 50 * step * MS + (600 * MS if step > 20 else 0)
        fetch, end = (612, begin + 650 * MS) if step == 20 else (12, begin + 50 * MS)
        told.iterations.append(Iteration(step, begin, end - 10 * MS, end, fetch * MS))
    drawn = replace(plan(), both=("data_cpu",))
    result = judged(drawn=drawn, by=told, phases=[], lost={"data_cpu": given})
    assert ("seconds" not in wrong(result)) is ok, result.checks


@pytest.mark.parametrize(("given", "ok"), [(0.3, True), (0.5, False)])
def test_fetches_that_took_long_by_the_clock_are_no_foreign_cause(given: float, ok: bool) -> None:
    """Nobody planted it; thirty of them took 10 ms each."""
    told = truth()
    told.iterations = [replace(i, fetch=10 * MS) for i in told.iterations]
    assert ("foreign" not in wrong(judged(by=told, lost={"checkpoint": 0.6, "data_cpu": given}))) is ok


@pytest.mark.parametrize(
    ("end", "verdict", "ok"),
    [
        ("kill_worker", {"kind": "end", "cause": "worker_death"}, True),
        ("kill_worker", {"kind": "stall", "cause": "checkpoint"}, False),
        ("exception", {"kind": "end", "cause": None}, True),
        ("exception", {"kind": "stall", "cause": "checkpoint"}, False),
        ("interrupt", {"kind": "stall", "cause": "checkpoint"}, True),
        ("interrupt", {"kind": "end", "cause": None}, False),
    ],
)
def test_a_failure_outranks_seconds_and_a_persons_interrupt_does_not(
    end: str, verdict: dict[str, Any], ok: bool
) -> None:
    drawn = plan()
    drawn = replace(drawn, training=drawn.training | {"end": {"how": end, "step": 30}})
    assert ("top" not in wrong(judged(drawn=drawn, verdict=verdict))) == ok


def test_what_other_programs_took_may_be_on_top_and_is_no_miss_of_a_fault() -> None:
    """The driver waited 0.9 s for a processor, all of it in the step that saved."""
    crowded = truth()
    crowded.iterations = [replace(i, queued=900 * MS if i.step >= 20 else 0) for i in crowded.iterations]
    stall = {"start": 1.0, "end": 1.64, "seconds": 0.6, "cause": "cpu_contention", "shares": {"cpu_contention": 0.6}}
    told = {
        "verdict": {"kind": "stall", "cause": "cpu_contention"}, "lost": {"cpu_contention": 0.6}, "stalls": [stall]
    }  # fmt: skip
    assert {"top", "foreign", "faults"}.isdisjoint(wrong(judged(by=crowded, **told)))
    assert {"top", "foreign", "faults"} <= wrong(judged(**told))


def test_loading_in_the_driver_is_foreign_where_the_training_leaves_it_to_workers() -> None:
    inline = plan(training=dict(SIZE) | {"inline": True})
    slow = truth()
    slow.iterations = [replace(i, fetch=10 * MS) for i in slow.iterations]
    lost = {"checkpoint": 0.6, "data_inline": 0.4}
    assert "foreign" not in wrong(judged(drawn=inline, by=slow, lost=lost))
    assert "foreign" in wrong(judged(by=slow, lost=lost))
    assert "foreign" in wrong(judged(drawn=inline, lost=lost))


def test_the_bars_count_a_run_that_could_not_be_judged() -> None:
    names = ("top", "steps", "foreign", "setting", "ending", "account")
    right = {"ok": dict.fromkeys(names, True), "faults": (4, 4), "causes": (1, 1)}
    assert all(met for _, met, _ in bars([right] * 20))
    assert not any(met for _, met, _ in bars([right, {"error": "no report"}]))
    assert not any(met for _, met, _ in bars([]))


def test_every_training_is_pinned() -> None:
    pinned = (Path(__file__).parents[3] / "requirements" / "frameworks.txt").read_text()
    assert all("==" in line for line in pinned.splitlines() if line and not line.startswith("#"))
