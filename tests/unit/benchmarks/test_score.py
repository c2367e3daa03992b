"""A report against what was planted: each thing that may be wrong is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.stalls.plan import Plan
from benchmarks.stalls.score import Score, each_planted, match, score
from benchmarks.stalls.truth import Iteration, Planted, Truth, blocked_seconds, planted_stalls

MS = 1_000_000
SAVE = {"path": "/x/step-20.pt", "bytes": 1000, "saved": 1_590 * MS}


def plan(cause: str = "checkpoint", kind: str = "stall") -> Plan:
    return Plan(f"{cause}/0", cause, kind, "plain", "save_path", 1, {"workers": 2})


def training() -> Truth:
    """Forty steps of 50 ms, one with a save of 0.6 s in it."""
    told = Truth(7, 0, 0)
    at = 0
    for step in range(40):
        end = at + (650 if step == 20 else 50) * MS
        told.iterations.append(Iteration(step, at, end - 10 * MS, end, MS))
        at = end
    told.planted.append(Planted("checkpoint", 1_000 * MS, 1_600 * MS, 20, SAVE))
    return told


def stall(**changes: Any) -> dict[str, Any]:
    said = {"start": 1.0, "end": 1.64, "seconds": 0.6, "cause": "checkpoint", "shares": {"checkpoint": 0.6}}
    return said | changes


def report(**changes: Any) -> dict[str, Any]:
    """What is right for ``training``, and what a test changes of it."""
    rank = {
        "pid": 7, "verdict": {"kind": "stall", "cause": "checkpoint"}, "wall_seconds": 3.0,
        "productive_seconds": 2.4, "ledger": {"compute": 2.4, "checkpoint": 0.6}, "lost": {"checkpoint": 0.6},
        "steps": {"count": 40}, "stalls": [stall()], "phases": [], "workers": {"exits": []},
        "checkpoints": [{"path": "/x/step-20.pt", "bytes": 1000, "seconds": 0.585}],
    }  # fmt: skip
    return {"runs": [{"ranks": [rank | changes]}]}


def judged(**changes: Any) -> Score:
    return score(plan(), training(), report(**changes))


def test_a_right_report_is_right() -> None:
    result = judged()
    assert result.wrong() == []
    assert result.right
    (found,) = result.matches
    assert (found.count, found.named, found.close) == (1, True, True)


@pytest.mark.parametrize(
    ("changes", "noticed"),
    [
        ({"verdict": {"kind": "stall", "cause": "logging"}}, "verdict"),
        ({"verdict": {"kind": "none", "cause": None}}, "verdict"),
        ({"steps": {"count": 39}}, "steps"),
        ({"stalls": []}, "stalls named"),
        ({"stalls": [stall(cause="unknown")]}, "stalls named"),
        ({"stalls": [stall(shares={"checkpoint": 0.5, "unknown": 0.1})]}, "stall seconds"),
        ({"stalls": [stall(), stall(start=0.6, end=0.7, seconds=0.1)]}, "no false stall"),
        ({"lost": {"checkpoint": 0.8}}, "total"),
        ({"lost": {"checkpoint": 0.6, "network": 0.07}}, "no other cause over 2 %"),
        ({"ledger": {"compute": 2.3, "checkpoint": 0.6}}, "ledger"),
        ({"productive_seconds": 2.0}, "verdict adds up"),
        ({"ledger": {"compute": 2.3, "checkpoint": 0.6, "other": 0.1}}, "other and unknown"),
        ({"checkpoints": []}, "checkpoints found"),
        ({"checkpoints": [{"path": "/x/step-20.pt", "bytes": 999, "seconds": 0.585}]}, "checkpoint bytes"),
        ({"checkpoints": [{"path": "/x/step-20.pt", "bytes": 1000, "seconds": 0.65}]}, "checkpoint seconds"),
    ],
)
def test_each_thing_that_is_wrong_is_noticed(changes: dict[str, Any], noticed: str) -> None:
    assert noticed in [check.name for check in judged(**changes).checks if not check.ok]


def test_two_reported_for_one_planted_are_summed() -> None:
    first = stall(end=1.3, seconds=0.3, shares={"checkpoint": 0.3})
    second = stall(start=1.3, seconds=0.3, shares={"checkpoint": 0.3})
    result = judged(stalls=[first, second])
    assert len(result.matches) == 1
    assert result.wrong() == []


def test_a_neighbour_that_merely_touches_is_a_stall_of_its_own() -> None:
    result = judged(stalls=[stall(start=0.9, end=1.001, seconds=0.1, cause="cpu_contention", shares={}), stall()])
    assert [(found.cause, found.said) for found in result.matches] == [
        ("", ("cpu_contention",)),
        ("checkpoint", ("checkpoint",)),
    ]


def test_a_slow_step_that_nobody_planted_is_told_from_a_false_stall() -> None:
    truth = training()
    slow = truth.iterations[30]
    truth.iterations[30] = Iteration(30, slow.begin - 200 * MS, slow.stepping, slow.end, MS)
    told = stall(start=slow.begin / 1e9 - 0.1, end=slow.end / 1e9, seconds=0.2, cause="cpu_contention", shares={})
    names = [check.name for check in score(plan(), truth, report(stalls=[stall(), told])).checks if not check.ok]
    assert names == ["no stall that nobody planted"]


def test_a_clean_run_has_no_verdict() -> None:
    truth = training()
    truth.planted.clear()
    truth.iterations[20:] = []
    quiet = report(
        verdict={"kind": "none", "cause": None}, stalls=[], lost={}, steps={"count": 20}, ledger={"compute": 3.0},
        productive_seconds=3.0,
    )  # fmt: skip
    assert score(plan("none", "none"), truth, quiet).wrong() == []
    assert not score(plan("none", "none"), truth, report()).right


def test_a_training_that_is_not_in_the_report() -> None:
    with pytest.raises(ValueError, match="no rank with pid 7"):
        judged(pid=8)


def test_a_death_is_told_by_its_sender() -> None:
    killed = {"pid": 9, "code": None, "signal": 9, "reason": "killed", "sender_pid": 5}
    death = Plan("worker_death/0", "worker_death", "end", "plain", "sigkill", 1, {"workers": 2})
    told = report(verdict={"kind": "end", "cause": "worker_death"}, workers={"exits": [killed]})
    checks = {check.name: check.ok for check in score(death, training(), told, killer=5).checks}
    assert checks["death"]
    checks = {check.name: check.ok for check in score(death, training(), told, killer=6).checks}
    assert not checks["death"]


def crowded(queued: dict[int, int], **changes: Any) -> Truth:
    """``training`` with ms of waiting for processors in some of its steps."""
    truth, total = training(), 0
    for at, i in enumerate(truth.iterations):
        total += queued.get(i.step, 0) * MS
        truth.iterations[at] = replace(i, queued=total, **changes)
    return truth


CONTENTION = {"lost": {"checkpoint": 0.6, "cpu_contention": 0.4}, "productive_seconds": 2.0}


def test_contention_that_nobody_planted_counts_where_the_kernel_saw_it() -> None:
    queued = dict.fromkeys(range(10, 39), 14)
    assert score(plan(), crowded(queued), report(**CONTENTION)).wrong() == []
    assert "cpu_contention" in str(score(plan(), crowded({}), report(**CONTENTION)).wrong())
    assert "cpu_contention" in str(score(plan(), training(), report(**CONTENTION)).wrong())


def test_ranks_wait_for_each_other_as_long_as_they_really_did() -> None:
    truth, ran = training(), 0
    for at, i in enumerate(truth.iterations):  # of each step of 50 ms 20 are somebody else's
        ran += i.end - i.begin - i.fetch - 20 * MS
        truth.iterations[at] = replace(i, queued=0, ran=ran)
    said = report(lost={"checkpoint": 0.6, "collective_wait": 0.6}, productive_seconds=1.8)
    ranks = replace(plan(), style="ddp_launch")
    assert score(ranks, truth, said).wrong() == []
    assert "collective_wait" in str(score(plan(), truth, said).wrong()), "one process has nobody to wait for"
    longer = report(lost={"checkpoint": 0.6, "collective_wait": 0.8}, productive_seconds=1.6)
    assert "collective_wait" in str(score(ranks, truth, longer).wrong())


def test_what_a_rank_ran_while_it_took_its_batch_is_no_wait_for_that_batch() -> None:
    truth, ran = Truth(7, 0, 0), 0
    for step in range(40):  # of 50 ms: 15 to take the batch, 10 of them by itself, 30 computing, 5 for the other ranks
        at, ran = 50 * step * MS, ran + 40 * MS
        truth.iterations.append(
            Iteration(step, at, at + 45 * MS, at + 50 * MS, 15 * MS, queued=0, ran=ran, fetch_unblocked=10 * MS)
        )
    assert blocked_seconds(truth) == pytest.approx(0.005 * 32)


def test_a_run_that_lost_more_to_others_may_say_so() -> None:
    said = report(verdict={"kind": "bottleneck", "cause": "cpu_contention", "seconds": 0.7}, **CONTENTION)
    assert score(plan(), crowded(dict.fromkeys(range(10, 39), 25)), said).top_right
    assert not score(plan(), crowded(dict.fromkeys(range(10, 39), 5)), said).top_right
    assert not score(
        plan(),
        crowded(dict.fromkeys(range(10, 39), 500)),
        report(verdict={"kind": "stall", "cause": "swap", "seconds": 1.0}),
    ).top_right


def test_a_stall_by_others_is_no_false_one() -> None:
    extra = stall(start=0.5, end=0.56, seconds=0.05, cause="cpu_contention", shares={"cpu_contention": 0.05})
    said = report(stalls=[extra, stall()])
    assert score(plan(), crowded({10: 60}), said).right
    assert "false" in str(score(plan(), crowded({20: 60}), said).wrong())


def test_what_was_done_from_outside_is_felt_then_and_not_elsewhere() -> None:
    truth = training()
    truth.iterations[30] = replace(truth.iterations[30], end=truth.iterations[30].end + 200 * MS)
    assert len(planted_stalls(truth, "suspended")) == 3  # the save's own, and two slow iterations
    truth.acts = [(truth.iterations[30].begin, truth.iterations[30].begin + 10 * MS)]
    assert [round(found.seconds, 1) for found in planted_stalls(truth, "suspended")] == [0.6, 0.2]


def test_an_act_begins_and_ends_in_the_midst_of_an_iteration() -> None:
    truth = training()
    for place, extra in ((28, 30), (29, 30), (30, 200), (31, 40), (32, 45), (35, 5)):
        truth.iterations[place] = replace(truth.iterations[place], end=truth.iterations[place].end + extra * MS)
    truth.acts = [(truth.iterations[29].begin + MS, truth.iterations[31].end - MS)]
    assert [round(found.seconds, 3) for found in planted_stalls(truth, "cpu_throttled")] == [0.6, 0.27]


def test_an_ordinary_iteration_is_that_of_the_time_around_an_act() -> None:
    truth = training()
    for place in range(len(truth.iterations)):
        slower = (300 if place == 30 else 60) if 21 <= place < 39 else 0
        truth.iterations[place] = replace(truth.iterations[place], end=truth.iterations[place].end + slower * MS)
    truth.acts = [(truth.iterations[30].begin, truth.iterations[30].begin + 10 * MS)]
    assert [round(found.seconds, 3) for found in planted_stalls(truth, "cpu_throttled")][1:] == [0.24]


def test_computing_that_waited_for_a_processor_may_be_told_as_contention() -> None:
    truth = crowded({20: 300})
    truth.planted = [Planted("cpu_bound", 1_000 * MS, 1_600 * MS, 20, {})]
    wanted = plan("cpu_bound")
    shares = {"cpu_contention": 0.31, "cpu_bound": 0.29}
    said = report(
        verdict={"kind": "stall", "cause": "cpu_bound", "seconds": 0.3}, checkpoints=[], lost=shares,
        stalls=[stall(cause="cpu_contention", shares=shares)],
    )  # fmt: skip
    (found,) = score(wanted, truth, said).matches
    assert found.named
    assert found.close
    assert score(wanted, truth, said).right
    (found,) = score(wanted, replace(truth, iterations=training().iterations), said).matches
    assert not found.named
    assert not found.close


def test_of_two_causes_both_have_to_be_named() -> None:
    truth = training()
    truth.iterations[30] = replace(truth.iterations[30], end=truth.iterations[30].end + 500 * MS)
    truth.planted.append(Planted("network", truth.iterations[30].begin, truth.iterations[30].begin + 500 * MS, 30, {}))
    at = truth.iterations[30].begin / 1e9
    both = replace(plan(), cause="two", both=("checkpoint", "network"))
    other = stall(start=at, end=at + 0.55, seconds=0.5, cause="network", shares={"network": 0.5})
    said = report(stalls=[stall(), other], lost={"checkpoint": 0.6, "network": 0.5}, productive_seconds=1.9)
    assert score(both, truth, said).wrong() == []
    lacks = report(stalls=[stall()], lost={"checkpoint": 0.6})
    assert {text.partition(":")[0] for text in score(both, truth, lacks).wrong()} == {"network named", "network total"}
    other = stall(start=at, end=at + 0.55, seconds=0.5, cause="logging", shares={"logging": 0.5})
    wrong = report(stalls=[stall(), other], lost={"checkpoint": 0.6, "logging": 0.5}, productive_seconds=1.9)
    assert "no other cause over 2 %" in str(score(both, truth, wrong).wrong())


def test_a_wait_before_the_excess_began_may_be_why_its_step_was_late() -> None:
    """The excess is the end of the step: what its begin waited for the processor is part of it."""
    told, at = Truth(7, 0, 0), 0
    for step in range(40):
        late = 30 * MS if step in (20, 21) else 0
        end, queued = at + 50 * MS + late, 30 * MS * ((step >= 20) + (step >= 21))
        told.iterations.append(Iteration(step, at, end - 10 * MS, end, MS, queued))
        at = end
    begin = told.iterations[21].begin / 1e9
    said = stall(start=begin + 0.015, end=begin + 0.07, seconds=0.055, cause="cpu_contention", shares={})
    (found,) = match([], [said], told)
    assert found.queued == pytest.approx(0.06)


def test_of_a_reported_stall_two_planted_ones_have_their_parts() -> None:
    """Neither is told as long as both: two saves in steps that follow one another are one stall."""
    told = training()
    told.iterations = [replace(i, end=i.end + 390 * MS) if i.step == 21 else i for i in told.iterations[:22]]
    told.planted.append(Planted("checkpoint", 1_660 * MS, 2_050 * MS, 21, SAVE))
    (rank,) = report(stalls=[stall(end=2.08, seconds=0.99, shares={"checkpoint": 0.99})])["runs"][0]["ranks"]
    matches = each_planted("checkpoint", told, rank)
    assert [match.planted for match in matches] == pytest.approx([0.6, 0.39])
    assert [match.reported for match in matches] == pytest.approx([0.6, 0.39], abs=0.01)
