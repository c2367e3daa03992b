"""The trace for Perfetto: where things lie on its axis, and what becomes of what overlaps or has not ended."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.browser.trainings import RUN, training
from tests.unit.cli import reports
from trainprobe.model.report import Checkpoint, Report
from trainprobe.model.steprow import StepRow
from trainprobe.views import perfetto


def named(made: dict[str, Any], track: str) -> list[dict[str, Any]]:
    """The slices and instants of the tracks that are called so."""
    threads = {event["tid"]: event["args"]["name"] for event in made["traceEvents"] if event["name"] == "thread_name"}
    return [event for event in made["traceEvents"] if threads.get(event.get("tid")) == track and event["ph"] != "M"]


def unix(made: dict[str, Any], event: dict[str, Any]) -> float:
    return float((made["baseTimeNanoseconds"] / 1e3 + event["ts"]) / 1e6)


def test_the_base_time_is_the_one_of_pytorchs_profiler() -> None:
    """A profile of 2026-11-21 by PyTorch 2.13 has this base: the 227th three months of 7889238 s."""
    report = Report(generated=1_795_296_553.0)
    assert perfetto.base_time_ns(report) == 1_790_857_026_000_000_000


def test_everything_lies_at_its_time() -> None:
    report = reports.stalled()
    rank = report.runs[0].ranks[0]
    rows = [StepRow(reports.START + 30.123456, 0.25, 1, 0.25, 0.25, {"compute": 0.2, "lock": 0.05})]
    made = perfetto.trace(report, {(report.runs[0].run, "0"): rows})
    [step] = named(made, "steps")
    assert unix(made, step) == pytest.approx(reports.START + 30.123456, abs=1e-6)
    assert step["dur"] == pytest.approx(250_000)
    stalls = named(made, "stalls")
    assert [(one["name"], pytest.approx(unix(made, one), abs=1e-6)) for one in stalls] == [
        (stall.cause, stall.start) for stall in rank.stalls
    ]
    assert stalls[0]["args"]["advice"] == rank.stalls[0].advice
    assert [one["name"] for one in named(made, "workers")] == ["worker 4719 killed (signal 9)"]
    shares = [event["args"] for event in made["traceEvents"] if event["name"] == perfetto.SHARES]
    assert shares == [{"compute": 0.8, "lock": 0.2}, {"compute": 0.0, "lock": 0.0}]


def test_what_is_open_lasts_until_now() -> None:
    report = reports.stalled()
    stall = report.runs[0].ranks[0].stalls[-1]
    stall.end = None
    made = perfetto.trace(report, {})
    assert unix(made, named(made, "stalls")[-1]) + named(made, "stalls")[-1]["dur"] / 1e6 == pytest.approx(
        report.generated, abs=1e-6
    )


def test_saves_that_overlap_have_tracks_of_their_own() -> None:
    report = reports.stalled()
    at = reports.START
    report.runs[0].ranks[0].checkpoints = [
        Checkpoint(f"/{name}.pt", at + start, at + end, 1, 1.0)
        for name, start, end in (("a", 0, 10), ("b", 5, 20), ("c", 10, 12), ("d", 6, 7))
    ]
    made = perfetto.trace(report, {})
    tracks = ("checkpoints", "checkpoints 2", "checkpoints 3")
    assert [[one["name"] for one in named(made, track)] for track in tracks] == [["a.pt", "c.pt"], ["b.pt"], ["d.pt"]]


def test_any_report_is_a_valid_trace() -> None:
    """Numbers are finite, every event has what the format asks for, hostile names are only names."""
    for report in (reports.stalled(), reports.healthy(), reports.killed(), reports.hostile(), Report()):
        told = json.loads(json.dumps(perfetto.trace(report, {}), allow_nan=False))
        for event in told["traceEvents"]:
            assert {"ph", "name", "pid", "ts", "args"} <= event.keys()
            assert event["pid"] > 4_194_304, "no process has such a number"
            assert event["ph"] != "X" or event["dur"] >= 0
            assert len(event["name"]) <= perfetto.NAME_LIMIT


def test_each_rank_is_a_process_of_its_own() -> None:
    made = perfetto.trace(reports.killed(), {})
    names = [event["args"]["name"] for event in made["traceEvents"] if event["name"] == "process_name"]
    assert names == ["trainprobe: train.py-00000002 rank 0 (pid 60)", "trainprobe: train.py-00000002 rank 1 (pid 61)"]


def test_states_that_took_nothing_have_no_share() -> None:
    report = reports.stalled()
    key = report.runs[0].key, "0"
    made = perfetto.trace(report, {key: [StepRow(reports.START, 1.0, 1, 1.0, 1.0, {"compute": 0.0})]})
    shares = [event["args"] for event in made["traceEvents"] if event["name"] == perfetto.SHARES]
    assert shares == [{"compute": 0.0}, {"compute": 0.0}]


def test_the_shares_stop_where_steps_stop() -> None:
    told = training(random.Random(3), end=1_795_000_000.0, steps=100, stalls=1)
    rows = [*told.rows[:10], *told.rows[60:]]
    made = perfetto.trace(told.report, {(RUN, "0"): rows})
    shares = [event for event in made["traceEvents"] if event["name"] == perfetto.SHARES]
    gaps = [unix(made, event) for event in shares if event["args"] and not any(event["args"].values())]
    assert gaps == pytest.approx([rows[9].end, rows[-1].end], abs=1e-5)


def test_a_state_that_a_step_does_not_have_is_zero_in_it() -> None:
    report = reports.stalled()
    saved = StepRow(reports.START, 1.0, 1, 1.0, 1.0, {"compute": 0.5, "checkpoint": 0.5})
    usual = StepRow(reports.START + 1.0, 0.5, 1, 0.5, 0.5, {"compute": 0.5})
    made = perfetto.trace(report, {(report.runs[0].run, "0"): [saved, usual]})
    shares = [event["args"] for event in made["traceEvents"] if event["name"] == perfetto.SHARES]
    assert shares == [{"compute": 0.5, "checkpoint": 0.5}, {"compute": 1.0, "checkpoint": 0.0}, {"compute": 0.0}]


def test_steps_follow_upon_each_other_whatever_rounding_did() -> None:
    report = reports.stalled()
    rows = [StepRow(reports.START + n * 0.5 - 2e-7, 0.5 + 6e-7, 1, 0.5, 0.5) for n in range(50)]
    steps = named(perfetto.trace(report, {(report.runs[0].run, "0"): rows}), "steps")
    assert all(one["ts"] + one["dur"] <= after["ts"] + 0.0005 for one, after in pairwise(steps))
    assert sum(one["dur"] for one in steps) == pytest.approx(25e6, rel=1e-5)
