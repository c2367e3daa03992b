"""What /proc, cgroups and NVML said at a moment. What a host lacks is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.model.text import StrEnum


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process of a watched run. Bytes; counters cumulative."""

    pid: int
    ppid: int
    role: str  # driver | worker | helper
    started_ns: int  # CLOCK_MONOTONIC of the process start: (pid, started_ns) is its identity
    cpu_ns: int | None = None
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    swap_bytes: int | None = None
    shm_bytes: int | None = None  # Pss_Shmem
    open_fds: int | None = None
    max_fds: int | None = None
    threads: int | None = None
    read_bytes: int | None = None  # from storage, /proc/PID/io
    comm: str = ""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of a run's limit: the cgroup's where there is one, the host's otherwise."""

    run: str
    used_bytes: int | None = None
    limit_bytes: int | None = None
    limit_scope: str = "host"  # cgroup | host


@dataclass(frozen=True, slots=True)
class DiskSample:
    """A block device. Cumulative."""

    device: str
    dev: int  # st_dev in the kernel's form (major << 20 | minor)
    busy_ms: int
    read_bytes: int
    write_bytes: int
    rotational: bool | None = None


@dataclass(frozen=True, slots=True)
class QuotaSample:
    """cpu.stat of the cgroup whose quota holds a run. Cumulative; time is summed over processors."""

    run: str
    periods: int
    throttled_periods: int
    throttled_ns: int
    quota_cpus: float | None = None
    cgroup: str = ""


@dataclass(frozen=True, slots=True)
class RivalSample:
    """A process that used processors since the last look. ``cpus``: how many, on average."""

    pid: int
    comm: str
    cpus: float
    threads: int
    kernel: bool = False  # a thread of the kernel


@dataclass(frozen=True, slots=True)
class Inspection:
    """What /proc said of one thread while its step was late."""

    pid: int
    tid: int
    state: str  # R S D T t …
    wchan: str = ""  # the kernel's function that it sleeps in
    tracer_pid: int | None = None
    tracer_comm: str = ""
    frozen: bool | None = None  # its cgroup is frozen
    allowed_cpus: int | None = None  # processors that its affinity leaves it
    path: str = ""  # that the system call in flight was given
    peer: str = ""  # of the socket that the call in flight is about: "address:port", "unix:path"


@dataclass(frozen=True, slots=True)
class HostSample:
    """The whole host. Pressure: cumulative seconds by "cpu.some", "io.full" …; empty when PSI is off."""

    cpus: int
    memory_bytes: int | None = None
    available_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_size_bytes: int | None = None
    swap_in_pages: int | None = None
    pressure: dict[str, float] | None = None
    load: float | None = None
    idle_ns: int | None = None  # all CPUs together, cumulative
    steal_ns: int | None = None  # taken by the hypervisor, the same way
    disks: tuple[DiskSample, ...] = ()


class SourceStatus(StrEnum):
    UP = "up"
    UNAVAILABLE = "unavailable"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SourceState:
    """One source of facts: running, cannot here (reason, remedy), or broken."""

    name: str
    state: SourceStatus
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class CostSample:
    """What watching costs so far: our CPU seconds, resident bytes, and BPF run time where the kernel counts it."""

    cpu_seconds: float
    rss_bytes: int
    bpf_seconds: float | None = None
    bpf_runs: dict[str, int] | None = None  # by probe
