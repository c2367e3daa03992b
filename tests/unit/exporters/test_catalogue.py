"""The catalogue against the contract's table, and against what is really told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.exporters.reports import a_full_report
from trainprobe.model.cause import LOST
from trainprobe_exporters import catalogue_docs
from trainprobe_exporters.catalogue import BY_NAME, METRICS, RANK_LABELS, DropPolicy, EndPolicy
from trainprobe_exporters.families import SeriesTable

# The contract's table: type, labels beyond run and rank ("-" instead of run and rank: none of them), names.
CONTRACT = """
gauge slurm_job,pod_uid,container,namespace,pod,container_name: run_info
counter : run_wall_seconds_total productive_seconds_total
counter state: state_seconds_total
counter phase: phase_seconds_total
gauge phase: phase_active
counter cause: lost_seconds_total stall_seconds_total stalls_total
gauge cause: stall_active stall_last_start_timestamp_seconds
histogram : stall_duration_seconds step_duration_seconds
counter : steps_total
gauge : last_step_timestamp_seconds
gauge : step_baseline_seconds step_variation_ratio step_drift_ratio_per_1000_steps
gauge -,run: goodput_ratio time_to_first_step_seconds restore_seconds run_attempts
counter -,run,badput_source: badput_seconds_total
counter -,run: wasted_progress_seconds_total
counter outcome: checkpoints_total
counter : checkpoint_bytes_total
counter operation,blocking: checkpoint_seconds_total
gauge : checkpoint_last_duration_seconds checkpoint_last_bytes
gauge : checkpoint_filesystem_available_bytes checkpoint_filesystem_files_free
counter kind: log_writes_total log_bytes_total log_seconds_total
gauge kind: log_file_bytes
gauge : open_fds max_fds
counter errno: fd_errors_total
gauge -,device,container: shm_used_bytes shm_size_bytes shm_leaked_bytes
gauge : run_shm_bytes run_shm_size_bytes
counter : shm_errors_total
gauge : workers
counter : worker_starts_total
counter reason: worker_exits_total
gauge -: orphan_workers orphan_worker_bytes
gauge : run_pss_bytes run_swap_bytes
gauge -,run,scope: memory_used_bytes memory_limit_bytes
gauge -: swap_used_bytes swap_size_bytes
gauge : memory_exhaustion_seconds fd_exhaustion_seconds shm_exhaustion_seconds
counter -: swap_in_pages_total
counter : major_faults_total direct_reclaim_seconds_total cpu_throttled_seconds_total runqueue_seconds_total
counter -,run,scope: oom_kills_total
counter -,resource,kind: pressure_seconds_total
histogram -,device,operation: block_io_duration_seconds
gauge gpu,uuid,mig: run_gpu_info
gauge -,gpu,uuid: gpu_utilization_ratio gpu_memory_used_bytes gpu_memory_total_bytes gpu_power_watts
gauge -,gpu,uuid: gpu_temperature_celsius gpu_sm_clock_hertz gpu_tensor_active_ratio
gauge -,gpu,uuid: gpu_pcie_receive_bytes_per_second gpu_pcie_transmit_bytes_per_second
counter -,gpu,uuid,reason: gpu_throttled_seconds_total
counter -,gpu,uuid,kind,code: gpu_errors_total
counter gpu,cause: gpu_idle_seconds_total
gauge -,source: source_up source_duration_seconds
counter -,source: source_errors_total
counter -,probe: events_lost_total bpf_run_seconds_total bpf_runs_total
gauge -: report_timestamp_seconds
counter -: series_dropped_total
gauge -,version: build_info
"""
BUCKETS = {
    "trainprobe_stall_duration_seconds": ".05 .1 .2 .5 1 2 5 10 30 60 120",
    "trainprobe_step_duration_seconds": ".005 .01 .025 .05 .1 .25 .5 1 2.5 5 10 30 60",
}
CLOSED = {
    ("trainprobe_checkpoint_seconds_total", "operation"): "write fsync rename serialize other",
    ("trainprobe_checkpoint_seconds_total", "blocking"): "true false",
    ("trainprobe_log_bytes_total", "kind"): "tensorboard wandb stdout log",
    ("trainprobe_worker_exits_total", "reason"): "finished oom_kill killed crashed exited",
    ("trainprobe_memory_used_bytes", "scope"): "cgroup host",
    ("trainprobe_pressure_seconds_total", "resource"): "cpu memory io",
    ("trainprobe_pressure_seconds_total", "kind"): "some full",
    ("trainprobe_gpu_errors_total", "kind"): "xid ecc lost",
    (
        "trainprobe_badput_seconds_total",
        "badput_source",
    ): "startup training_prep data_loading checkpoint_save checkpoint_restore wasted_progress recovery evaluation "
    "recompilation other",
    ("trainprobe_phase_active", "phase"): "startup compile evaluation idle attaching shutdown train",
}


def contract() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = {}
    for line in CONTRACT.strip().splitlines():
        head, names = line.split(":")
        kind, _, rest = head.partition(" ")
        own = tuple(label for label in rest.strip().split(",") if label)
        labels = own[1:] if own[:1] == ("-",) else RANK_LABELS + own
        for name in names.split():
            rows[f"trainprobe_{name}"] = (kind, labels)
    return rows


def test_the_catalogue_has_the_contracts_table() -> None:
    """Further metrics may come."""
    assert contract().items() <= {m.name: (m.type, m.labels) for m in METRICS}.items()


def test_each_metric_stands_once() -> None:
    assert len(BY_NAME) == len(METRICS)


@pytest.mark.parametrize(("name", "bounds"), BUCKETS.items())
def test_buckets(name: str, bounds: str) -> None:
    assert BY_NAME[name].buckets == tuple(map(float, bounds.split()))


@pytest.mark.parametrize(("place", "values"), CLOSED.items())
def test_closed_sets(place: tuple[str, str], values: str) -> None:
    name, label = place
    assert set(BY_NAME[name].values[label]) == set(values.split())


@pytest.mark.parametrize("name", ["lost_seconds_total", "stall_seconds_total", "stalls_total"])
def test_all_causes_that_can_own_lost_time_start_at_zero(name: str) -> None:
    assert set(BY_NAME[f"trainprobe_{name}"].zero) == {str(cause) for cause in LOST}


def test_names_say_type_and_unit() -> None:
    for metric in METRICS:
        assert (metric.type == "counter") == metric.name.endswith("_total"), metric.name
        if metric.unit:
            assert metric.name.removesuffix("_total").endswith(metric.unit), metric.name
        assert set(metric.zero) <= set(metric.values.get(metric.labels[-1], ()) if metric.labels else ())


def test_only_gauges_leave_or_fall_at_the_end() -> None:
    assert all(m.type == "gauge" for m in METRICS if m.at_end is not EndPolicy.STAYS)


def test_what_alerts_and_annotations_read_never_gives_way() -> None:
    for name in ("stall_seconds_total", "lost_seconds_total", "phase_active", "worker_exits_total", "steps_total",
                 "checkpoints_total", "step_baseline_seconds", "step_drift_ratio_per_1000_steps"):  # fmt: skip
        assert BY_NAME[f"trainprobe_{name}"].gives_way is DropPolicy.NEVER


def test_a_full_report_tells_the_whole_catalogue() -> None:
    series = SeriesTable()
    series.fold(a_full_report())
    told = {family.metric.name for family in series.families(a_full_report().generated, fresh=True)}
    by_the_exporter = {
        "trainprobe_ready",
        "trainprobe_source_errors_total",
        "trainprobe_source_duration_seconds",
        "trainprobe_build_info",
        "trainprobe_annotations_total",
        "trainprobe_annotations_pending",
    }
    assert told | by_the_exporter == {m.name for m in METRICS}


def test_the_page_is_what_the_catalogue_says() -> None:
    page = Path(__file__).parents[3] / "docs" / "metrics.md"
    assert page.read_text() == catalogue_docs.markdown(), "make it anew: python -m trainprobe_exporters.catalogue_docs"


def test_the_page_names_every_metric() -> None:
    page = catalogue_docs.markdown()
    assert all(f"| `{metric.name}` |" in page for metric in METRICS)


@pytest.mark.parametrize("module", ["catalogue", "families", "catalogue_docs"])
def test_the_core_of_the_exporter_is_pure(module: str) -> None:
    """It is imported without ever touching sockets, threads, YAML or prometheus_client."""
    impure = "prometheus_client yaml socket threading subprocess bcc psutil pynvml"
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; import trainprobe_exporters.{module}\n"
        f"print(*(set({impure.split()!r}) & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
