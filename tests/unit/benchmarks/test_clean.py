"""What may be told of a training in which nothing was planted, and what may not."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.clean import plans
from benchmarks.clean.judge import Told, Verdict, judge, summary
from benchmarks.stalls.truth import Iteration, Truth

MS = 1_000_000


def training(queued: int = 0) -> Truth:
    """Forty steps of 50 ms; in the twentieth it waited for a processor, ``queued`` milliseconds."""
    told, at = Truth(7, 0, 0), 0
    for step in range(40):
        end = at + (50 + (queued if step == 20 else 0)) * MS
        told.iterations.append(Iteration(step, at, end - 10 * MS, end, MS, queued * MS if step >= 20 else 0, 0))
        at = end
    return told


def rank(**changes: Any) -> dict[str, Any]:
    steps = {"count": 40, "drift_ratio_per_1000_steps": None}
    return {"steps": steps, "stalls": [], "bottlenecks": [], "warnings": []} | changes


def stall(cause: str, seconds: float = 0.2) -> dict[str, Any]:
    return {"id": cause, "start": 1.0, "end": 1.25, "seconds": seconds, "cause": cause, "shares": {cause: seconds}}


def judged(*seen: dict[str, Any], queued: int = 0) -> Verdict:
    told = Told()
    for one in seen:
        told.add(one)
    return judge(told, training(queued), 3600.0)


def test_a_training_of_which_nothing_is_told_is_clean() -> None:
    verdict = judged(rank())
    assert (verdict.false, verdict.crowded, verdict.drift) == ([], [], False)
    assert summary({"plain": verdict})[-1] == "all: 1.00 job-hours, 40 steps, 0 false, 0 of real contention"


def test_what_was_told_once_counts_though_it_was_taken_back() -> None:
    assert len(judged(rank(stalls=[stall("cpu_bound")]), rank()).false) == 1
    assert len(judged(rank(warnings=[{"cause": "checkpoint_unsafe"}]), rank()).false) == 1
    drift = judged(rank(bottlenecks=[{"cause": "drift", "seconds": 1.0, "summary": "steps grow"}]), rank())
    assert drift.drift
    assert drift.false == ["bottleneck drift: steps grow"]


@pytest.mark.parametrize(("queued", "false"), [(200, 0), (150, 1), (0, 1)])
def test_contention_is_real_as_far_as_the_kernel_counted_it(queued: int, false: int) -> None:
    verdict = judged(rank(stalls=[stall("cpu_contention")]), queued=queued)
    assert (len(verdict.false), len(verdict.crowded)) == (false, 1 - false)


def test_a_wait_of_its_workers_for_processors_is_real_too() -> None:
    told = Told(queues=[(0.5, {7: 0.0, 8: 1.0}), (2.0, {7: 0.0, 8: 1.3})])
    told.add(rank(stalls=[stall("cpu_contention")]))
    assert judge(told, training(), 1.0).false == []


@pytest.mark.parametrize(("at", "false"), [(1.2, 0), (0.9, 1), (5.0, 1)])
def test_contention_is_real_while_the_host_stands_still(at: float, false: int) -> None:
    told = Told(standstills=[(at, 0.19)])
    told.add(rank(stalls=[stall("cpu_contention")]))
    assert len(judge(told, training(), 1.0).false) == false
    told.add(rank(stalls=[stall("data_cpu") | {"id": "another"}]))
    assert len(judge(told, training(), 1.0).false) == false + 1


def test_who_was_not_watched_is_not_clean() -> None:
    with pytest.raises(ValueError, match="nothing of pid 7"):
        judged()


def test_each_of_the_look_alikes_is_there_and_lasts_as_long_as_asked() -> None:
    for style, what in plans.CASES:
        plan = plans.make(style, what, 2700.0, 5, real=True)
        assert plan.training["steps"] * plan.training["pause"] >= 2700
        assert plan.training["steps"] > 10_000
    assert plans.make("plain", "tensorboard", 60, 5, real=False).training["background"] == ["events"]
