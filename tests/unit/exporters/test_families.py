"""What is told of a report: zeros from the start, absence until something is real, ends, privacy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.unit.exporters.reports import (
    DISK,
    NOW,
    a_busy_rank,
    a_full_report,
    a_goodput,
    a_rank,
    a_report,
    a_run,
    a_stepping_rank,
    ended_rank,
    measured,
)
from tests.unit.exporters.told import Told, told, told_now
from tests.unit.wire import strategies
from trainprobe.model.cause import LOST, Cause
from trainprobe.model.report import BlockIo, Counters, Gpu, GpuState, Host, Rank, Report, Run, Source, Steps
from trainprobe_exporters.catalogue import MAX_SERIES_PER_RANK, METRICS
from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import SeriesTable
from trainprobe_exporters.readings import MAX_GPUS

ME = {"run": "train.py-3f2a91c0", "rank": "0"}


def told_of(*runs: Run, **given: object) -> Told:
    series = SeriesTable()
    series.fold(a_report(*runs, **given))  # type: ignore[arg-type]
    return told_now(series, NOW)


def told_of_rank(rank: Rank) -> Told:
    return told_of(a_run(ME["run"], rank))


def test_counters_by_cause_stand_at_zero_before_anything_has_happened() -> None:
    seen = told_of_rank(a_rank())
    for name in ("lost_seconds_total", "stall_seconds_total", "stalls_total"):
        assert {c: seen.of(f"trainprobe_{name}", **ME, cause=c) for c in map(str, LOST)} == dict.fromkeys(LOST, 0)
    assert set(seen.all("trainprobe_worker_exits_total").values()) == {0}
    assert set(seen.all("trainprobe_checkpoints_total").values()) == {0}
    assert list(seen.all("trainprobe_checkpoint_seconds_total").values()) == [0] * 10


@pytest.mark.parametrize(
    "name",
    [
        "last_step_timestamp_seconds", "step_baseline_seconds", "step_variation_ratio", "stall_active",
        "stall_last_start_timestamp_seconds", "checkpoint_last_duration_seconds", "checkpoint_last_bytes", "open_fds",
        "run_pss_bytes", "run_swap_bytes", "run_shm_bytes", "memory_used_bytes", "swap_used_bytes",
        "swap_in_pages_total", "pressure_seconds_total", "bpf_run_seconds_total", "state_seconds_total",
    ],
)  # fmt: skip
def test_what_was_not_measured_is_absent(name: str) -> None:
    assert told_of_rank(a_rank()).all(f"trainprobe_{name}") == {}


def test_an_instant_that_has_not_come_is_absent_even_when_it_is_written_as_zero() -> None:
    rank = a_rank(counters=Counters(last_step=0.0, stall_last_start={"checkpoint": 0.0}))
    seen = told_of_rank(rank)
    assert not seen.all("trainprobe_last_step_timestamp_seconds")
    assert not seen.all("trainprobe_stall_last_start_timestamp_seconds")


@pytest.mark.parametrize("source", ["none", "rhythm"])
def test_without_a_step_clock_there_are_no_steps_rather_than_zero(source: str) -> None:
    """The rhythm of waits knows stalls, and no steps: nobody may be told of a training that makes none."""
    seen = told_of_rank(a_rank(steps=Steps(0, source)))
    assert not seen.all("trainprobe_steps_total")
    assert not seen.all("trainprobe_step_duration_seconds_count")
    assert told_of_rank(a_stepping_rank()).of("trainprobe_steps_total", **ME) == 1000


def test_an_open_stall_counts_and_is_flagged() -> None:
    counters = {
        "stall_seconds": {"checkpoint": 3.25},
        "stalls": {"checkpoint": 1},
        "stall_active": {"checkpoint": 1, "swap": 0},
        "stall_last_start": {"checkpoint": NOW - 3.25},
    }
    seen = told_of_rank(a_stepping_rank(**counters))
    assert seen.of("trainprobe_stall_seconds_total", **ME, cause="checkpoint") == 3.25
    assert seen.all("trainprobe_stall_active") == {frozenset((ME | {"cause": "checkpoint"}).items()): 1}
    assert seen.of("trainprobe_stall_last_start_timestamp_seconds", **ME, cause="checkpoint") == NOW - 3.25


def test_histograms_are_cumulative_for_prometheus() -> None:
    rank = a_stepping_rank(stall_durations=[2, 0, 1], stall_duration_sum=0.9)
    seen = told_of_rank(rank)
    buckets = {dict(k)["le"]: v for k, v in seen.all("trainprobe_stall_duration_seconds_bucket").items()}
    assert (buckets["0.05"], buckets["0.1"], buckets["0.2"], buckets["120.0"], buckets["+Inf"]) == (2, 2, 3, 3, 3)
    assert seen.of("trainprobe_stall_duration_seconds_count", **ME) == 3
    assert seen.of("trainprobe_stall_duration_seconds_sum", **ME) == 0.9


def test_train_is_what_no_other_phase_has() -> None:
    seen = told_of_rank(a_stepping_rank(wall=100.0))
    assert seen.of("trainprobe_phase_seconds_total", **ME, phase="train") == 75
    assert seen.all("trainprobe_phase_active") == {
        frozenset((ME | {"phase": "train"}).items()): 1,
        frozenset((ME | {"phase": "startup"}).items()): 0,
    }


def test_keys_of_a_newer_daemon_keep_the_sums() -> None:
    rank = a_rank(
        lost={"checkpoint": 1.0, "solar_flare": 2.0, "unknown": 0.5},
        ledger={"compute": 1.0, "dreaming": 2.0},
        counters=Counters(worker_exits={"abducted": 1}, checkpoint_seconds={"teleport/true": 1.0, "write/maybe": 9.0}),
    )
    seen = told_of_rank(rank)
    assert seen.of("trainprobe_lost_seconds_total", **ME, cause="unknown") == 2.5
    assert seen.of("trainprobe_state_seconds_total", **ME, state="other") == 2
    assert seen.of("trainprobe_worker_exits_total", **ME, reason="exited") == 1
    assert sorted(seen.all("trainprobe_checkpoint_seconds_total").values()) == [0] * 9 + [1]
    assert seen.of("trainprobe_checkpoint_seconds_total", **ME, operation="other", blocking="true") == 1


def test_a_checkpoint_in_flight_is_not_counted_as_ended() -> None:
    seen = told_of_rank(a_rank(counters=Counters(checkpoints={"open": 1, "complete": 2})))
    assert sum(seen.all("trainprobe_checkpoints_total").values()) == 2


def test_command_and_user_are_told_only_where_privacy_allows() -> None:
    names = {"slurm_job": "77", "namespace": "team-a", "pod": "trainer-0", "container_name": "main"}
    run = a_run(user="ann", labels={**names, "slurm_job_name": "sweep"})
    [(labels, _)] = told_of(run).all("trainprobe_run_info").items()
    assert dict(labels) == {**ME, **names}
    [(labels, _)] = told_of(run, private_labels=True).all("trainprobe_run_info").items()
    assert dict(labels) == {**ME, **names, "command": "python train.py", "user": "ann", "slurm_job_name": "sweep"}


def test_no_pid_and_no_path_in_any_label() -> None:
    names = {label for metric in METRICS for label in (*metric.labels, *metric.optional_labels)}
    assert not names & {"pid", "path", "file", "job", "instance"}


def test_an_ended_rank_keeps_totals_drops_flags_to_zero_and_loses_sizes() -> None:
    alive = told_of_rank(a_busy_rank(causes=(Cause.CHECKPOINT,)))
    assert alive.of("trainprobe_stall_active", **ME, cause="checkpoint") == 1
    assert alive.of("trainprobe_workers", **ME) == 6
    ended = told_of_rank(ended_rank())
    assert ended.of("trainprobe_steps_total", **ME) == 10_000
    assert set(ended.all("trainprobe_phase_active").values()) == {0}
    for name in ("workers", "run_pss_bytes", "open_fds", "run_shm_bytes"):
        assert not ended.all(f"trainprobe_{name}")


def test_host_sources_and_cost() -> None:
    seen = told_of(
        host=Host(pressure_seconds={"cpu.some": 1.5, "gpu.some": 9.0}, swap_used_bytes=0),
        sources={"bpf": Source("up"), "psi": Source("error", "gone"), "nvml": Source("unavailable", "no GPU")},
        events_lost=5,
        events_lost_by={"ring": 3},
    )
    assert {dict(k)["source"]: v for k, v in seen.all("trainprobe_source_up").items()} == {
        "bpf": 1,
        "psi": 0,
        "nvml": 0,
    }
    assert seen.all("trainprobe_pressure_seconds_total") == {
        frozenset({"resource": "cpu", "kind": "some"}.items()): 1.5
    }
    assert seen.of("trainprobe_swap_used_bytes") == 0
    assert seen.of("trainprobe_events_lost_total", probe="ring") == 3
    assert seen.of("trainprobe_events_lost_total", probe="other") == 2
    assert seen.of("trainprobe_report_timestamp_seconds") == NOW


def test_block_devices_by_how_long_their_requests_took() -> None:
    one = BlockIo("vda", "write", [3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 12.5)
    seen = told_of(host=Host(block_io=[one, BlockIo("vdb", "read", [0, 1], 0.0002)]))
    name, of = "trainprobe_block_io_duration_seconds", {"device": "vda", "operation": "write"}
    assert [seen.of(f"{name}_bucket", **of, le=le) for le in ("0.0001", "0.0003", "10.0", "+Inf")] == [3, 5, 5, 6]
    assert (seen.of(f"{name}_count", **of), seen.of(f"{name}_sum", **of)) == (6, 12.5)
    assert seen.of(f"{name}_count", device="vdb", operation="read") == 1


def test_the_daemons_own_word_about_itself_does_not_count() -> None:
    """Whether the daemon is up is what the exporter sees, not what the daemon says."""
    assert told_of(sources={"daemon": Source("up")}).all("trainprobe_source_up") == {}


def test_a_rank_stays_within_its_series_and_what_was_left_out_is_counted_once() -> None:
    series = SeriesTable()
    for at in (NOW, NOW + 1):
        series.fold(a_report(a_run(ME["run"], a_busy_rank()), at=at))
    seen = told_now(series, NOW + 1)
    of_rank = [key for key in seen if dict(key[1]).get("rank") == "0"]
    assert len(of_rank) == MAX_SERIES_PER_RANK
    dropped = seen.of("trainprobe_series_dropped_total")
    assert dropped is not None
    assert 0 < dropped < 150
    assert len(seen.all("trainprobe_stall_seconds_total")) == len(LOST), "what annotations read stays"


def test_a_host_of_eight_ranks_and_gpus_stays_within_its_series() -> None:
    """Whatever happened in its ranks, with four disks."""
    gpus = [measured(GpuState(number, f"GPU-{number}", throttled_seconds={"power": 1.0})) for number in range(8)]
    ranks = [a_busy_rank(str(number)) for number in range(8)]
    memory = {"used_bytes": 6 << 30, "limit_bytes": 8 << 30, "scope": "cgroup"}
    disks = [replace(DISK, device=f"sd{letter}", operation=done) for letter in "abcd" for done in ("read", "write")]
    host = Host("node1", "6.1", 8, 16 << 30, 1 << 20, 1 << 30, 5, dict.fromkeys(("cpu.some", "io.full"), 1.0), disks)
    run = a_run(ME["run"], *ranks, memory=memory, goodput=a_goodput())
    sources = {f"source{number}": Source("up") for number in range(12)}
    seen = told_of(run, host=host, gpus=gpus, sources=sources)
    assert len([key for key in seen if dict(key[1]).get("run") == ME["run"] and "rank" not in dict(key[1])]) == 5 + 14
    assert len(seen) <= 1_650


def test_a_start_counts_as_an_increase_and_a_job_goes_on_under_its_name() -> None:
    """Nobody knows what a start is spent on until the first step: what is told begins at 0, or where the job was."""
    series = SeriesTable()
    name, source = "trainprobe_badput_seconds_total", {"run": ME["run"], "badput_source": "startup"}
    starting = a_goodput(badput={"startup": 9.0}, earlier={})
    series.fold(a_report(a_run(ME["run"], a_rank(), goodput=starting)))
    assert set(told_now(series, NOW).all(name).values()) == {0}
    series.fold(a_report(a_run(ME["run"], a_stepping_rank(), goodput=starting)))
    assert told_now(series, NOW).of(name, **source) == 9
    again = a_goodput(badput={"startup": 11.0, "recovery": 4.0}, earlier={"startup": 9.0})
    series.fold(a_report(a_run(ME["run"], a_rank(), goodput=again)))
    seen = told_now(series, NOW)
    assert (seen.of(name, **source), seen.of(name, run=ME["run"], badput_source="recovery")) == (9, None)
    series.fold(a_report(a_run(ME["run"], a_stepping_rank(), goodput=again)))
    assert told_now(series, NOW).of(name, run=ME["run"], badput_source="recovery") == 4


def test_badput_that_moves_to_another_source_does_not_fall() -> None:
    series = SeriesTable()
    for badput in ({"data_loading": 9.0}, {"data_loading": 2.0, "other": 7.0}):
        series.fold(a_report(a_run(ME["run"], a_stepping_rank(), goodput=a_goodput(badput=badput))))
    seen = told_now(series, NOW)
    name = "trainprobe_badput_seconds_total"
    assert seen.of(name, run=ME["run"], badput_source="data_loading") == 9
    assert seen.of(name, run=ME["run"], badput_source="other") == 7


def test_a_wasted_progress_that_is_not_known_is_absent() -> None:
    unknown = a_goodput(wasted_progress_seconds=None)
    seen = told_of(a_run(ME["run"], a_stepping_rank(), goodput=unknown))
    assert seen.all("trainprobe_wasted_progress_seconds_total") == {}
    assert seen.of("trainprobe_goodput_ratio", run=ME["run"]) == 0.3
    assert seen.of("trainprobe_run_attempts", run=ME["run"]) == 2


def test_an_ordinary_rank_loses_nothing() -> None:
    """Two causes, nine states, four phases, a synchronous checkpoint, one kind of log, workers."""
    rank = a_busy_rank(causes=(Cause.CHECKPOINT, Cause.DATA_CPU))
    rank.ledger = dict(list(rank.ledger.items())[:9])
    counters = rank.counters
    counters.phase_seconds = {"startup": 5.0, "evaluation": 1.0, "shutdown": 0.0}
    counters.checkpoint_seconds = {"write/true": 1.0, "fsync/true": 1.0, "serialize/true": 1.0, "other/true": 1.0}
    for figures in (counters.log_writes, counters.log_bytes, counters.log_seconds):
        for kind in ("wandb", "stdout", "log"):
            figures[kind] = 0
    seen = told_of_rank(rank)
    assert seen.of("trainprobe_series_dropped_total") == 0
    assert len(seen.all("trainprobe_stall_last_start_timestamp_seconds")) == 2
    assert len(seen.all("trainprobe_checkpoint_seconds_total")) == 10, "the first asynchronous save is an increase"


@pytest.mark.parametrize("state", ["up", "lost", "hung"])
def test_a_gpu_that_tells_nothing_has_no_figure_that_could_be_taken_for_one(state: str) -> None:
    """The other one of the host has all of its own."""
    silent = GpuState(0, "GPU-0", state=state, missing=["samples", "power"], errors={"lost/": 1})
    seen = told_of(gpus=[silent, replace(a_full_report().gpus[0], index=1, uuid="GPU-1")])
    assert {name for name, labels in seen if ("uuid", "GPU-0") in labels} == {"trainprobe_gpu_errors_total"}
    assert {name for name, labels in seen if ("uuid", "GPU-1") in labels} == {
        metric.name for metric in METRICS if "uuid" in metric.labels and metric.name != "trainprobe_run_gpu_info"
    }


def test_a_rank_that_claims_a_thousand_gpus_names_a_few() -> None:
    rank = a_rank(gpus=[Gpu(f"GPU-{n}", n) for n in range(1000)])
    assert len(told_of_rank(rank).all("trainprobe_run_gpu_info")) == MAX_GPUS


def test_two_ranks_of_one_name_are_told_once() -> None:
    seen = told_of(a_run(ME["run"], a_stepping_rank(wall=10.0), a_stepping_rank(wall=20.0)))
    assert seen.of("trainprobe_run_wall_seconds_total", **ME) == 10


@pytest.mark.parametrize("form", Format)
def test_both_formats_say_the_same(form: Format) -> None:
    series = SeriesTable()
    series.fold(a_full_report())
    families = series.families(NOW, fresh=True)
    seen = told(exposition(families, form), form)
    assert {k: v for k, v in seen.items() if not k[0].startswith("process_")} == {
        k: v for k, v in told_now(series, NOW).items() if not k[0].startswith("process_")
    }


@settings(deadline=None, max_examples=60)
@given(strategies.of_class(Report))
def test_no_report_however_odd_breaks_the_text(report: Report) -> None:
    """Hostile names, absurd numbers, equal ids: both formats stay readable, no series twice, ranks within bounds."""
    series = SeriesTable()
    series.fold(report)
    series.fold(replace(report, runs=report.runs[:1]))
    for form in Format:
        seen = told(exposition(series.families(report.generated, fresh=True), form), form)
        ranks: dict[tuple[str | None, str | None], int] = {}
        for _, labels in seen:
            at = (dict(labels).get("run"), dict(labels).get("rank"))
            ranks[at] = ranks.get(at, 0) + 1
        assert all(n <= MAX_SERIES_PER_RANK for (run, rank), n in ranks.items() if rank and run != "other")
