"""The dashboard *Training stalls*: one run, why it loses time, and everything that may explain it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana import gpus, thresholds
from grafana.annotations import ALL_NAMES
from grafana.causes import CAUSE_COLOURS, PHASE_COLOURS, STATE_COLOURS
from grafana.dashboard import STALLS_UID, dashboard_of
from grafana.layout import Line, Section, rows
from grafana.lines import RATE
from grafana.others import lines_of
from grafana.panels import (
    BYTES,
    COUNT,
    SECONDS,
    SHARE,
    TIME,
    WRITES,
    Column,
    Q,
    alerts_of,
    bars,
    fill,
    heatmap_of,
    lanes,
    stat_of,
    states_of,
    table_of,
    time_series,
)
from grafana.queries import NOT_TRAINING, Queries
from grafana.scope import Scope
from trainprobe.model.vocabulary import REPORT_PAUSE_SECONDS
from trainprobe_exporters.catalogue import Metric

UP_OR_DOWN = {"1": ("up", thresholds.GREEN), "0": ("down", thresholds.RED)}


def training_stalls(others: Sequence[Metric] = ()) -> Any:
    """``others``: metrics that no dashboard draws by hand."""
    q = Queries(Scope(one_run=True))
    further = [Section("Other figures", lines_of(q, others), collapsed=True)] if others else []
    return dashboard_of(
        STALLS_UID,
        "Training stalls",
        "One run of a training: which cause owns the time that it loses, since when, and what the host did meanwhile.",
        q,
        [
            Section("Verdict", [_verdict(q)]),
            Section("Lost time", _lost_time(q)),
            Section("Alerts", [_alerts()]),
            Section("Steps and GPU", _steps(q) + _gpu_beside_steps(q)),
            Section("Data loading", _data(q), collapsed=True),
            Section("Checkpoints", _checkpoints(q), collapsed=True),
            Section("Logging", _logging(q), collapsed=True),
            Section("Memory and CPU", _memory(q), collapsed=True),
            Section("File descriptors and shared memory", _descriptors(q), collapsed=True),
            Section("GPU", _gpu(q), collapsed=True),
            Section("trainprobe itself", _agent(q), collapsed=True),
            *further,
        ],
        since="now-1h",
        toggles_on=ALL_NAMES,
    )


def _verdict(q: Queries) -> Line:
    return Line(
        4,
        stat_of(
            "Main cause",
            "The cause that owns most of the time lost in the time range, and how much, of the worst rank.",
            SECONDS,
            Q(q.worst_cause, "{{cause}}"),
            names="value_and_name",
            colours=CAUSE_COLOURS,
        ),
        stat_of(
            "Lost",
            "Share of the wall time lost to stalls and bottlenecks in the time range, of the worst rank.",
            SHARE,
            Q(f"max({q.share_of_wall('trainprobe_lost_seconds_total')})", "lost"),
            levels=thresholds.LOST_SHARE,
            decimals=1,
        ),
        stat_of(
            "Productive",
            "Share of the wall time that was neither lost nor in a phase other than train, of the worst rank.",
            SHARE,
            Q(f"min({q.share_of_wall('trainprobe_productive_seconds_total')})", "productive"),
            levels=thresholds.PRODUCTIVE_SHARE,
            decimals=1,
        ),
        stat_of(
            "Stalled now",
            "The causes of the stalls that are open at this moment.",
            COUNT,
            Q(q.stalled_now, "{{cause}}"),
            names="name",
            none="ended, or not known",
            colours=CAUSE_COLOURS,
        ),
        stat_of(
            "Phase",
            "The phase that the ranks are in.",
            COUNT,
            Q(q.phase_now, "{{phase}}"),
            names="name",
            none="ended, or not known",
            colours=PHASE_COLOURS,
        ),
        stat_of(
            "Since the last step",
            "Time since any rank in the phase train ended a step. Nothing where none is, or nobody knows.",
            SECONDS,
            Q(q.seconds_without_step, "since the last step"),
            levels=thresholds.SECONDS_WITHOUT_STEP,
            none="–",
        ),
        stat_of(
            "Steps per second",
            "Steps per second now, the mean of the ranks.",
            COUNT,
            Q(f"avg(rate(trainprobe_steps_total{q.scope.rank()}[{RATE}]))", "steps per second"),
            decimals=2,
        ),
        stat_of(
            "Ordinary step",
            "The baseline: median of the latest 64 unstalled training steps, of the slowest rank.",
            SECONDS,
            Q(q.step_baseline, "baseline"),
            none="not yet",
        ),
    )


def _lost_time(q: Queries) -> list[Line]:
    return [
        Line(
            7,
            lanes(
                "Stalls by cause",
                "A lane for each cause that stalled the run in the time range. Drawn from counters: a stall of "
                "0.3 s between two scrapes is there too, as wide as one interval.",
                Q(q.stall_lanes, "{{cause}}"),
                on="stalled",
                colours=CAUSE_COLOURS,
                none="no stall, or nothing known",
            ),
            lanes(
                "Phases",
                "Phases that are not training, and are no lost time.",
                Q(f"max by (phase) (trainprobe_phase_active{q.scope.rank(NOT_TRAINING)})", "{{phase}}"),
                on="in it",
                colours=PHASE_COLOURS,
                none="nothing but training, or nothing known",
            ),
            widths=(16, 8),
        ),
        Line(
            9,
            time_series(
                "Time lost per second, by cause",
                "Stalls and bottlenecks: 1 means that the whole second is lost. The worst rank for each cause.",
                Q(q.lost_per_second, "{{cause}}"),
                unit=SHARE,
                stacked=True,
                colours=CAUSE_COLOURS,
                none="nothing lost, or nothing known",
            ),
            time_series(
                "Where the training thread's time goes",
                "Exclusive states that add up to the wall time; the mean of the ranks.",
                Q(f"avg by (state) (rate(trainprobe_state_seconds_total{q.scope.rank()}[{RATE}]))", "{{state}}"),
                unit=SHARE,
                stacked=True,
                most=1,
                colours=STATE_COLOURS,
            ),
        ),
        Line(
            8,
            table_of(
                "Stalls in the time range",
                "By rank and cause: how often, how long in all, and when the latest began.",
                {"cause": Column("Cause"), "rank": Column("Rank")},
                [
                    (q.stall_seconds_in_range, Column("Time lost", SECONDS)),
                    (q.stalls_in_range, Column("Stalls", COUNT)),
                    (q.latest_stall, Column("Latest began", TIME)),
                ],
            ),
            bars(
                "Time in phases",
                "In the time range, of the slowest rank.",
                SECONDS,
                Q(q.phase_seconds_in_range, "{{phase}}"),
                none="none",
                colours=PHASE_COLOURS,
            ),
            stat_of(
                "Length of a stall, p90",
                "Nine of ten stalls that ended in the time range were shorter.",
                SECONDS,
                Q(q.stall_p90, "p90"),
                none="no stall",
            ),
            widths=(12, 8, 4),
        ),
    ]


def _steps(q: Queries) -> list[Line]:
    return rows(
        time_series(
            "Step time",
            "Median and 99th percentile of the training steps of all ranks, and the baseline that stalls are "
            "measured against. The regions are the causes.",
            Q(q.step_quantile(0.5), "p50"),
            Q(q.step_quantile(0.99), "p99"),
            Q(q.step_baseline, "baseline"),
            unit=SECONDS,
            logarithmic=True,
            none="no step in the time range",
        ),
        heatmap_of(
            "Step times",
            "How many training steps of all ranks took how long, in the histogram's buckets: a second band "
            "above the first one is a stall that recurs.",
            SECONDS,
            Q(f"sum by (le) (increase(trainprobe_step_duration_seconds_bucket{q.scope.rank()}[{RATE}]))", "{{le}}"),
            none="no step in the time range",
        ),
        time_series(
            "GPU utilisation",
            "Share of the time in which some kernel ran on the run's GPUs. 100 % is not progress: a rank that "
            "waits for others shows it too.",
            q.gpu("trainprobe_gpu_utilization_ratio"),
            most=1,
            levels=thresholds.GPU_UTILIZATION,
        ),
        height=9,
    )


def _alerts() -> Line:
    return Line(
        8,
        alerts_of(
            "Alerts of this run",
            "Alerts of trainprobe's rules that fire or are pending for this run. Each has its runbook. Those of a host,"
            " a GPU or trainprobe itself name no run: see Alerts and runbooks at the top.",
            named="Train",
            labels='{run="$run"}',
        ),
    )


def _gpu_beside_steps(q: Queries) -> list[Line]:
    return rows(
        time_series(
            "Steps per second, by rank",
            "All ranks of a run step together; one that lags behind holds the others up.",
            q.rank_rate("trainprobe_steps_total"),
        ),
        time_series(
            "GPU idle, by cause",
            "Share of the time in which a GPU of the run had nothing to do, by the cause on the host.",
            q.rate("cause", "trainprobe_gpu_idle_seconds_total"),
            stacked=True,
            colours=CAUSE_COLOURS,
            none="no GPU seen, or never idle",
        ),
        time_series(
            "Variation and drift of the step time",
            "(p90 - p10) / median of the latest 200 steps, and the confirmed change in 1000 steps.",
            q.rank("trainprobe_step_variation_ratio", "variation"),
            q.rank("trainprobe_step_drift_ratio_per_1000_steps", "drift"),
            levels=thresholds.STEP_VARIATION,
            signed=True,
            none="too few steps yet",
        ),
    )


def _data(q: Queries) -> list[Line]:
    return rows(
        time_series(
            "Waiting for data",
            "Share of the time in which the training thread waits for the DataLoader, or loads by itself.",
            Q(q.state_share("data_wait", "data_inline", "fault_io"), "{{state}}, rank {{rank}}"),
            unit=SHARE,
        ),
        time_series("Workers", "Live DataLoader workers, by rank.", q.rank("trainprobe_workers")),
        time_series(
            "Workers started and ended",
            "In each interval. Workers that end and start at every epoch ask for persistent_workers=True; "
            "killed, crashed and oom_kill are failures.",
            Q(q.events("trainprobe_worker_starts_total", "rank").expr, "started, rank {{rank}}"),
            q.events("trainprobe_worker_exits_total", "reason"),
            unit=COUNT,
        ),
    )


def _checkpoints(q: Queries) -> list[Line]:
    return rows(
        time_series(
            "Time in checkpoints, by operation",
            "Share of the time; blocking=true holds the training up, the rest overlaps it.",
            Q(q.checkpoint_seconds, "{{operation}}, blocking={{blocking}}"),
            unit=SHARE,
            none="no checkpoint seen",
        ),
        time_series(
            "Latest checkpoint: duration",
            "By rank.",
            q.rank("trainprobe_checkpoint_last_duration_seconds"),
            none="no checkpoint seen",
        ),
        time_series(
            "Checkpoints that ended",
            "By outcome, in each interval. unsafe: for a while there was no complete checkpoint.",
            q.events("trainprobe_checkpoints_total", "outcome"),
        ),
        time_series(
            "Written to checkpoints",
            "Bytes per second, by rank.",
            q.rank_rate("trainprobe_checkpoint_bytes_total"),
        ),
        time_series(
            "Latest checkpoint: size",
            "By rank.",
            q.rank("trainprobe_checkpoint_last_bytes"),
            none="no checkpoint seen",
        ),
        time_series(
            "Room where the checkpoints go",
            "Space left on that filesystem, beside what one more checkpoint takes.",
            q.rank_least("trainprobe_checkpoint_filesystem_available_bytes", "left"),
            q.rank("trainprobe_checkpoint_last_bytes", "one checkpoint"),
            none="no checkpoint seen",
        ),
    )


def _logging(q: Queries) -> list[Line]:
    return rows(
        time_series(
            "Time in logging",
            "Share of the time that the training thread spends writing logs, by kind; of the worst rank.",
            q.rate("kind", "trainprobe_log_seconds_total"),
            none="no log seen",
        ),
        time_series(
            "Log writes",
            "Writes per second, by kind; of the worst rank.",
            q.rate("kind", "trainprobe_log_writes_total"),
            unit=WRITES,
            none="no log seen",
        ),
        time_series(
            "Size of the log files",
            "And how fast they grow: event files that grow with each step slow a run down over hours.",
            Q(q.rate("kind", "trainprobe_log_bytes_total").expr, "{{kind}}, each second"),
            Q(f"max by (kind) (trainprobe_log_file_bytes{q.scope.rank()})", "{{kind}}, size"),
            unit=BYTES,
            none="no log seen",
        ),
    )


def _memory(q: Queries) -> list[Line]:
    return rows(
        time_series(
            "Memory of the ranks",
            "Proportional set size and swapped memory of each rank with its workers.",
            q.rank("trainprobe_run_pss_bytes"),
            q.rank("trainprobe_run_swap_bytes", "swapped"),
        ),
        fill(
            "Memory in use, of the limit",
            "Where the run's limit is: its control group's, else the host's memory.",
            Q(q.memory_share, "{{instance}} {{scope}}"),
            levels=thresholds.MEMORY_FILL,
        ),
        time_series(
            "Major faults",
            "Per second, of each rank's training thread; and pages swapped in on the host.",
            q.rank_rate("trainprobe_major_faults_total"),
            q.host_rate("trainprobe_swap_in_pages_total", what="swapped in"),
        ),
        time_series(
            "Time in direct reclaim",
            "Share of the time, by rank: the kernel makes the thread look for memory.",
            q.rank_rate("trainprobe_direct_reclaim_seconds_total"),
        ),
        time_series(
            "Runnable without a CPU",
            "Seconds per second, by rank: contention, and throttling by a CPU quota.",
            q.rank_rate("trainprobe_runqueue_seconds_total", "run queue"),
            q.rank_rate("trainprobe_cpu_throttled_seconds_total", "throttled"),
            unit=SECONDS,
        ),
        time_series(
            "Pressure on the host",
            "Share of the time in which some or all tasks waited for a resource (PSI).",
            q.host_rate("trainprobe_pressure_seconds_total", "resource", "kind"),
            levels=thresholds.PRESSURE,
        ),
        time_series(
            "Block devices: 99th percentile of a request",
            "By device and operation.",
            Q(q.block_io_p99, "{{instance}} {{device}} {{operation}}"),
            unit=SECONDS,
            none="no request seen",
        ),
    )


def _descriptors(q: Queries) -> list[Line]:
    return rows(
        fill(
            "Open file descriptors, of the limit",
            "Of the rank's worst process.",
            q.rank_share("trainprobe_open_fds", "trainprobe_max_fds"),
            levels=thresholds.FD_FILL,
        ),
        time_series(
            "Calls that failed for want of a descriptor",
            "In each interval, by error.",
            q.events("trainprobe_fd_errors_total", "errno"),
            none="no call failed, as far as is known",
        ),
        fill(
            "Shared memory of the ranks, of the /dev/shm that they see",
            "Held by the rank and its workers.",
            q.rank_share("trainprobe_run_shm_bytes", "trainprobe_run_shm_size_bytes"),
            levels=thresholds.SHM_FILL,
        ),
    )


def _gpu(q: Queries) -> list[Line]:
    return rows(
        gpus.memory(q),
        gpus.clock(q),
        gpus.throttled(q),
        time_series("Power", "Drawn by each GPU.", q.gpu("trainprobe_gpu_power_watts")),
        gpus.temperature(q),
        fill(
            "Tensor cores active",
            "Share of the time. Low at full utilisation: the work does not reach the tensor cores.",
            q.gpu("trainprobe_gpu_tensor_active_ratio"),
            none="no GPU seen that counts it (Hopper and later)",
        ),
        time_series(
            "PCIe",
            "Traffic to and from each GPU.",
            q.gpu("trainprobe_gpu_pcie_receive_bytes_per_second", "in"),
            q.gpu("trainprobe_gpu_pcie_transmit_bytes_per_second", "out"),
        ),
        gpus.errors(q),
    )


def _agent(q: Queries) -> list[Line]:
    return [
        Line(
            7,
            states_of(
                "Sources",
                "What the daemon learns from. A source that is down degrades what depends on it, and says so; "
                "daemon: its report itself; ready: nothing that it needs has failed.",
                Q(q.source_up, "{{instance}} {{source}}"),
                UP_OR_DOWN,
            ),
            time_series(
                "Age of the report",
                f"The daemon reports each second, and each {REPORT_PAUSE_SECONDS:.0f} s while all steps are even.",
                Q(q.report_age, "{{instance}}"),
                unit=SECONDS,
                levels=thresholds.REPORT_AGE_SECONDS,
            ),
            time_series(
                "Kernel events lost",
                "In each interval. A window with losses says so in the report.",
                Q(
                    f"sum by (instance, probe) ({q.grown('trainprobe_events_lost_total', q.scope.host())})",
                    "{{instance}} {{probe}}",
                ),
                unit=COUNT,
                levels=thresholds.EVENTS_LOST,
                none="none, as far as is known",
            ),
        ),
        Line(
            7,
            time_series(
                "CPU of the daemon and its programs",
                "Seconds per second, the eBPF programs in the kernel beside the daemon's own.",
                q.host_rate("trainprobe_daemon_cpu_seconds_total", what="daemon"),
                q.host_rate("trainprobe_bpf_run_seconds_total", "probe", what="eBPF"),
                levels=thresholds.DAEMON_CPU,
            ),
            time_series(
                "Memory of the daemon and the exporter",
                "Resident.",
                q.host("trainprobe_daemon_resident_memory_bytes", what="daemon"),
                q.exporter("process_resident_memory_bytes", "exporter"),
            ),
            time_series(
                "Time of a scrape, and of the daemon's readings",
                "How long Prometheus waits for the exporter, and the daemon for each of its sources.",
                q.exporter("scrape_duration_seconds", "scrape"),
                q.host("trainprobe_source_duration_seconds", "source"),
            ),
        ),
        Line(
            7,
            time_series(
                "Series left out",
                "To stay within the bound for a rank, each second. What alerts and regions need never gives way.",
                q.host_rate("trainprobe_series_dropped_total"),
            ),
            time_series(
                "Failed readings",
                "Each second, by source.",
                q.host_rate("trainprobe_source_errors_total", "source"),
            ),
            time_series(
                "Runs of eBPF programs",
                "Each second, by program, while the kernel counts them.",
                q.host_rate("trainprobe_bpf_runs_total", "probe"),
                none="the kernel does not count them",
            ),
            time_series(
                "Annotations for Grafana",
                "Where the exporter writes them: each second by outcome, and how many wait for Grafana.",
                q.host_rate("trainprobe_annotations_total", "outcome"),
                q.host("trainprobe_annotations_pending", what="waiting"),
                none="the exporter writes none",
            ),
        ),
    ]
