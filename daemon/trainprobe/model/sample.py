"""Values of /proc, cgroups and NVML at a moment. What a host lacks is None, never 0."""

from __future__ import annotations

from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message
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
    comm: str = ""
    private_bytes: int | None = None  # Private_Dirty: its own copies
    shm_held_bytes: int | None = None  # files of /dev/shm that it has open, mapped or not
    swap_share_bytes: int | None = None  # SwapPss: forked workers share swapped pages; read as seldom as `pss_bytes`
    swap_read_bytes: int | None = None  # Swap, read with it: what forked processes share is in each of theirs
    grown_bytes: int = 0  # anonymous memory, swapped pages too, that came since `pss_bytes` was read, which is seldom
    pss_read_ns: int | None = None  # when that was, CLOCK_MONOTONIC
    major_faults: int | None = None  # cumulative


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of a run's nearest limit: of a cgroup above it, or the host's."""

    run: str
    used_bytes: int | None = None
    limit_bytes: int | None = None
    limit_scope: str = "host"  # cgroup | host


@dataclass(frozen=True, slots=True)
class CountSample:
    """Instructions that a thread executed in user space from ``since_ns`` to ``at_ns`` (CLOCK_MONOTONIC)."""

    pid: int
    tid: int
    since_ns: int
    at_ns: int
    instructions: int
    switches: int | None = None  # how often it came on a processor meanwhile


@dataclass(frozen=True, slots=True)
class LimitSample:
    """Something of a run that can run out, and how much of it is used. Bytes or numbers, read about once a second."""

    run: str
    kind: str  # memory | fds | shm | pids
    used: int
    limit: int
    scope: str = ""  # memory, pids: cgroup | host; shm: the container's id, or "host"
    place: str = ""  # the cgroup's path; shm: the device number, "major:minor"
    pid: int = 0  # fds: whose


@dataclass(frozen=True, slots=True)
class DescriptorSample:
    """The kinds of a process's descriptors, read only when they run short."""

    pid: int
    open: int
    kinds: dict[str, int] = field(default_factory=dict)  # shared memory | socket | file | pipe | event | other
    counted: int = 0  # so many of them were looked at


@dataclass(frozen=True, slots=True)
class Leak:
    """Files in shared memory whose makers are dead and that no process maps. ``pid`` in the container's numbering."""

    pid: int
    files: int
    bytes: int
    name: str  # of one of them


@dataclass(frozen=True, slots=True)
class SharedSample:
    """A /dev/shm as processes of a container (or of the host) see it."""

    device: str  # major:minor
    container: str  # its id, or "host"
    size_bytes: int
    used_bytes: int
    leaks: tuple[Leak, ...] = ()
    runs: tuple[str, ...] = ()  # that see it
    more_leaks: int = 0  # of further dead processes
    more_files: int = 0
    more_bytes: int = 0

    @property
    def leaked_bytes(self) -> int:
        return sum(leak.bytes for leak in self.leaks) + self.more_bytes


@dataclass(frozen=True, slots=True)
class SpaceSample:
    """Room left on the file system of a directory, as the process sees it."""

    pid: int
    path: str
    available_bytes: int
    files_free: int | None = None  # None: the file system has no fixed number


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file by its path as a process sees it, and by the kernel's device and inode of the writes."""

    pid: int
    path: str
    dev: int  # as in DiskSample
    ino: int


@dataclass(frozen=True, slots=True)
class FileSizeSample:
    """How long such a file is now."""

    pid: int
    dev: int
    ino: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OrphanSample:
    """A DataLoader worker that outlived its trainer."""

    pid: int
    started_ns: int
    trainer: int | None  # the pid of the driver that it worked for, where that is known
    comm: str = ""
    pss_bytes: int | None = None
    shm_bytes: int | None = None
    gpu_files: int | None = None  # descriptors of /dev/nvidia*


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process that holds memory of a GPU; bytes None where the driver does not tell."""

    pid: int
    bytes: int | None = None
    utilization: float | None = None  # part of the time in which its own kernels ran; None: the driver does not tell


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at a moment. Every figure is None where it is not supported; ``missing`` names those."""

    index: int
    uuid: str = ""
    bus_id: str = ""
    at_ns: int = 0  # CLOCK_MONOTONIC
    since_ns: int = 0  # of the reading before; 0: this is the first
    mig: bool = False  # it is partitioned: utilisation of the parts is not told
    utilization: float | None = None  # part of the time since then in which some kernel ran
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_hertz: int | None = None
    sm_clock_max_hertz: int | None = None
    pcie_receive_bytes_per_second: int | None = None
    pcie_transmit_bytes_per_second: int | None = None
    tensor_active: float | None = None  # part of the time since then in which tensor cores worked
    reasons: tuple[str, ...] | None = None  # why its clock is lowered now
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    remapped_rows: int | None = None  # for uncorrectable errors
    holders: tuple[GpuHolder, ...] | None = None
    lost: bool = False  # it has fallen off the bus
    hung: bool = False  # a call on it does not come back
    missing: tuple[str, ...] = ()


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
class IoLimitSample:
    """How fast a run's cgroup lets it read and write a device, a second; None: as fast as it goes."""

    run: str
    dev: int  # st_dev in the kernel's form, of the whole disk
    cgroup: str
    read_bytes: int | None = None
    write_bytes: int | None = None
    reads: int | None = None
    writes: int | None = None


@dataclass(frozen=True, slots=True)
class RivalSample:
    """A process that used processors since the last pass. ``cpus``: how many, on average."""

    pid: int
    comm: str
    cpus: float
    threads: int
    kernel: bool = False  # a thread of the kernel


@dataclass(frozen=True, slots=True)
class SentBytes:
    """What a TCP connection has sent in its whole life."""

    acknowledged: int  # bytes, by the other end
    busy_ns: int  # for how long there was something to send
    at_ns: int  # CLOCK_MONOTONIC, when that was read


@dataclass(frozen=True, slots=True)
class ThreadLook:
    """A thread that a driver may wait for: another one of its process, or one of its children's."""

    tid: int
    own_tid: int  # its id in the process's pid namespace
    state: str  # R S D T t …
    wchan: str = ""  # the kernel's function that it sleeps in
    cpu_ns: int | None = None  # in its whole life
    path: str = ""  # of the file that it is blocked on
    peer: str = ""  # of the socket that it is blocked on, as in Inspection
    sends: bool = False  # the call in flight sends, or the peer has yet to take what was sent
    sent: SentBytes | None = None  # over the socket that it is blocked on
    pid: int = 0  # 0: the driver's


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock on a file that a process holds."""

    dev: int  # as in DiskSample
    ino: int
    pid: int  # -1: of an open file description
    name: str = ""  # of the process, "" not read
    exclusive: bool = False
    path: str = ""  # where the thread that sleeps has it open; looked up for exclusive ones of others


@dataclass(frozen=True, slots=True)
class Inspection:
    """Values of /proc for one thread while its step was late."""

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
    threads: tuple[ThreadLook, ...] = ()  # the others of its process, when it waits for a lock
    locking: str = ""  # the call in flight where it locks the file `path`: flock | fcntl
    held_locks: tuple[HeldLock, ...] = ()  # of the host, when it locks a file or sleeps
    sent: SentBytes | None = None  # over the socket to `peer`
    children: tuple[ThreadLook, ...] = ()  # threads of the processes that it waits for
    terminal: str = ""  # whose input it waits for

    @property
    def rival(self) -> HeldLock | None:
        """Another process's lock on a file that it has open."""
        return next((one for one in self.held_locks if one.path), None)


@dataclass(frozen=True, slots=True)
class BlockIoSample:
    """Requests of a whole block device that ended since the probes were attached."""

    dev: int  # as in DiskSample
    operation: str  # read | write | flush | discard
    ns: int  # from the making of each request to its end, summed
    counts: tuple[int, ...]  # by BLOCK_IO_BUCKETS


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
    block_io: tuple[BlockIoSample, ...] = ()
    pace_ns: int | None = None  # CPU time of a fixed piece of work: the more, the slower the processors are


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
    message: Message | None = field(default=None, hash=False)  # what ``reason`` was made of
    remedy_message: Message | None = field(default=None, hash=False)
    errors: int = 0  # readings that failed, ever
    seconds: float | None = None  # that a reading took lately; None: not measured


@dataclass(frozen=True, slots=True)
class CostSample:
    """What watching costs so far: our CPU seconds, resident bytes, and BPF run time where the kernel counts it."""

    cpu_seconds: float
    rss_bytes: int
    bpf_seconds: float | None = None
    bpf_runs: dict[str, int] | None = None  # by probe
    stacks_seconds: float | None = None  # of ``cpu_seconds``: by the children that read Python stacks
