"""The training's own file becomes the list of what was planted."""

from __future__ import annotations

import json

import pytest

from benchmarks.stalls import truth

MS = 1_000_000
OFFSET = 1_700_000_000 * truth.NS


def rows(durations: list[int], fetches: list[int] | None = None) -> list[str]:
    """A file of iterations with these lengths and waits for data, in ms."""
    lines = [json.dumps({"row": "start", "pid": 7, "process": 0, "mono": 0, "wall": OFFSET})]
    at = 0
    for step, (long, wait) in enumerate(zip(durations, fetches or [1] * len(durations))):
        end = at + long * MS
        row = {"row": "iteration", "step": step, "begin": at, "stepping": end - MS, "end": end, "fetch": wait * MS}
        lines.append(json.dumps(row))
        at = end
    return lines


def planted(cause: str, begin_ms: int, end_ms: int, step: int) -> str:
    return json.dumps({"row": "planted", "cause": cause, "begin": begin_ms * MS, "end": end_ms * MS, "step": step})


def test_a_file_without_a_start_is_no_truth() -> None:
    with pytest.raises(ValueError, match="no truth"):
        truth.read([])


def test_what_the_driver_did_counts_as_long_as_it_took() -> None:
    told = truth.read([*rows([50] * 20 + [650] + [50] * 20), planted("checkpoint", 1010, 1610, 20)])
    (stall,) = truth.planted_stalls(told, "checkpoint")
    assert stall.cause == "checkpoint"
    assert stall.seconds == pytest.approx(0.6)
    assert stall.start == pytest.approx(1_700_000_001.01)


def test_what_is_too_short_or_too_early_is_no_stall() -> None:
    early = planted("checkpoint", 0, 300, 2)
    short = planted("checkpoint", 1000, 1040, 20)
    assert truth.planted_stalls(truth.read([*rows([50] * 30), early, short]), "checkpoint") == []


def test_a_slow_batch_counts_as_the_driver_felt_it() -> None:
    lengths, waits = [50] * 20 + [850] + [50] * 20, [2] * 20 + [802] + [2] * 20
    (stall,) = truth.planted_stalls(truth.read(rows(lengths, waits)), "data_cpu")
    assert stall.seconds == pytest.approx(0.8)
    assert truth.planted_stalls(truth.read(rows(lengths, waits)), "checkpoint") == []


def test_a_constant_wait_is_lost_but_for_the_time_of_taking_a_batch_over() -> None:
    told = truth.read(rows([80] * 108, [31] * 108))
    assert truth.lost_seconds(told, "data_cpu", "bottleneck") == pytest.approx((2.8, 3.1))
    assert truth.lost_seconds(told, "data_inline", "bottleneck") == pytest.approx((3.1, 3.1))


def test_steps_are_those_of_the_optimiser() -> None:
    count = json.dumps({"row": "count", "optimizer_steps": 28, "skipped": 2})
    assert truth.read([*rows([50] * 30), count]).steps == 28
    assert truth.read(rows([50] * 30)).steps == 30


def test_the_clock_sees_slow_iterations_that_nobody_planted() -> None:
    ((start, end, excess),) = truth.slow_iterations(truth.read(rows([50] * 20 + [200] + [50] * 20)))
    assert (start - 1_700_000_000, end - 1_700_000_000) == pytest.approx((1.0, 1.2))
    assert excess == pytest.approx(0.15)


def test_a_drift_has_at_least_what_it_computed() -> None:
    """Planted as computing for so long by the clock; a third of each step was a wait for a processor."""
    lines = [json.loads(line) for line in rows([60] * 30)]
    for number, row in enumerate(lines[1:], 1):
        row["queued"] = number * 20 * MS
    own = [planted("drift", 60 * step, 60 * step + 30, step) for step in range(30)]
    counted = 30 - truth.BASELINE_STEPS
    told = truth.read([*map(json.dumps, lines), *own])
    assert truth.lost_seconds(told, "drift", "bottleneck") == pytest.approx((0.6 * counted * 0.02, counted * 0.03))


@pytest.mark.parametrize(("late", "change"), [(50, 1.0), (30, 0.59), (80, 1.61)])
def test_the_machines_pace_is_that_of_the_work_that_all_steps_have(late: int, change: float) -> None:
    """Each step holds 10 ms of what was planted, and waits 1 ms for its batch."""
    lengths = [60] * 50 + [late + 10] * 50
    ends = [sum(lengths[: step + 1]) for step in range(100)]
    extra = [planted("drift", end - 10, end, step) for step, end in enumerate(ends)]
    assert truth.pace_change(truth.read([*rows(lengths), *extra])) == pytest.approx(change, abs=0.01)
    assert truth.pace_change(truth.read(rows([50] * 9))) == 1.0


def test_what_a_hypervisor_took_is_neither_run_nor_queued_nor_waited_for() -> None:
    """In a step of 130 ms the driver ran for 50 ms as in the others, and a planted pause is another matter."""
    lengths = [50] * 20 + [130] + [50] * 20 + [450] + [50] * 20
    lines, ran = [json.loads(line) for line in rows(lengths)], 0
    for line in lines[1:]:
        ran += 49 * MS
        line |= {"ran": ran, "queued": 0, "fetch_unblocked": MS}
    told = truth.read([*map(json.dumps, lines), planted("idle", 2150, 2550, 41)])
    assert truth.stolen_seconds(told) == pytest.approx(0.08, abs=0.001)
    at = 1_700_000_001.0
    assert truth.stolen_seconds(told, at, at + 0.1) == pytest.approx(0.08, abs=0.001)
    assert truth.stolen_seconds(told, at + 0.5, at + 0.9) == 0.0


def test_where_every_step_holds_what_was_planted_a_hypervisor_takes_from_them_too() -> None:
    """As with the drift: 10 ms of computing in each step; in one of them the driver ran 70 ms less than the clock."""
    lengths = [60] * 20 + [130] + [60] * 20
    lines, ran = [json.loads(line) for line in rows(lengths)], 0
    for line in lines[1:]:
        ran += 59 * MS
        line |= {"ran": ran, "queued": 0, "fetch_unblocked": MS}
    ends = [sum(lengths[: step + 1]) for step in range(len(lengths))]
    computed = [planted("drift", end - 10, end, step) for step, end in enumerate(ends)]
    assert truth.stolen_seconds(truth.read([*map(json.dumps, lines), *computed])) == pytest.approx(0.07, abs=0.001)
    slept = [planted("storage", end - 10, end, step) for step, end in enumerate(ends)]
    assert truth.stolen_seconds(truth.read([*map(json.dumps, lines), *slept])) == pytest.approx(0.07, abs=0.001)
