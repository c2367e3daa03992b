"""Every metric, once: name, type, unit, labels, help, buckets, where its value is, how its series begin and end.

The families, the documentation page, a panel and the tests all read this table: a metric whose value is in the report
needs a line here and nothing else. Names, types and labels are public and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from trainprobe.model import vocabulary
from trainprobe.model.cause import LOST, Cause, Phase, State
from trainprobe.model.cells import BLOCK_IO_BUCKETS
from trainprobe.model.dataclass import dataclass
from trainprobe.model.goodput import Badput, Goodput
from trainprobe.model.report import STALL_BUCKETS, STEP_BUCKETS, GpuState, Rank, Report
from trainprobe_exporters.figures import counts_steps, ended, phase_seconds

PREFIX = "trainprobe_"
RANK_LABELS = ("run", "rank")
MAX_SERIES_PER_RANK = 160

CAUSES = tuple(str(c) for c in Cause)
LOST_CAUSES = tuple(str(c) for c in LOST)
STATES = tuple(str(s) for s in State)
PHASES = tuple(str(p) for p in Phase)
BADPUT_SOURCES = tuple(str(b) for b in Badput)
ANNOTATION_OUTCOMES = ("sent", "changed", "refused", "dropped")


@dataclass(frozen=True)
class OfRank:
    """Where a metric's value is: in a rank. None: it was not measured."""

    read: Callable[[Rank], float | None]


@dataclass(frozen=True)
class ByKey:
    """In a rank, by the values of the metric's last label. ``rest`` is the value that stands for keys unknown here."""

    read: Callable[[Rank], Mapping[str, float]]
    rest: str


@dataclass(frozen=True)
class OfJob:
    """In the goodput of the job that a run is the latest attempt of."""

    read: Callable[[Goodput], float | None]


@dataclass(frozen=True)
class OfReport:
    read: Callable[[Report], float | None]


@dataclass(frozen=True)
class OfGpu:
    read: Callable[[GpuState], float | None]


class EndPolicy(Enum):
    """What becomes of a rank's series once the rank has ended (a run's series leave altogether some minutes later)."""

    STAYS = "stays"  # a total, or a fact about the run
    ZERO = "goes to 0"  # a flag that alerts wait for
    LEAVES = "leaves"  # the size of something that is no more


class DropPolicy(Enum):
    """Whether it gives way when a rank would have more than MAX_SERIES_PER_RANK series; see budget."""

    NEVER = "no"
    YES = "yes"
    ZEROS_FIRST = "yes, zeros first"  # its zeros before anything else


@dataclass(frozen=True)
class Metric:
    name: str
    type: str  # counter | gauge | histogram
    labels: tuple[str, ...]
    help: str
    unit: str = ""  # as OpenMetrics has it: only where the name ends in it
    buckets: tuple[float, ...] = ()
    optional_labels: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # labels with a closed set of values
    zero: tuple[str, ...] = ()  # values of the last label whose series exist, at 0, from the start (with all others')
    at_end: EndPolicy = EndPolicy.STAYS
    gives_way: DropPolicy = DropPolicy.NEVER
    value: OfRank | ByKey | OfJob | OfReport | OfGpu | None = None  # None: ``readings`` or ``host_readings`` make it

    @property
    def of_rank(self) -> bool:
        return self.labels[:2] == RANK_LABELS

    @property
    def own_labels(self) -> tuple[str, ...]:
        return self.labels[2:] if self.of_rank else self.labels

    @property
    def series(self) -> int:
        """Series that one label set makes."""
        return len(self.buckets) + 3 if self.buckets else 1


def _total(name: str, labels: tuple[str, ...], text: str, unit: str = "", **rest: Any) -> Metric:
    return Metric(f"{PREFIX}{name}_total", "counter", labels, text, unit, **rest)


def _gauge(name: str, labels: tuple[str, ...], text: str, unit: str = "", **rest: Any) -> Metric:
    return Metric(PREFIX + name, "gauge", labels, text, unit, **rest)


def _of(*own: str) -> tuple[str, ...]:
    return RANK_LABELS + own


_BY_CAUSE = {"cause": CAUSES}
_BY_PHASE = {"phase": PHASES}
_BY_LOG = {"kind": vocabulary.LOG_KINDS}
_GONE = EndPolicy.LEAVES
_GPU = ("gpu", "uuid")
_ABSENT_UNTIL = "Absent: not in sight."

# A table, one metric after the other.
# fmt: off
RUN_METRICS = (
    _gauge("run_info", _of("slurm_job", "pod_uid", "container", "namespace", "pod", "container_name"),
           "1 for each rank of a run that is watched; command, user and slurm_job_name only with privacy.labels.",
           optional_labels=("command", "user", "slurm_job_name")),
    _total("run_wall_seconds", _of(), "Wall time of the rank since it was first seen.", "seconds",
           value=OfRank(lambda r: r.wall_seconds)),
    _total("productive_seconds", _of(), "Wall time that is neither lost nor in a phase other than train.", "seconds",
           value=OfRank(lambda r: r.productive_seconds)),
    _total("state_seconds", _of("state"), "What the training thread did: exclusive states that add up to wall time.",
           "seconds", values={"state": STATES}, gives_way=DropPolicy.YES, value=ByKey(lambda r: r.ledger, "other")),
    _total("phase_seconds", _of("phase"), "Wall time by phase; only phases seen.", "seconds", values=_BY_PHASE,
           gives_way=DropPolicy.YES, value=ByKey(phase_seconds, "train")),
    _gauge("phase_active", _of("phase"), "1 for the phase the rank is in, 0 for the phases it has been in.",
           values=_BY_PHASE, at_end=EndPolicy.ZERO),
    _total("lost_seconds", _of("cause"), "Time lost to stalls and bottlenecks, by cause.", "seconds",
           values=_BY_CAUSE, zero=LOST_CAUSES, value=ByKey(lambda r: r.lost, "unknown")),
    _total("stall_seconds", _of("cause"), "Time lost in stalls, by cause; a stall counts while it is open.",
           "seconds", values=_BY_CAUSE, zero=LOST_CAUSES, value=ByKey(lambda r: r.counters.stall_seconds, "unknown")),
    _total("stalls", _of("cause"), "Stalls, by cause.", values=_BY_CAUSE, zero=LOST_CAUSES,
           gives_way=DropPolicy.ZEROS_FIRST, value=ByKey(lambda r: r.counters.stalls, "unknown")),
    _gauge("stall_active", _of("cause"), "1 while a stall of this cause is open; from its first stall on.",
           values=_BY_CAUSE, at_end=EndPolicy.ZERO, gives_way=DropPolicy.YES),
    _gauge("stall_last_start_timestamp_seconds", _of("cause"), "When the latest stall of this cause began.",
           "seconds", values=_BY_CAUSE, gives_way=DropPolicy.YES),
    Metric(f"{PREFIX}stall_duration_seconds", "histogram", RANK_LABELS, "Duration of the stalls that have ended.",
           "seconds", STALL_BUCKETS),
    _total("steps", _of(), "Training steps.", value=OfRank(lambda r: r.steps.count if counts_steps(r) else None)),
    _gauge("last_step_timestamp_seconds", _of(), "When the latest training step ended.", "seconds",
           value=OfRank(lambda r: r.counters.last_step or None)),
    Metric(f"{PREFIX}step_duration_seconds", "histogram", RANK_LABELS, "Duration of the training steps.", "seconds",
           STEP_BUCKETS),
    _gauge("step_baseline_seconds", _of(), "Median of the latest 64 unstalled training steps; from 8 steps on.",
           "seconds", value=OfRank(lambda r: r.counters.baseline_seconds)),
    _gauge("step_variation_ratio", _of(), "(p90 - p10) / median of the latest 200 training steps.", "ratio",
           value=OfRank(lambda r: r.steps.variation_ratio)),
    _gauge("step_drift_ratio_per_1000_steps", _of(), "Change of the step time in 1000 steps: medians of "
           "the first and the last quarter of the steps kept.",
           value=OfRank(lambda r: r.steps.drift_ratio_per_1000_steps)),
)

JOB_METRICS = (
    _gauge("goodput_ratio", ("run",), "Productive part of the job's wall time, over its attempts and the gaps between.",
           "ratio", value=OfJob(lambda g: g.ratio)),
    _total("badput_seconds", ("run", "badput_source"),
           "Wall time of the job that was not productive, by what it went to; only sources seen.", "seconds",
           values={"badput_source": BADPUT_SOURCES}),
    _total("wasted_progress_seconds", ("run",), "Productive time that no resumed checkpoint held. Absent: it is not "
           "known which checkpoint was resumed.", "seconds", value=OfJob(lambda g: g.wasted_progress_seconds)),
    _gauge("run_attempts", ("run",), "Attempts of the job so far.", value=OfJob(lambda g: g.attempt)),
    _gauge("time_to_first_step_seconds", ("run",), "From the launch of the latest attempt to its first step.",
           "seconds", value=OfJob(lambda g: g.time_to_first_step_seconds)),
    _gauge("restore_seconds", ("run",), "Time that the latest attempt took to read checkpoints before its first step.",
           "seconds", value=OfJob(lambda g: g.restore_seconds)),
)

FILE_METRICS = (
    _total("checkpoints", _of("outcome"), "Files of checkpoints that have ended, by outcome.",
           values={"outcome": vocabulary.CHECKPOINT_OUTCOMES}, zero=vocabulary.CHECKPOINT_OUTCOMES,
           value=ByKey(lambda r: ended(r.counters.checkpoints), "error")),
    _total("checkpoint_bytes", _of(), "Bytes written to checkpoints.", "bytes",
           value=OfRank(lambda r: r.counters.checkpoint_bytes)),
    _total("checkpoint_seconds", _of("operation", "blocking"),
           "Time spent on checkpoints; blocking=true is the training thread's own.", "seconds",
           values={"operation": vocabulary.CHECKPOINT_OPERATIONS, "blocking": vocabulary.BLOCKING},
           zero=vocabulary.BLOCKING, gives_way=DropPolicy.YES),
    _gauge("checkpoint_last_duration_seconds", _of(), "Duration of the latest save, of all its files.", "seconds",
           value=OfRank(lambda r: r.counters.checkpoint_last_seconds)),
    _gauge("checkpoint_last_bytes", _of(), "Size of the latest save, of all its files.", "bytes",
           value=OfRank(lambda r: r.counters.checkpoint_last_bytes)),
    _gauge("checkpoint_filesystem_available_bytes", _of(), "Space left where the checkpoints go.", "bytes",
           at_end=_GONE, value=OfRank(lambda r: r.counters.checkpoint_available_bytes)),
    _gauge("checkpoint_filesystem_files_free", _of(), "Inodes left where the checkpoints go.", at_end=_GONE,
           value=OfRank(lambda r: r.counters.checkpoint_files_free)),
    _total("log_seconds", _of("kind"), "Time the training thread spent writing logs; only kinds seen.", "seconds",
           values=_BY_LOG, gives_way=DropPolicy.YES, value=ByKey(lambda r: r.counters.log_seconds, "log")),
    _total("log_bytes", _of("kind"), "Bytes written to log files and standard output; only kinds seen.", "bytes",
           values=_BY_LOG, gives_way=DropPolicy.YES, value=ByKey(lambda r: r.counters.log_bytes, "log")),
    _total("log_writes", _of("kind"), "Writes to log files and standard output; only kinds seen.", values=_BY_LOG,
           gives_way=DropPolicy.YES, value=ByKey(lambda r: r.counters.log_writes, "log")),
    _gauge("log_file_bytes", _of("kind"), "Size of the log files.", "bytes", values=_BY_LOG, at_end=_GONE,
           gives_way=DropPolicy.YES, value=ByKey(lambda r: r.counters.log_file_bytes, "log")),
)

LIMIT_METRICS = (
    _gauge("open_fds", _of(), "Open file descriptors of the rank's worst process.", at_end=_GONE,
           value=OfRank(lambda r: r.counters.open_fds)),
    _gauge("max_fds", _of(), "Limit of open file descriptors of that process.", at_end=_GONE,
           value=OfRank(lambda r: r.counters.max_fds)),
    _total("fd_errors", _of("errno"), "Calls that failed for want of a file descriptor.", gives_way=DropPolicy.YES),
    _gauge("shm_used_bytes", ("device", "container"), "Used bytes of a /dev/shm (container=host: the host's).",
           "bytes"),
    _gauge("shm_size_bytes", ("device", "container"), "Size of a /dev/shm.", "bytes"),
    _gauge("shm_leaked_bytes", ("device", "container"), "Bytes in a /dev/shm whose owners are dead.", "bytes"),
    _gauge("run_shm_bytes", _of(), "Shared memory that the rank and its workers hold.", "bytes", at_end=_GONE,
           value=OfRank(lambda r: r.memory.shm_bytes)),
    _gauge("run_shm_size_bytes", _of(), "Size of the /dev/shm that the rank sees.", "bytes", at_end=_GONE,
           value=OfRank(lambda r: r.counters.shm_size_bytes)),
    _total("shm_errors", _of(), "Allocations of shared memory that failed.",
           value=OfRank(lambda r: r.counters.shm_errors)),
    _gauge("workers", _of(), "Live DataLoader workers.", at_end=_GONE, value=OfRank(lambda r: r.workers.live)),
    _total("worker_starts", _of(), "DataLoader workers started.", value=OfRank(lambda r: r.workers.started)),
    _total("worker_exits", _of("reason"), "DataLoader workers that ended, by reason.",
           values={"reason": vocabulary.EXIT_REASONS}, zero=vocabulary.EXIT_REASONS,
           value=ByKey(lambda r: r.counters.worker_exits, "exited")),
    _gauge("orphan_workers", (), "Workers whose trainer is gone."),
    _gauge("orphan_worker_bytes", (), "Memory that such workers hold.", "bytes"),
    _gauge("run_pss_bytes", _of(), "Proportional set size of the rank with its workers.", "bytes", at_end=_GONE,
           value=OfRank(lambda r: r.counters.pss_bytes)),
    _gauge("run_swap_bytes", _of(), "Swapped memory of the rank with its workers.", "bytes", at_end=_GONE,
           value=OfRank(lambda r: r.counters.swap_bytes)),
    _gauge("memory_used_bytes", ("run", "scope"), "Memory in use where the run's limit is.", "bytes",
           values={"scope": vocabulary.MEMORY_SCOPES}, at_end=_GONE),
    _gauge("memory_limit_bytes", ("run", "scope"), "The limit: the control group's, else the host's memory.", "bytes",
           values={"scope": vocabulary.MEMORY_SCOPES}, at_end=_GONE),
    _gauge("swap_used_bytes", (), "Swap in use on the host.", "bytes",
           value=OfReport(lambda r: r.host.swap_used_bytes)),
    _gauge("swap_size_bytes", (), "Swap of the host.", "bytes", value=OfReport(lambda r: r.host.swap_size_bytes)),
    _gauge("memory_exhaustion_seconds", _of(), f"Time until memory runs out at the present slope. {_ABSENT_UNTIL}",
           "seconds", at_end=_GONE, value=OfRank(lambda r: r.counters.memory_exhaustion_seconds)),
    _gauge("fd_exhaustion_seconds", _of(), f"Time until file descriptors run out. {_ABSENT_UNTIL}", "seconds",
           at_end=_GONE, value=OfRank(lambda r: r.counters.fd_exhaustion_seconds)),
    _gauge("shm_exhaustion_seconds", _of(), f"Time until shared memory runs out. {_ABSENT_UNTIL}", "seconds",
           at_end=_GONE, value=OfRank(lambda r: r.counters.shm_exhaustion_seconds)),
    _total("swap_in_pages", (), "Pages swapped in on the host.", value=OfReport(lambda r: r.host.swap_in_pages)),
    _total("major_faults", _of(), "Major page faults of the rank's training thread.",
           value=OfRank(lambda r: r.counters.major_faults)),
    _total("direct_reclaim_seconds", _of(), "Time of the rank's training thread in direct reclaim.", "seconds",
           value=OfRank(lambda r: r.counters.reclaim_seconds)),
    _total("cpu_throttled_seconds", _of(), "Time throttled by a CPU quota.", "seconds",
           value=OfRank(lambda r: r.counters.throttled_seconds)),
    _total("runqueue_seconds", _of(), "Time runnable without a CPU.", "seconds",
           value=OfRank(lambda r: r.counters.runqueue_seconds)),
    _total("oom_kills", ("run", "scope"), "Processes of the run killed for want of memory.",
           values={"scope": vocabulary.MEMORY_SCOPES}),
    _total("pressure_seconds", ("resource", "kind"), "Pressure stall time of the host.", "seconds",
           values={"resource": vocabulary.RESOURCES, "kind": vocabulary.PRESSURE_KINDS}),
    Metric(f"{PREFIX}block_io_duration_seconds", "histogram", ("device", "operation"),
           "Duration of block device requests.", "seconds", BLOCK_IO_BUCKETS),
)

GPU_METRICS = (
    _gauge("run_gpu_info", _of("gpu", "uuid", "mig"), "1 for each GPU that the rank uses."),
    _gauge("gpu_utilization_ratio", _GPU, "Share of the time in which some kernel ran.", "ratio",
           value=OfGpu(lambda g: g.utilization)),
    _gauge("gpu_memory_used_bytes", _GPU, "GPU memory in use.", "bytes", value=OfGpu(lambda g: g.memory_used_bytes)),
    _gauge("gpu_memory_total_bytes", _GPU, "GPU memory.", "bytes", value=OfGpu(lambda g: g.memory_total_bytes)),
    _gauge("gpu_power_watts", _GPU, "Power drawn.", "watts", value=OfGpu(lambda g: g.power_watts)),
    _gauge("gpu_temperature_celsius", _GPU, "Temperature.", "celsius", value=OfGpu(lambda g: g.temperature_celsius)),
    _gauge("gpu_sm_clock_hertz", _GPU, "Clock of the streaming multiprocessors.", "hertz",
           value=OfGpu(lambda g: g.sm_clock_hertz)),
    _gauge("gpu_tensor_active_ratio", _GPU, "Share of the time in which tensor cores were active.", "ratio",
           value=OfGpu(lambda g: g.tensor_active)),
    _gauge("gpu_pcie_receive_bytes_per_second", _GPU, "PCIe traffic to the GPU.",
           value=OfGpu(lambda g: g.pcie_receive_bytes_per_second)),
    _gauge("gpu_pcie_transmit_bytes_per_second", _GPU, "PCIe traffic from the GPU.",
           value=OfGpu(lambda g: g.pcie_transmit_bytes_per_second)),
    _total("gpu_throttled_seconds", (*_GPU, "reason"), "Time with a lowered clock, by reason.", "seconds"),
    _total("gpu_errors", (*_GPU, "kind", "code"), "GPU errors.", values={"kind": vocabulary.GPU_ERRORS}),
    _total("gpu_idle_seconds", _of("gpu", "cause"), "Time in which the GPU idled, by the cause; only causes seen.",
           "seconds", values=_BY_CAUSE, gives_way=DropPolicy.YES),
)

OWN_METRICS = (
    _gauge("source_up", ("source",), "1 while a source of the daemon delivers; source=daemon: its report itself."),
    _gauge("ready", (), "1 while /-/ready answers 200, 0 while something it names has failed."),
    _total("source_errors", ("source",), "Failed readings of a source."),
    _gauge("source_duration_seconds", ("source",), "Time that the latest reading of a source took.", "seconds"),
    _total("events_lost", ("probe",), "Kernel events that were lost."),
    _total("bpf_run_seconds", ("probe",), "Time spent in eBPF programs, while the kernel counts it.", "seconds"),
    _total("bpf_runs", ("probe",), "Runs of eBPF programs, while the kernel counts them."),
    _total("daemon_cpu_seconds", (), "CPU time of the daemon.", "seconds",
           value=OfReport(lambda r: r.cost.cpu_seconds)),
    _gauge("daemon_resident_memory_bytes", (), "Resident memory of the daemon.", "bytes",
           value=OfReport(lambda r: r.cost.rss_bytes or None)),
    _gauge("report_timestamp_seconds", (), "When the daemon made the report that these metrics tell.", "seconds",
           value=OfReport(lambda r: r.generated or None)),
    _total("series_dropped", (), f"Series left out to stay within {MAX_SERIES_PER_RANK} for a rank."),
    _total("annotations", ("outcome",), "Annotations for Grafana, by outcome; dropped: there was no room to keep them."
           " Only with grafana.url.", values={"outcome": ANNOTATION_OUTCOMES}, zero=ANNOTATION_OUTCOMES),
    _gauge("annotations_pending", (), "Annotations that wait for Grafana to take them. Only with grafana.url."),
    _gauge("build_info", ("version",), "1; the exporter's version."),
)
# fmt: on
METRICS: tuple[Metric, ...] = RUN_METRICS + JOB_METRICS + FILE_METRICS + LIMIT_METRICS + GPU_METRICS + OWN_METRICS
BY_NAME: Mapping[str, Metric] = {m.name: m for m in METRICS}
