"""How series end: with their run, with the daemon, and when a place is needed."""

from __future__ import annotations

import gc
import tracemalloc

from tests.unit.exporters.reports import NOW, a_busy_rank, a_report, a_run, a_stepping_rank
from tests.unit.exporters.told import told_now
from trainprobe.model.cause import Cause
from trainprobe.model.report import Source
from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import SeriesTable
from trainprobe_exporters.naming import MAX_RUNS_PER_USER

WALL = "trainprobe_run_wall_seconds_total"


def test_a_runs_series_stay_after_its_end_and_then_leave() -> None:
    series = SeriesTable(linger_seconds=300)
    series.fold(a_report(a_run("r", a_busy_rank(), ended=NOW)))
    assert told_now(series, NOW + 299).all(WALL)
    assert not told_now(series, NOW + 301).all(WALL)


def test_they_stay_also_when_the_daemon_forgets_the_run_at_once() -> None:
    series = SeriesTable(linger_seconds=300)
    series.fold(a_report(a_run("r", a_busy_rank(causes=(Cause.SWAP,)))))
    series.fold(a_report(at=NOW + 1))
    seen = told_now(series, NOW + 2)
    assert seen.all(WALL)
    assert set(seen.all("trainprobe_stall_active").values()) == {0}
    assert not seen.all("trainprobe_workers")
    series.fold(a_report(at=NOW + 302))
    assert not told_now(series, NOW + 302).all(WALL)


def test_they_do_not_come_back_while_the_daemon_still_remembers_the_run() -> None:
    series = SeriesTable(linger_seconds=300)
    for at in (NOW, NOW + 301, NOW + 302):
        series.fold(a_report(a_run("r", a_busy_rank(), ended=NOW), at=at))
    assert not told_now(series, NOW + 302).all(WALL)


def test_how_long_can_be_changed_while_running() -> None:
    series = SeriesTable(linger_seconds=300)
    series.fold(a_report(a_run("r", a_busy_rank(), ended=NOW)))
    series.slots.linger_seconds = 10
    assert not told_now(series, NOW + 11).all(WALL)


def test_when_the_daemon_is_silent_flags_and_sizes_leave_at_once_and_totals_later() -> None:
    series = SeriesTable(linger_seconds=300)
    series.fold(a_report(a_run("r", a_busy_rank(causes=(Cause.SWAP,))), sources={"bpf": Source("up")}))
    silent = told_now(series, NOW + 20, fresh=False)
    assert silent.all(WALL)
    for name in ("stall_active", "phase_active", "workers", "run_pss_bytes", "source_up"):
        assert not silent.all(f"trainprobe_{name}")
    assert silent.all("trainprobe_report_timestamp_seconds")
    assert told_now(series, NOW + 1).all("trainprobe_source_up")
    assert not told_now(series, NOW + 301, fresh=False).all(WALL)
    assert told_now(series, NOW + 301, fresh=True).all(WALL), "a clock that was set is not the end of a run"


def test_the_next_attempt_of_a_run_goes_on_with_its_series() -> None:
    """A run has one name on all hosts, so its second launch on one of them has the series of the first."""
    series = SeriesTable(linger_seconds=300)
    first = a_run("r", a_busy_rank(wall=1000.0), ended=NOW)
    series.fold(a_report(first))
    for at in (NOW + 1, NOW + 2):
        series.fold(a_report(first, a_run("r", a_busy_rank(wall=3.0), attempt=2), at=at))
        seen = told_now(series, at)
        assert list(seen.all(WALL, run="r").values()) == [3.0]
        assert not seen.all(WALL, run="other"), "what the first one counted was told under its own name"
    anew = SeriesTable(linger_seconds=300)
    anew.fold(a_report(a_run("r", a_busy_rank(wall=3.0), attempt=2), first))
    assert list(told_now(anew, NOW).all(WALL).values()) == [3.0]


def test_an_ended_run_gives_its_place_to_a_living_one() -> None:
    series = SeriesTable(linger_seconds=300)
    old = [a_run(f"old{n}", a_stepping_rank(), ended=NOW - n) for n in range(MAX_RUNS_PER_USER)]
    series.fold(a_report(*old))
    series.fold(a_report(*old, a_run("new", a_stepping_rank()), at=NOW + 1))
    named = told_now(series, NOW + 1).label_values("run", WALL)
    assert "new" in named
    assert f"old{MAX_RUNS_PER_USER - 1}" not in named, "the one that ended first leaves"
    assert len(named) == MAX_RUNS_PER_USER, "and is not counted once more as other"


def test_a_run_cannot_pass_for_other_or_for_another_run() -> None:
    series = SeriesTable()
    series.fold(a_report(a_run("other", a_stepping_rank(wall=7.0)), a_run("a\x00"), a_run("a\x01")))
    seen = told_now(series, NOW)
    assert seen.label_values("run", "trainprobe_run_info") == {"a\N{REPLACEMENT CHARACTER}"}
    assert seen.of(WALL, run="other", rank="other") == 107


def test_a_run_of_another_user_with_the_same_name_keeps_nobody_from_his_series() -> None:
    """Names end in 32 bits of a digest, and who knows a name can search for settings that give it."""
    series = SeriesTable(linger_seconds=300)
    false, true = (a_run("r", a_stepping_rank(wall=wall), user=user) for wall, user in ((7.0, "eve"), (9.0, "ann")))
    for run in (false, true):
        run.attempt = 1 + (run is true)  # by which the daemon tells them apart
    for at in (NOW, NOW + 1):
        series.fold(a_report(false, true, at=at))
        assert told_now(series, at).of(WALL, run="r", rank="0") == 7
        assert told_now(series, at).of(WALL, run="r~2", rank="0") == 9
    again = a_run("r", a_stepping_rank(wall=1.0), user="ann", attempt=3)
    true.ended = NOW + 2
    series.fold(a_report(false, true, again, at=NOW + 2))
    assert told_now(series, NOW + 2).label_values("run", WALL) == {"r", "r~2"}
    assert told_now(series, NOW + 2).of(WALL, run="r~2", rank="0") == 1


def test_runs_that_have_left_take_no_memory() -> None:
    """300 runs of a minute, one after the other. Fifty of them fill what lingers and what is cached."""
    series, held = SeriesTable(linger_seconds=300), {}
    tracemalloc.start()
    try:
        for number in range(300):
            began = NOW + 60 * number
            for at, ended in ((began, None), (began + 10, began + 10)):
                series.fold(a_report(a_run(f"train.py-{number:08x}", a_stepping_rank(), ended=ended), at=at))
            exposition(series.families(began, fresh=True), Format.TEXT)
            if number in (50, 299):
                gc.collect()
                held[number] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held[299] - held[50] < 32 * 1024, held
