"""Counters never fall, for the named runs and for ``other``, whatever comes, goes and is judged anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.exporters.reports import NOW, a_report, a_run, a_stepping_rank
from tests.unit.exporters.told import Told, held_now, told_now
from trainprobe.model.report import Report, Run
from trainprobe_exporters.families import MAX_RANKS, MAX_RANKS_PER_RUN, SeriesTable
from trainprobe_exporters.naming import MAX_RUNS, MAX_RUNS_PER_USER


def falls(before: Told, after: Told) -> dict[object, tuple[float, float]]:
    """Counters (histogram buckets too) that have a lower value than before."""

    def counts(name: str) -> bool:
        return name.startswith("trainprobe_") and name.endswith(("_total", "_bucket", "_count", "_sum"))

    return {k: (v, after[k]) for k, v in before.items() if k in after and counts(k[0]) and after[k] < v}


def test_seconds_that_change_their_cause_do_not_make_a_counter_fall() -> None:
    series = SeriesTable()
    tellings = []
    for wall, causes in ((10, {"unknown": 1.0}), (11, {"unknown": 0.0, "checkpoint": 2.0}), (30, {"unknown": 1.5})):
        rank = a_stepping_rank(wall=wall, stall_seconds=causes)
        rank.lost = dict(causes)
        series.fold(a_report(a_run("r", rank), at=NOW + wall))
        tellings.append(told_now(series, NOW + wall))
    assert falls(tellings[0], tellings[1]) == falls(tellings[1], tellings[2]) == {}
    unknown = [t.of("trainprobe_stall_seconds_total", run="r", rank="0", cause="unknown") for t in tellings]
    assert unknown == [1.0, 1.0, 1.5]
    # The second report no longer speaks of this cause; its counter stays nevertheless.
    assert tellings[2].of("trainprobe_lost_seconds_total", run="r", rank="0", cause="checkpoint") == 2.0


def test_a_counter_that_a_report_no_longer_speaks_of_stays() -> None:
    series = SeriesTable()
    for writes in ({"stdout": 5}, {}):
        series.fold(a_report(a_run("r", a_stepping_rank(log_writes=writes))))
    assert told_now(series, NOW).of("trainprobe_log_writes_total", run="r", rank="0", kind="stdout") == 5


def test_a_rank_that_is_watched_anew_begins_anew() -> None:
    series = SeriesTable()
    for wall, lost in ((100.0, 50.0), (2.0, 1.0)):
        rank = a_stepping_rank(wall=wall, stall_seconds={"swap": lost})
        series.fold(a_report(a_run("r", rank)))
    seen = told_now(series, NOW)
    assert seen.of("trainprobe_stall_seconds_total", run="r", rank="0", cause="swap") == 1.0
    assert seen.of("trainprobe_run_wall_seconds_total", run="r", rank="0") == 2.0


def test_a_start_that_two_clocks_tell_slightly_otherwise_is_one_value() -> None:
    series = SeriesTable()
    values = set()
    for jitter in (0.0, 0.000_4, -0.001, 0.01):
        rank = a_stepping_rank(stalls={"swap": 1}, stall_last_start={"swap": NOW - 9 + jitter})
        series.fold(a_report(a_run("r", rank)))
        values |= set(told_now(series, NOW).all("trainprobe_stall_last_start_timestamp_seconds").values())
    assert values == {NOW - 9}
    series.fold(a_report(a_run("r", a_stepping_rank(stalls={"swap": 2}, stall_last_start={"swap": NOW - 1}))))
    assert set(told_now(series, NOW).all("trainprobe_stall_last_start_timestamp_seconds").values()) == {NOW - 1}


def many(count: int, *, wall: float = 10.0, user: str | None = None, first: int = 0) -> list[Run]:
    return [
        a_run(f"r{n:03}", a_stepping_rank(wall=wall, stall_seconds={"swap": wall / 10}),
              user=user or f"u{n // 10}", started=NOW + n)
        for n in range(first, first + count)
    ]  # fmt: skip


def test_the_runs_beyond_the_bound_are_summed_and_only_plain_counters_of_them_are_told() -> None:
    series = SeriesTable()
    series.fold(a_report(*many(MAX_RUNS + 3)))
    seen = told_now(series, NOW)
    assert len(seen.label_values("run", "trainprobe_run_wall_seconds_total")) == MAX_RUNS + 1
    assert seen.of("trainprobe_run_wall_seconds_total", run="other", rank="other") == 30
    assert seen.of("trainprobe_stall_seconds_total", run="other", rank="other", cause="swap") == 3
    of_other = {name for name, labels in seen if ("run", "other") in labels}
    assert of_other
    assert all(name.endswith("_total") for name in of_other)


@pytest.mark.parametrize(("runs", "ranks"), [(1, MAX_RANKS_PER_RUN + 6), (6, MAX_RANKS_PER_RUN)])
def test_the_ranks_beyond_the_bounds_are_summed_too(runs: int, ranks: int) -> None:
    series = SeriesTable()
    series.fold(a_report(*[a_run(f"r{n}", *[a_stepping_rank(str(k)) for k in range(ranks)]) for n in range(runs)]))
    wall = held_now(series, NOW).all("trainprobe_run_wall_seconds_total")
    summed = wall.pop(frozenset({"run": "other", "rank": "other"}.items()))
    assert len(wall) == min(MAX_RANKS, runs * MAX_RANKS_PER_RUN)
    assert summed == 100 * (runs * ranks - len(wall))


def test_one_user_cannot_take_all_places() -> None:
    series = SeriesTable()
    series.fold(a_report(*many(MAX_RUNS, user="greedy"), *many(3, user="modest", first=500)))
    named = told_now(series, NOW).label_values("run", "trainprobe_run_info")
    assert len(named) == MAX_RUNS_PER_USER + 3
    assert {"r500", "r501", "r502"} <= named


def test_one_users_ranks_leave_the_others_their_series() -> None:
    """His runs began first, with more ranks than there are places."""
    ranks = [a_stepping_rank(name=str(n), wall=10.0) for n in range(MAX_RANKS_PER_RUN)]
    greedy = [a_run(f"greedy{n}", *ranks, user="greedy") for n in range(2 * MAX_RANKS // MAX_RANKS_PER_RUN)]
    series = SeriesTable()
    series.fold(a_report(*greedy, a_run("modest", *ranks[:8], user="modest")))
    wall = told_now(series, NOW).all("trainprobe_run_wall_seconds_total")
    own = [dict(labels)["run"] for labels in wall if dict(labels)["run"] != "other"]
    assert own.count("modest") == 8
    assert len(own) == MAX_RANKS


def test_a_run_that_moves_from_other_to_its_own_name_leaves_its_past_there() -> None:
    series = SeriesTable(linger_seconds=0)
    runs = many(MAX_RUNS_PER_USER + 1, user="ann")
    series.fold(a_report(*runs))
    series.fold(a_report(*[replace(run, ended=NOW) for run in runs[:1]], *runs[1:], at=NOW + 1))
    seen = told_now(series, NOW + 1)
    assert runs[-1].run in seen.label_values("run", "trainprobe_run_info")
    assert seen.of("trainprobe_run_wall_seconds_total", run="other", rank="other") == 10


def test_a_run_that_a_report_left_out_is_not_counted_twice_when_it_is_back() -> None:
    series = SeriesTable()
    runs = many(MAX_RUNS_PER_USER + 1, user="ann")
    for present in (runs, runs[:-1], runs):
        series.fold(a_report(*present))
    assert told_now(series, NOW).of("trainprobe_run_wall_seconds_total", run="other", rank="other") == 10


@st.composite
def histories(draw: st.DrawFn) -> list[Report]:
    """Reports in which runs begin, stall, are judged anew, end, vanish, in any order."""
    reports = []
    walls: dict[int, float] = {}
    ended: dict[int, float] = {}
    for tick in range(draw(st.integers(2, 8))):
        at = NOW + tick * draw(st.sampled_from([1, 200]))
        runs = []
        for n in draw(st.sets(st.integers(0, 19), max_size=20)):
            walls[n] = walls.get(n, 0) + (draw(st.floats(0, 10)) if n not in ended else 0)
            if draw(st.booleans()):
                ended.setdefault(n, at)
            stalled = draw(st.dictionaries(st.sampled_from(["swap", "unknown", "nonsense"]), st.floats(0, 5)))
            rank = a_stepping_rank(wall=walls[n], stall_seconds=stalled, stall_durations=[draw(st.integers(0, 3))] * 12)
            rank.lost = dict(stalled)
            runs.append(a_run(f"r{n}", rank, user=f"u{n % 2}", ended=ended.get(n)))
        reports.append(a_report(*runs, at=at))
    return reports


def test_what_is_held_is_what_is_scraped() -> None:
    series = SeriesTable()
    series.fold(a_report(*many(3)))
    scraped, held = told_now(series, NOW), held_now(series, NOW)
    assert {key for key in scraped if not key[0].startswith("process_")} == held.keys()
    assert {key: scraped[key] for key in held} == held


@settings(deadline=None, max_examples=50)
@given(histories())
def test_no_counter_ever_falls(reports: list[Report]) -> None:
    series = SeriesTable()
    tellings: list[Told] = []
    for report in reports:
        series.fold(report)
        tellings.append(held_now(series, report.generated))
    for before, after in pairwise(tellings):
        assert falls(before, after) == {}
