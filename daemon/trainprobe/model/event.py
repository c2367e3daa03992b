"""The kernel's messages, decoded: step rows, files, processes. All times are CLOCK_MONOTONIC nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.model.cells import Leaf, Level, Region, RowKind, ThreadState
from trainprobe.model.dataclass import dataclass
from trainprobe.model.launch import run_of_key
from trainprobe.model.message import Message, template
from trainprobe.model.resume_state import ResumedJob, ResumedRun
from trainprobe.model.text import StrEnum

NOT_PUT = template("marks.not_put", "marks cannot be put on {path}: {error}")
NO_FUNCTIONS = template("marks.no_functions", "{path} has none of the functions that marks need")
NO_LIBRARY = template("marks.no_library", "no libtorch mapped: marks need PyTorch")()
NO_STEP = template("marks.no_step", "libtorch is mapped, but no optimizer step and no backward was seen")()
NOT_OPENED = template("marks.not_opened", "{path}: the mapping cannot be opened: {error}")
NOT_READ = template("marks.not_read", "{path}: cannot be read")
REFUSED = template("marks.refused", "{mark}: {error}")
NOT_EXPORTED = template("marks.not_exported", "{mark}: the library does not export it")
SEVERAL = template("marks.several", "{reasons:; }")
"""Why a rank has no marks. Here, since a recording is read where nobody looks for them."""


@dataclass(frozen=True, slots=True)
class StepFile:
    """Time of one step's write-class calls on one file (``dev``/``ino`` 0: those that found no slot)."""

    dev: int
    ino: int
    io_ns: int  # write + sync + meta
    gap_ns: int  # CPU between such calls
    bytes: int
    calls: int = 0  # such calls that ended


@dataclass(frozen=True, slots=True)
class GpuMemoryCalls:
    """Of CUDA, that allocate or free: of all threads of a process since it is watched."""

    ns: int = 0  # in them
    allocations: int = 0  # that have returned
    frees: int = 0

    def __add__(self, other: GpuMemoryCalls) -> GpuMemoryCalls:
        if other is NO_GPU_MEMORY_CALLS:  # of every step where there is no GPU
            return self
        return GpuMemoryCalls(self.ns + other.ns, self.allocations + other.allocations, self.frees + other.frees)

    def since(self, then: GpuMemoryCalls) -> GpuMemoryCalls:
        """What came after an older row of the process."""
        if not self.ns:
            return NO_GPU_MEMORY_CALLS
        return GpuMemoryCalls(
            max(0, self.ns - then.ns), max(0, self.allocations - then.allocations), max(0, self.frees - then.frees)
        )


NO_GPU_MEMORY_CALLS = GpuMemoryCalls()


@dataclass(slots=True)  # the most frequent event; frozen=True would make it three times as expensive
class MarkRow:
    """A driver's ledger at a mark. Counters and cells are cumulative since the thread's ledger was opened."""

    kind: RowKind
    at_ns: int
    pid: int  # tgid, init namespace
    tid: int
    name: str  # of the record_function mark ("Optimizer.step#Adam.step"); "" for other kinds
    region: Region  # before the mark
    opened_ns: int  # when this ledger began
    steps: (
        int  # outermost Optimizer.step begins, all optimisers; of kind GPU: such calls, those before the first row too
    )
    fetches: int
    inline_fetches: int  # of these, by a loader without workers (_SingleProcessDataLoaderIter)
    backwards: int  # outermost
    major_faults: int
    cells: Sequence[int]  # CELLS values, ns
    pool: Sequence[int]  # LEAVES values, ns: the same for all worker processes of this pid together
    files: tuple[StepFile, ...]  # since the previous row of the thread; at most STEP_FILES
    gpu_memory: GpuMemoryCalls = NO_GPU_MEMORY_CALLS
    shared_bytes: int | None = None  # of files in shared memory that all worker processes of this pid made
    lengths: tuple[int, ...] = ()  # ns of each step that it ends, where it may end several: alike, and all in time
    swap_faults: int | None = (
        None  # major faults on no file; None: the kernel does not tell them apart (6.1; 6.12 does)
    )
    collected_ns: int = 0  # by Python's garbage collector in other threads of the process, since it is watched
    ran_ns: int = 0
    """The thread's time on a processor by the scheduler's count, up to its last tick: without what a hypervisor took.
    0: not known."""


class FileEventKind(StrEnum):
    OPENED = "opened"  # for writing, or first written through a descriptor opened earlier
    PROGRESS = "progress"  # totals of a file still open (polled)
    CLOSED = "closed"
    RENAMED = "renamed"
    UNLINKED = "unlinked"


@dataclass(frozen=True, slots=True)
class FileEvent:
    """A file written by a watched process; totals since it was opened (or first written)."""

    kind: FileEventKind
    at_ns: int
    pid: int
    tid: int
    dev: int
    ino: int
    path: str  # as the process sees it, absolute where that can be known
    new_path: str = ""  # RENAMED
    opened_ns: int = 0
    bytes: int = 0
    calls: int = 0
    write_ns: int = 0
    sync_ns: int = 0
    meta_ns: int = 0  # open, close; the call's own duration for RENAMED and UNLINKED
    gap_ns: int = 0
    errno: int = 0  # first error of a write-class call; of the call itself for RENAMED, UNLINKED
    created: bool = False  # O_CREAT or O_TRUNC was given
    append: bool = False


class ProcessEventKind(StrEnum):
    FORK = "fork"  # a new process (not a thread) of a watched one
    EXEC = "exec"
    EXIT = "exit"  # the whole process
    SIGNAL = "signal"  # a signal that ends, stops or continues was sent to a watched process
    OOM = "oom"  # mark_victim


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    kind: ProcessEventKind
    at_ns: int
    pid: int
    ppid: int = 0  # FORK, EXIT
    comm: str = ""
    code: int | None = None  # EXIT: exit status
    signal: int | None = None  # EXIT: fatal signal; SIGNAL: the signal
    sender_pid: int | None = None  # SIGNAL: who sent it
    sender_comm: str = ""
    by_user: bool = False  # SIGNAL: si_code says a process sent it (SI_USER, SI_TKILL)
    command: tuple[str, ...] = ()  # EXEC, FORK where /proc told
    anonymous_bytes: int | None = None  # OOM: the victim's memory; not known before Linux 6.9
    shared_bytes: int | None = None  # OOM: the same in shared memory


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A launch of a training: its identity and labels."""

    run: str  # its key (``model.launch``), here and in all other events
    at_ns: int
    launcher_pid: int
    command: tuple[str, ...]
    user: str
    cwd: str
    labels: dict[str, str] = field(default_factory=dict)  # LABELS of model.report, as known
    attached: bool = False  # it ran before the watching began: the first phase is "attaching"
    attempt: int = 1
    job: str = ""

    @property
    def name(self) -> str:
        """What the run is called on all hosts."""
        return run_of_key(self.run, self.attempt)


@dataclass(frozen=True, slots=True)
class RankSeen:
    """A process of a run that drives a rank (or, before the first backward, may do so)."""

    run: str
    at_ns: int
    pid: int
    container_pid: int | None
    started_ns: int  # process start
    rank: int | None = None  # RANK of the environment
    world_size: int | None = None
    candidate: bool = False  # not stepping yet; dropped from the report when another process of the run steps
    marks: Message | str = ""  # why there are no marks ("" when there are): reason for steps.source "none"


@dataclass(frozen=True, slots=True)
class RunEnded:
    run: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class PythonThread:
    """Another thread of the same interpreter: its id in the process's pid namespace, its innermost frame."""

    own_tid: int
    frame: str
    caller: str = ""  # the innermost frame of the user's own code, where that is a library's; "": there is none


@dataclass(frozen=True, slots=True)
class StackSeen:
    """A Python stack, outermost frame first, as "name (file:line)"; a library's file follows its package's name."""

    at_ns: int
    pid: int
    tid: int
    frames: tuple[str, ...]
    reason: str = ""  # why there is none
    others: tuple[PythonThread, ...] = ()
    late: bool = False  # none was read in time: the next attempt has a longer limit
    versions: dict[str, str] = field(default_factory=dict)  # of frameworks on it
    running: bool = False  # it was on a CPU then, or runnable


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A system call failed for lack of a resource. A call that fails in a loop is reported ten times a second."""

    at_ns: int
    pid: int
    tid: int
    call: str  # name of the system call, "" unknown
    errno: int  # 0: a message came, but the descriptors that it carried were cut off (MSG_CTRUNC)
    count: int = 1  # failures of this process with this errno since it is watched
    dev: int = 0
    ino: int = 0  # of the file that it failed on; 0: none, or not known
    tmpfs: bool = False  # that file is in shared memory
    path: str = ""
    comm: str = ""


@dataclass(frozen=True, slots=True)
class FileLooked:
    """A driver whose step is late asked for a file by its name; told ten times a second at most."""

    at_ns: int
    pid: int
    tid: int
    path: str
    errno: int = 0  # 0: it is there


class OpenedKind(StrEnum):
    CODE = "code"
    LIBRARY = "library"  # shared
    DATA = "data"  # files that are neither, directories


@dataclass(frozen=True, slots=True)
class OpenedSpan:
    """A part of a program's start in which its main thread opened files of one kind, or read what it had opened."""

    kind: OpenedKind
    begin_ns: int
    end_ns: int
    opens: int


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A large file that a program's main thread opened before its first step."""

    path: str
    opened_ns: int
    last_ns: int  # a read of it ended
    bytes: int  # read


@dataclass(frozen=True, slots=True)
class StartSeen:
    """What a program opened until its first step began."""

    at_ns: int
    pid: int
    began_ns: int
    spans: tuple[OpenedSpan, ...]
    files: tuple[OpenedFile, ...]
    loops: tuple[str, ...] = ()  # frameworks whose training loop it imported


@dataclass(frozen=True, slots=True)
class OomLogged:
    """The kernel log on an out-of-memory kill: whose limit it was."""

    at_ns: int
    pid: int
    scope: str  # cgroup | host
    group: str = ""  # the cgroup whose limit was hit


@dataclass(frozen=True, slots=True)
class HostStoodStill:
    """A processor did not run for ``ns`` until then: its scheduler's tick ended so late. A hypervisor, or firmware."""

    at_ns: int
    ns: int
    cpu: int = 0


@dataclass(frozen=True, slots=True)
class GpuXid:
    at_ns: int
    bus_id: str  # as the driver writes it: "0000:3b:00"
    code: int
    text: str = ""


Event = (
    MarkRow
    | FileEvent
    | ProcessEvent
    | RunStarted
    | RankSeen
    | ResumedRun
    | ResumedJob
    | RunEnded
    | StackSeen
    | CallFailed
    | FileLooked
    | StartSeen
    | HostStoodStill
    | OomLogged
    | GpuXid
)


@dataclass(frozen=True, slots=True)
class ThreadSample:
    """A thread's open ledger, read from the map. Cells are cumulative, the open interval included."""

    pid: int
    tid: int
    level: Level
    run: ThreadState
    region: Region
    leaf: Leaf
    since_ns: int  # when the present wait (BLOCKED) or the present leaf began
    step_ns: int  # the last OPTIMIZER or BACKWARD row
    syscall: int  # number of the blocked call, -1: none (page fault)
    fd: int
    dev: int
    ino: int
    path: str  # of the file it is blocked on, "" unknown
    cells: Sequence[int]
    fetches: int = 0  # cumulative, as in its rows
    backwards: int = 0
    files: tuple[StepFile, ...] = ()  # since the last row of the thread
    call: str = ""  # name of the blocked call, "" none or unknown
    major_faults: int | None = None  # cumulative, as in its rows
