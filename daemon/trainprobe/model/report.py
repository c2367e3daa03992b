"""The report, version 1. Units are SI; times are UNIX seconds.

Values that were not measured are None. The dataclasses are plain and are turned into JSON by ``trainprobe.wire``.
Each sentence has its English text and the message it was made of (``SENTENCES``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.goodput import Goodput
from trainprobe.model.launch import launch_key
from trainprobe.model.message import Message, template, texts
from trainprobe.model.moment import NS, Moment
from trainprobe.model.vocabulary import Ending

STALL = template("stall", "{what}{longest}{rhythm}{given}")
"""The summary of a stall of several steps (``longest``), one that recurs (``rhythm``), one with GPUs at work."""
SUM = {"merge": "sum"}
MOST = {"merge": "most"}
"""Metadata of a field: how two daemons' values of one rank merge, where a second one goes on watching it. ``SUM``: each
counted from its own begin. ``MOST``: a peak. Without either the value is of now: the latest that was measured."""


@dataclass(frozen=True, slots=True)
class Evidence:
    what: str
    value: float | str | None = None
    unit: str = ""
    pid: int | None = None
    path: str | None = None
    key: str = ""  # the message's id, by which code finds it
    message: Message | None = None

    @classmethod
    def of(
        cls,
        message: Message,
        value: float | str | None = None,
        unit: str = "",
        pid: int | None = None,
        path: str | None = None,
    ) -> Evidence:
        return cls(str(message), value, unit, pid, path, message.id, message)


@dataclass(slots=True)
class Period:
    steps: int | None
    seconds: float


@dataclass(slots=True)
class BlackBox:
    """The last minute before a stall, in columns: one row a second in which something was seen. Pressure is the part
    of the time in which somebody waited for the resource."""

    start: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    longest_seconds: list[float | None] = field(default_factory=list)
    workers: list[int | None] = field(default_factory=list)
    pss_bytes: list[int | None] = field(default_factory=list)
    available_bytes: list[int | None] = field(default_factory=list)
    cpu_pressure: list[float | None] = field(default_factory=list)
    memory_pressure: list[float | None] = field(default_factory=list)
    io_pressure: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class Stall:
    id: str
    start: float
    end: float | None
    seconds: float
    cause: str
    shares: dict[str, float]
    first_step: int
    steps: int
    period: Period | None = None
    summary: str = ""
    chain: list[str] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    python_stack: list[str] | None = None
    advice: list[str] = field(default_factory=list)
    black_box: BlackBox | None = None  # of the latest long stalls
    message: Message | None = None
    chain_messages: list[Message] = field(default_factory=list)
    advice_messages: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class Bottleneck:
    cause: str
    share: float
    seconds: float
    summary: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    message: Message | None = None
    advice_messages: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class Change:
    """What to change against a cause that costs 1 % of the run and more."""

    cause: str
    advice: list[str] = field(default_factory=list)
    advice_messages: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class Warning_:
    """An event that explains an end or an error, or something that runs out."""

    cause: str
    time: float
    eta_seconds: float | None = None
    summary: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    message: Message | None = None
    advice_messages: list[Message] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        message: Message,
        cause: str,
        time: float,
        eta_seconds: float | None = None,
        evidence: Sequence[Evidence] = (),
        advice: Sequence[Message] = (),
    ) -> Warning_:
        return cls(cause, time, eta_seconds, str(message), list(evidence), texts(advice), message, list(advice))


@dataclass(slots=True)
class Checkpoint:
    path: str
    start: float
    end: float | None
    bytes: int = field(metadata=SUM)
    seconds: float
    write_seconds: float = field(default=0.0, metadata=SUM)
    fsync_seconds: float = field(default=0.0, metadata=SUM)
    rename_seconds: float = 0.0
    serialize_seconds: float = field(default=0.0, metadata=SUM)
    blocked_seconds: float = field(default=0.0, metadata=SUM)
    by: str = "driver"  # driver | thread | process
    outcome: str = "open"  # complete | error | unsafe | open
    error: str | None = None
    save: int = 0  # number, in the run, of the save that the file belongs to; 0: not known


@dataclass(slots=True)
class WorkerExit:
    pid: int
    time: float
    code: int | None
    signal: int | None
    reason: str  # finished | oom_kill | killed | crashed | exited
    sender_pid: int | None = None


@dataclass(slots=True)
class Workers:
    started: int = 0
    ended: int = 0
    live: int = 0
    exits: list[WorkerExit] = field(default_factory=list)
    peak: int = 0  # live at once, at most


@dataclass(slots=True)
class Memory:
    pss_bytes: int | None = None
    pss_peak_bytes: int | None = field(default=None, metadata=MOST)
    swap_bytes: int | None = None
    shm_bytes: int | None = None
    shm_bytes_per_batch: float | None = None
    limit_bytes: int | None = None
    limit_scope: str | None = None
    shm_peak_bytes: int | None = field(default=None, metadata=MOST)
    worker_pss_bytes: int | None = field(default=None, metadata=MOST)
    """Of one loader worker without shared memory: the largest mean."""
    worker_private_bytes: int | None = field(default=None, metadata=MOST)
    """Of that what no other process shares, swapped pages too."""
    taken_peak_bytes: int | None = field(default=None, metadata=MOST)
    """PSS, batches that wait unmapped in /dev/shm, and swap, together."""
    others_bytes: int | None = None  # of the limit's memory, held by others while all its workers lived
    read_after_seconds: float | None = field(default=None, metadata=MOST)
    """All of these were last read so long after the newest worker was started."""


@dataclass(slots=True)
class Samples:
    """Readings over the rank's whole life, column by column: at most 128 points, of each stretch the highest.

    ``gpu_utilization`` is the mean of the stretch and of the rank's GPUs, 0 to 1.
    """

    time: list[float] = field(default_factory=list)
    pss_bytes: list[int | None] = field(default_factory=list)
    swap_bytes: list[int | None] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    gpu_utilization: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class Fds:
    open_peak: int | None = field(default=None, metadata=MOST)
    limit: int | None = None


@dataclass(slots=True)
class Verdict:
    kind: str = "none"  # stall | bottleneck | end | none
    cause: str | None = None
    seconds: float = 0.0
    share: float = 0.0
    summary: str = ""
    message: Message | None = None

    @classmethod
    def of(
        cls, message: Message, kind: str = "none", cause: str | None = None, seconds: float = 0.0, share: float = 0.0
    ) -> Verdict:
        return cls(kind, cause, seconds, share, str(message), message)


@dataclass(slots=True)
class Bound:
    by: str = "unknown"  # input | compute | mixed | unknown
    why: str = ""
    message: Message | None = None

    @classmethod
    def of(cls, by: str, message: Message) -> Bound:
        return cls(by, str(message), message)


@dataclass(slots=True)
class Steps:
    count: int = field(default=0, metadata=SUM)
    source: str = "none"  # autograd | gpu | rhythm | none
    reason: str = ""
    median_seconds: float | None = None
    p99_seconds: float | None = None
    per_second: float | None = None
    variation_ratio: float | None = None
    drift_ratio_per_1000_steps: float | None = None
    message: Message | None = None  # of the reason


@dataclass(slots=True)
class OrdinaryStep:
    """The mean ordinary step, neither stalled nor of a phase: the input of `advise` and `compare`."""

    count: int = 0
    seconds: float | None = None
    states: dict[str, float] = field(default_factory=dict)  # seconds by state; add up to `seconds`
    fetches: float | None = None  # batches taken from the loader
    worker_cpu_seconds_per_batch: float | None = None  # a worker on a CPU, or waiting for one
    worker_storage_seconds_per_batch: float | None = None  # a worker blocked in reads and file faults
    driver_cpu_seconds: float | None = None  # of all threads of the driver's process
    busy_cpus: float | None = None  # of the host, in use while it trained: its own and everybody else's
    stretches: list[float] = field(default_factory=list)
    """Median step of up to 32 equal stretches of the latest 1024: how far medians lie apart in one and the same run."""
    worker_memory_seconds_per_batch: float | None = None  # a worker in swap-in and reclaim
    worker_queue_seconds_per_batch: float | None = None  # of its CPU seconds: runnable, without a CPU
    worker_blocked_seconds_per_batch: float | None = None  # a worker in sleeps, socket and other calls, not idle
    paces: list[float] = field(default_factory=list)
    """CPU seconds of a fixed piece of work in up to 32 equal stretches of time: the more, the slower the processors."""
    instructions: list[float] = field(default_factory=list)
    """A step's, of the driver's thread in user space, in up to 32 windows of a second and more; empty: not counted."""
    wait_stretches: int = 0  # equal ones, up to 32, of `waits`; 0: too few steps, or a report of an older version
    waits: dict[str, list[float]] = field(default_factory=dict)
    """Seconds a step in each, by "state/call": read, write, sleep, network, pipe. What took none is left out."""
    written_calls: dict[str, list[float]] = field(default_factory=dict)
    """Calls a step that write, in the same stretches and by the same keys."""
    written_bytes: dict[str, list[float]] = field(default_factory=dict)
    workers: int | None = None  # of the loader: as many as mostly lived; None: there were none, or an older report
    workers_without_data: int = 0  # started together with those, and got nothing to load


@dataclass(slots=True)
class PhaseSpan:
    phase: str
    start: float
    end: float | None
    step: int | None = None  # the steps before it
    states: dict[str, float] = field(default_factory=dict)  # seconds by state in a shutdown, where they are known
    sure: bool = True  # of an evaluation: batches were fetched, or a stack shows one; else it may be rollouts


@dataclass(slots=True)
class Exit:
    code: int | None
    signal: int | None
    reason: str = ""
    message: Message | None = None
    ending: str = ""  # a ``vocabulary.Ending``; "" in reports of versions that did not have it

    @classmethod
    def of(cls, message: Message, ending: Ending, code: int | None = None, signal: int | None = None) -> Exit:
        return cls(code, signal, str(message), message, ending.value)


@dataclass(slots=True)
class SlowFile:
    path: str
    reads: int = field(metadata=SUM)
    seconds: float = field(metadata=SUM)


@dataclass(slots=True)
class PythonLine:
    """A line of the driver's code, and on how many of the samples of ordinary steps it was on the stack."""

    frame: str  # "name (file:line)"
    hits: int
    samples: int


@dataclass(slots=True)
class Startup:
    """The time to the first step in parts, seconds. None: not seen. They add up to it."""

    imports: float | None = None
    dataset: float | None = None
    restore: float | None = None
    workers: float | None = None
    compile: float | None = None
    other: float | None = None


@dataclass(slots=True)
class Restore:
    """A checkpoint that was read before the first step. None: not seen."""

    path: str
    bytes: int | None
    seconds: float | None


@dataclass(slots=True)
class Framework:
    """What runs the training's loop; None: not known."""

    name: str | None = None  # of its package: mmengine, transformers, lightning …
    version: str | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.version)))


@dataclass(slots=True)
class LogFile:
    path: str
    bytes: int = field(metadata=SUM)
    writes: int = field(metadata=SUM)
    seconds: float = field(metadata=SUM)
    kind: str = "log"  # tensorboard | wandb | stdout | log
    size: int | None = None  # of the file, when it was last looked at


@dataclass(slots=True)
class Gpu:
    uuid: str
    index: int
    utilization_mean: float | None = None
    idle_seconds: float | None = None
    idle_by_cause: dict[str, float] = field(default_factory=dict)  # seconds inside of stalls


@dataclass(slots=True)
class Totals:
    stalls: int = field(default=0, metadata=SUM)
    checkpoints: int = field(default=0, metadata=SUM)
    exits: int = field(default=0, metadata=SUM)
    warnings: int = field(default=0, metadata=SUM)
    saves: int = field(default=0, metadata=SUM)  # each of one or more of the checkpoints


@dataclass(slots=True)
class Counters:
    """Cumulative figures of a rank that are metrics and need no list: what the exporter counts with.

    Every key of a closed set is present from the start.
    """

    phase_seconds: dict[str, float] = field(default_factory=dict, metadata=SUM)
    stall_seconds: dict[str, float] = field(default_factory=dict, metadata=SUM)  # by cause, the open stall included
    stalls: dict[str, int] = field(default_factory=dict, metadata=SUM)
    stall_last_start: dict[str, float] = field(default_factory=dict)
    stall_active: dict[str, int] = field(default_factory=dict)
    stall_durations: list[int] = field(default_factory=list, metadata=SUM)
    """Histogram counts by STALL_BUCKETS, last = +Inf."""
    stall_duration_sum: float = field(default=0.0, metadata=SUM)
    step_durations: list[int] = field(default_factory=list, metadata=SUM)  # by STEP_BUCKETS, last = +Inf
    step_duration_sum: float = field(default=0.0, metadata=SUM)
    last_step: float | None = None
    baseline_seconds: float | None = None
    phase: str = "startup"  # the one that is active
    checkpoints: dict[str, int] = field(default_factory=dict, metadata=SUM)  # by outcome
    checkpoint_bytes: int = field(default=0, metadata=SUM)
    checkpoint_seconds: dict[str, float] = field(default_factory=dict, metadata=SUM)  # "operation/blocking"
    checkpoint_last_seconds: float | None = None
    checkpoint_last_bytes: int | None = None
    saves: int = field(default=0, metadata=SUM)  # by the driver since there was a baseline, each of one or more files
    save_every_steps: int | None = None  # steps between those that recur
    log_writes: dict[str, int] = field(default_factory=dict, metadata=SUM)  # by kind
    log_bytes: dict[str, int] = field(default_factory=dict, metadata=SUM)
    log_seconds: dict[str, float] = field(default_factory=dict, metadata=SUM)
    log_file_bytes: dict[str, int] = field(default_factory=dict)  # the kinds whose files have been looked at
    worker_exits: dict[str, int] = field(default_factory=dict, metadata=SUM)  # by reason
    open_fds: int | None = None
    max_fds: int | None = None
    pss_bytes: int | None = None
    swap_bytes: int | None = None
    major_faults: int = field(default=0, metadata=SUM)
    reclaim_seconds: float = field(default=0.0, metadata=SUM)
    throttled_seconds: float = field(default=0.0, metadata=SUM)
    runqueue_seconds: float = field(default=0.0, metadata=SUM)
    fd_errors: dict[str, int] = field(default_factory=dict, metadata=SUM)
    """By errno; MSG_CTRUNC: cut off from a message."""
    shm_errors: int = field(default=0, metadata=SUM)
    shm_size_bytes: int | None = None  # of the /dev/shm that it sees
    memory_exhaustion_seconds: float | None = None  # None: not in sight
    fd_exhaustion_seconds: float | None = None
    shm_exhaustion_seconds: float | None = None
    checkpoint_available_bytes: int | None = None  # where the latest checkpoint went
    checkpoint_files_free: int | None = None


STALL_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Rank:
    rank: int
    world_size: int
    pid: int
    container_pid: int | None = None
    name: str = "0"  # label value: the rank, or "0.1" for a further driver of the same process
    exit: Exit | None = None
    wall_seconds: float = 0.0
    productive_seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    bound: Bound = field(default_factory=Bound)
    steps: Steps = field(default_factory=Steps)
    phases: list[PhaseSpan] = field(default_factory=list)
    ledger: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    stalls: list[Stall] = field(default_factory=list)
    bottlenecks: list[Bottleneck] = field(default_factory=list)
    warnings: list[Warning_] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    workers: Workers = field(default_factory=Workers)
    memory: Memory = field(default_factory=Memory)
    fds: Fds = field(default_factory=Fds)
    gpus: list[Gpu] = field(default_factory=list)
    slow_files: list[SlowFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)
    python_lines: list[PythonLine] = field(default_factory=list)  # where the driver's Python is in ordinary steps
    totals: Totals = field(default_factory=Totals)
    counters: Counters = field(default_factory=Counters)
    ordinary: OrdinaryStep = field(default_factory=OrdinaryStep)
    samples: Samples = field(default_factory=Samples)
    framework: Framework = field(default_factory=Framework)
    startup: Startup = field(default_factory=Startup)
    restores: list[Restore] = field(default_factory=list)
    started: float | None = None  # when we began to watch it: its process's begin, or when we came; an addition
    changes: list[Change] = field(default_factory=list)  # the costliest cause first


def has_ended(rank: Rank) -> bool:
    return rank.exit is not None and rank.exit.ending != Ending.RUNNING


@dataclass(slots=True)
class RunTotals:
    """What a run has, also where the report holds less of it."""

    ranks: int = 0  # drivers that were seen, of one process at most 64; 256 are watched at once, 32 of one process


LABELS = (
    "slurm_job", "slurm_job_name", "slurm_array_task", "pod_uid", "namespace", "pod", "container_name", "container",
    "unit", "torchrun",
)  # fmt: skip
"""What schedulers and runtimes call a run."""


@dataclass(slots=True)
class Run:
    run: str
    command: list[str]
    user: str
    cwd: str
    started: float
    ended: float | None = None
    labels: dict[str, str | None] = field(default_factory=dict)
    ranks: list[Rank] = field(default_factory=list)
    memory: dict[str, int | str | None] = field(default_factory=dict)  # {"used_bytes", "limit_bytes", "scope"}
    oom_kills: dict[str, int] = field(default_factory=dict)  # by whose limit it was: cgroup | host
    totals: RunTotals = field(default_factory=RunTotals)
    attempt: int = 1  # which launch of its job it is, as far as this host and the restart counts tell
    job: str = ""  # what all attempts of the job have in common, those that a restart count gives another name too
    goodput: Goodput = field(default_factory=Goodput)  # of the job, over its attempts so far

    @property
    def key(self) -> str:
        """What no other launch on this host is called."""
        return launch_key(self.run, self.attempt)


def scheduled_as(run: Run) -> str:
    """The name by which its scheduler's users know the run; "" where none runs it."""
    known = run.labels
    if job := known.get("slurm_array_task") or known.get("slurm_job"):
        return " ".join(filter(None, ("Slurm job", job, known.get("slurm_job_name"))))
    if pod := known.get("pod"):
        return "pod " + "/".join(filter(None, (known.get("namespace"), pod, known.get("container_name"))))
    return ""


@dataclass(slots=True)
class BlockIo:
    """Requests of a block device since the daemon began, by how long they took."""

    device: str
    operation: str  # read | write | flush | discard
    counts: list[int]  # by BLOCK_IO_BUCKETS of the samples, last = +Inf
    seconds: float  # of all of them together


@dataclass(slots=True)
class Host:
    name: str = ""
    kernel: str = ""
    cpus: int = 0
    memory_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_size_bytes: int | None = None
    swap_in_pages: int | None = None
    pressure_seconds: dict[str, float] | None = None  # "cpu.some" …
    block_io: list[BlockIo] = field(default_factory=list)


@dataclass(slots=True)
class Source:
    state: str
    reason: str = ""
    remedy: str = ""
    message: Message | None = None
    remedy_message: Message | None = None
    errors: int = 0  # readings that failed, since the daemon runs
    seconds: float | None = None  # that a reading took within the last minute or so; None: not measured

    @classmethod
    def of(cls, state: str, reason: Message, remedy: Message | None = None) -> Source:
        return cls(state, str(reason), "" if remedy is None else str(remedy), reason, remedy)


@dataclass(slots=True)
class Cost:
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    bpf_seconds: float | None = None
    share_of_run: float | None = None  # of one CPU, since the start was over: what follows it and the kernel's part
    bpf_runs: dict[str, int] | None = None
    start_seconds: float | None = None  # of ``cpu_seconds``: until then
    stacks_seconds: float | None = None  # of ``cpu_seconds``: for Python stacks


@dataclass(slots=True)
class SharedMemory:
    """A /dev/shm as processes of a container (or the host) see it."""

    device: str
    container: str
    used_bytes: int
    size_bytes: int
    leaked_bytes: int
    leaked: list[Evidence] = field(default_factory=list)  # by the dead process that left it


@dataclass(slots=True)
class GpuState:
    """A GPU of the host."""

    index: int
    uuid: str
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_hertz: int | None = None
    pcie_receive_bytes_per_second: int | None = None
    pcie_transmit_bytes_per_second: int | None = None
    throttled_seconds: dict[str, float] = field(default_factory=dict)  # by reason
    errors: dict[str, int] = field(default_factory=dict)  # "kind/code"
    state: str = "up"  # up | lost | hung
    missing: list[str] = field(default_factory=list)  # figures that it does not have
    mig: bool = False
    tensor_active: float | None = None


@dataclass(slots=True)
class Orphan:
    """A DataLoader worker without a trainer."""

    pid: int
    comm: str
    pss_bytes: int | None
    shm_bytes: int | None
    gpu_files: int | None


@dataclass(slots=True)
class Report:
    version: int = 1
    generated: float = 0.0
    generated_monotonic: float | None = None  # the same by CLOCK_MONOTONIC of the host, in seconds; an addition
    host: Host = field(default_factory=Host)
    sources: dict[str, Source] = field(default_factory=dict)
    events_lost: int = 0
    events_lost_by: dict[str, int] = field(default_factory=dict)
    private_labels: bool = False  # privacy.labels: command and user may become labels of trainprobe_run_info
    cost: Cost = field(default_factory=Cost)
    shared_memory: list[SharedMemory] = field(default_factory=list)
    orphans: list[Orphan] | None = None  # None: not looked for
    gpus: list[GpuState] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def age(self, at: Moment) -> float:
        """Seconds since it was made, on the host that made it, by CLOCK_MONOTONIC.

        A report of an earlier boot, or one without that clock, has its age by UNIX time.
        """
        if self.generated_monotonic is not None and (age := at.monotonic_ns / NS - self.generated_monotonic) >= 0:
            return age
        return at.wall_ns / NS - self.generated


SENTENCES: dict[type, dict[str, str]] = {
    Evidence: {"what": "message"},
    Stall: {"summary": "message", "chain": "chain_messages", "advice": "advice_messages"},
    Bottleneck: {"summary": "message", "advice": "advice_messages"},
    Change: {"advice": "advice_messages"},
    Warning_: {"summary": "message", "advice": "advice_messages"},
    Verdict: {"summary": "message"},
    Bound: {"why": "message"},
    Steps: {"reason": "message"},
    Exit: {"reason": "message"},
    Source: {"reason": "message", "remedy": "remedy_message"},
}
"""Where sentences stand: the field of the English text, and the field of its message (a list's, of its messages)."""
