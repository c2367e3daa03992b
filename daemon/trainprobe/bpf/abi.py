# SPDX-License-Identifier: Apache-2.0
"""The structures of ``src/include/layout.h`` in Python, member by member.

``defines()`` hands sizes and numbers to the C compiler, which refuses to compile when the two disagree.
"""

from __future__ import annotations

from ctypes import Structure, c_char, c_int16, c_int32, c_uint8, c_uint16, c_uint32, c_uint64, sizeof
from enum import IntEnum

from trainprobe.model.cells import BLOCK_IO_BUCKETS, CELLS, LEAVES, STEP_FILES, Leaf, Level, Region, RowKind, RunState

NAME_SIZE = 64
PATH_SIZE = 256
PART_SIZE = 64
PARTS = 2 * PATH_SIZE // PART_SIZE  # components that fit where a path and a new path have their places
LEVELS = 32  # threads to an entry of the map of levels, which is as long as a line of the processor's caches
QUIET = 0x80  # bit of a thread's level byte: no events, the process is not wanted yet
POOLS = 4096
LEDGERS_BY_ID = 2048  # places that the last bits of thread ids name, a power of two
LEDGERS = LEDGERS_BY_ID + 1024
CLOCK = "clock"  # its name among what is attached
CLOCK_TICK_NS = 200_000_000
ALARMS = 64  # drivers whose steps the kernel itself holds against their limits
HELD_STEPS = 32  # of one row, at most; a power of two
HELD_NS = 1_000_000_000  # and they take no longer
BEAT_INTERVALS = 48  # half octaves: up to 17 s
CALL_GPU_ALLOCATE = 0x10000  # stands for a system call's number where an allocation of CUDA fails
CALL_NUMBERS = 512
OPERATIONS = ("read", "write", "flush", "discard")  # enum req_op, the numbers from 0
FORM_TRUNCATE, FORM_ALLOCATE = 3, 4  # Syscall.form of calls that give a file a size: its argument, the sum of two


class Message(IntEnum):
    """First word of everything in the ring."""

    ROW = 1
    FILE = 2
    NAMED_FILE = 3
    PROCESS = 4
    CANDIDATE = 5
    FAILURE = 6
    SITE = 7


class FileKind(IntEnum):
    OPENED = 0
    CLOSED = 1
    RENAMED = 2
    UNLINKED = 3


class ProcessKind(IntEnum):
    FORK = 0
    EXEC = 1
    EXIT = 2
    SIGNAL = 3
    OOM = 4


class Why(IntEnum):
    """Why a process that nobody watches may be a training."""

    EXEC = 0
    MARK = 1


class Call(IntEnum):
    """What a system call does, as far as the ledger cares. The first ten have their entry and exit traced."""

    NONE = 0
    READ = 1
    WRITE = 2
    SYNC = 3
    OPEN = 4
    CLOSE = 5
    RENAME = 6
    UNLINK = 7
    DUP = 8
    SUBMIT = 9
    CONTROL = 10  # fcntl: F_DUPFD is traced, blocking is a lock
    POLL = 11
    SELECT = 12
    WAIT_EVENTS = 13
    LOCK = 14
    CHILD = 15
    SLEEP = 16
    SOCKET = 17
    DEVICE = 18
    RESTART = 19
    LOOKUP = 20  # reads of names and attributes
    CHANGE = 21  # changes of directories
    AIO = 22


class SiteState(IntEnum):
    """What was done about a place that calls of CUDA return to."""

    TOLD = 0
    ARMED = 1
    REFUSED = 2


class Lost(IntEnum):
    """What was lost for want of room, by probe."""

    ROW = 0
    FILE = 1
    PROCESS = 2
    CANDIDATE = 3
    LEDGER = 4
    POOL = 5
    FAILURE = 6
    SITE = 7


class StepFileRecord(Structure):
    _fields_ = [(n, c_uint64) for n in ("ino", "io_ns", "gap_ns", "bytes")] + [("dev", c_uint32), ("calls", c_uint32)]


class FileKey(Structure):
    _fields_ = [("tgid", c_uint32), ("dev", c_uint32), ("ino", c_uint64)]


class Known(Structure):
    _fields_ = [
        ("inode", c_uint64),
        ("sb", c_uint64),
        ("key", FileKey),
        *((n, c_uint8) for n in ("kind", "leaf", "regular", "told")),
        ("unused", c_uint32),
    ]


class CallRecord(Structure):
    _fields_ = [
        ("known", Known),
        ("number", c_uint32),
        ("fd", c_int32),
        ("flags", c_uint32),
        ("kind", c_uint8),
        ("unused", c_uint8 * 3),
        ("at", c_uint64),
        ("key", FileKey),
        ("last", FileKey),
        *((n, c_uint64) for n in ("bytes", "gap_ns", "path", "new_path")),
        ("directory", c_int32),
        ("new_directory", c_int32),
    ]


class Ledger(Structure):
    _fields_ = [
        ("opened", c_uint64),
        *((n, c_uint64) for n in ("at", "since", "delay", "fault_at", "call_ns", "gap_mark", "gap_ino", "ino")),
        *((n, c_uint32) for n in ("dev", "gap_dev", "pool")),
        *((n, c_int32) for n in ("call", "blocked_call", "blocked_fd")),
        *((n, c_uint8) for n in ("region", "leaf", "run", "call_leaf", "cpu_leaf", "wait_leaf", "why", "busy")),
        *((n, c_uint8) for n in ("reclaim", "gpu", "collecting", "closing", "fault_file", "driver", "grads_off")),
        *((n, c_uint8) for n in ("saw_ends", "nested", "waited_kind", "waited_leaf", "unused")),
        ("regions", c_uint8 * 4),
        ("region_depth", c_int32 * 4),
        ("depth", c_int32),
        ("tid", c_uint32),
        ("flying", CallRecord),
        *((n, c_uint32) for n in ("tgid", "steps", "fetches", "inline_fetches", "backwards", "major_faults")),
        *((n, c_uint64) for n in ("step_at", "row_at")),
        *((n, c_uint32) for n in ("row_fetches", "row_backwards")),
        *((n, c_uint64) for n in ("fetch_at", "graph_task", "gpu_mark")),
        ("files", StepFileRecord * STEP_FILES),
        ("no_grad", c_uint64 * LEAVES),
        ("waited_file", c_uint64),
        ("waited_inode", c_uint64),
        ("acc", c_uint64 * CELLS),
    ]


class Row(Structure):
    _fields_ = [
        ("message", c_uint32),
        ("kind", c_uint32),
        ("at", c_uint64),
        ("opened", c_uint64),
        *((n, c_uint32) for n in ("tid", "tgid", "steps", "fetches", "inline_fetches", "backwards")),
        ("major_faults", c_uint32),
        ("region", c_uint32),
        ("gpu_memory_ns", c_uint64),
        ("gpu_allocations", c_uint32),
        ("gpu_frees", c_uint32),
        ("files", StepFileRecord * STEP_FILES),
        ("acc", c_uint64 * CELLS),
        ("pool", c_uint64 * LEAVES),
        ("shared", c_uint64),
        ("began", c_uint64),
        ("lengths", c_uint32 * HELD_STEPS),
        ("held", c_uint32),
        ("unused", c_uint32),
        ("name", c_char * NAME_SIZE),
    ]


class Held(Structure):
    _fields_ = [("row", Row), ("fetches", c_uint32), ("backwards", c_uint32)]


class FileUse(Structure):
    _fields_ = [
        *((n, c_uint64) for n in ("opened", "told", "bytes", "calls", "write_ns", "sync_ns", "meta_ns", "gap_ns")),
        ("closed", c_uint64),
        *((n, c_uint32) for n in ("generation", "error", "tid")),
        ("fd", c_int32),
        ("descriptors", c_int16),
        *((n, c_uint8) for n in ("created", "append", "small", "shared")),
        ("unused", c_uint16),
    ]


class FileMessage(Structure):
    _fields_ = [
        ("message", c_uint32),
        ("kind", c_uint32),
        ("at", c_uint64),
        ("key", FileKey),
        ("tid", c_uint32),
        ("fd", c_int32),
        ("use", FileUse),
    ]


class NamedFileMessage(Structure):
    _fields_ = [
        ("file", FileMessage),
        ("directory", c_int32),
        ("new_directory", c_int32),
        ("walked", c_uint32),
        ("unused", c_uint32),
        ("path", c_char * PATH_SIZE),
        ("new_path", c_char * PATH_SIZE),
    ]


class ProcessMessage(Structure):
    _fields_ = [
        ("message", c_uint32),
        ("kind", c_uint32),
        ("at", c_uint64),
        ("tgid", c_uint32),
        ("parent", c_uint32),
        ("code", c_int32),
        ("signal", c_int32),
        ("sender", c_uint32),
        ("unused", c_uint32),
        ("anonymous", c_uint64),
        ("shared", c_uint64),
        ("comm", c_char * 16),
        ("sender_comm", c_char * 16),
    ]


class CandidateMessage(Structure):
    _fields_ = [("message", c_uint32), ("why", c_uint32), ("at", c_uint64), ("tgid", c_uint32), ("unused", c_uint32)]


class FailureMessage(Structure):
    _fields_ = [
        ("message", c_uint32),
        ("number", c_int32),
        ("at", c_uint64),
        ("tgid", c_uint32),
        ("tid", c_uint32),
        ("error", c_int32),
        ("fd", c_int32),
        *((n, c_uint64) for n in ("count", "ino", "magic")),
        ("dev", c_uint32),
        ("unused", c_uint32),
        ("comm", c_char * 16),
        ("path", c_char * PATH_SIZE),
    ]


class Pool(Structure):
    _fields_ = [("ns", c_uint64 * LEAVES), ("shared", c_uint64)]


class Process(Structure):
    _fields_ = [
        ("parent", c_uint32),
        ("pool", c_uint32),
        ("driver", c_uint32),
        ("writing", c_int32),
        *((n, c_uint32) for n in ("tentative", "gpu_allocations", "gpu_frees", "gpu_sites")),
        ("gpu_memory_ns", c_uint64),
    ]


class Alarm(Structure):
    _fields_ = [("limit", c_uint64), ("told", c_uint64), ("ended", c_uint32), ("together", c_uint32)]


class RequestKey(Structure):
    _fields_ = [("dev", c_uint32), ("operation", c_uint32)]


class RequestUse(Structure):
    _fields_ = [("ns", c_uint64), ("count", c_uint64 * (len(BLOCK_IO_BUCKETS) + 1))]


class GpuSite(Structure):
    _fields_ = [("tgid", c_uint32), ("unused", c_uint32), ("address", c_uint64)]


class GpuCaller(Structure):
    _fields_ = [("tgid", c_uint32), ("tid", c_uint32), ("what", c_uint64)]


class GpuBeat(Structure):
    _fields_ = [
        ("count", c_uint64),
        ("last", c_uint64),
        ("launch", c_uint32),
        ("unused", c_uint32),
        ("intervals", c_uint32 * BEAT_INTERVALS),
    ]


class SiteMessage(Structure):
    _fields_ = [("message", c_uint32), ("tgid", c_uint32), ("at", c_uint64), ("address", c_uint64)]


_SIZES = {
    "LEDGER": Ledger,
    "CALL": CallRecord,
    "ROW": Row,
    "HELD": Held,
    "FILE_USE": FileUse,
    "FILE_MESSAGE": FileMessage,
    "NAMED_FILE_MESSAGE": NamedFileMessage,
    "PROCESS_MESSAGE": ProcessMessage,
    "CANDIDATE_MESSAGE": CandidateMessage,
    "FAILURE_MESSAGE": FailureMessage,
    "PROCESS": Process,
    "POOL": Pool,
    "ALARM": Alarm,
    "REQUEST_USE": RequestUse,
    "GPU_SITE": GpuSite,
    "GPU_CALLER": GpuCaller,
    "GPU_BEAT": GpuBeat,
    "SITE_MESSAGE": SiteMessage,
}
_ENUMS: tuple[tuple[str, type[IntEnum]], ...] = (
    ("REGION_", Region),
    ("LEAF_", Leaf),
    ("ROW_", RowKind),
    ("RUN_", RunState),
    ("LEVEL_", Level),
    ("FILE_", FileKind),
    ("PROCESS_", ProcessKind),
    ("WHY_", Why),
    ("CALL_", Call),
    ("LOST_", Lost),
    ("SITE_", SiteState),
)


def defines() -> list[str]:
    """Compiler flags that carry every number both sides must agree on."""
    flags = {f"SIZE_{name}": sizeof(shape) for name, shape in _SIZES.items()}
    for prefix, numbers in _ENUMS:
        flags.update({f"{prefix}{member.name}": int(member) for member in numbers})
    flags.update(CELLS=CELLS, LEAVES=LEAVES, STEP_FILES=STEP_FILES)
    flags.update(FORM_TRUNCATE=FORM_TRUNCATE, FORM_ALLOCATE=FORM_ALLOCATE)
    flags.update(
        QUIET=QUIET,
        LEVELS=LEVELS,
        POOLS=POOLS,
        LEDGERS=LEDGERS,
        LEDGERS_BY_ID=LEDGERS_BY_ID,
        CALL_NUMBERS=CALL_NUMBERS,
        CALL_GPU_ALLOCATE=CALL_GPU_ALLOCATE,
    )
    flags.update(BEAT_INTERVALS=BEAT_INTERVALS, ALARMS=ALARMS, HELD_STEPS=HELD_STEPS, HELD_NS=HELD_NS)
    flags.update(OPERATIONS=len(OPERATIONS), REQUEST_BUCKETS=len(BLOCK_IO_BUCKETS) + 1)
    bounds = ",".join(f"{round(bound * 1e9)}ull" for bound in BLOCK_IO_BUCKETS)
    return [*(f"-D{name}={value}" for name, value in flags.items()), f"-DREQUEST_BOUNDS={bounds}"]
