# SPDX-License-Identifier: Apache-2.0
"""The numbers that both sides of the kernel's border use; ``structures`` has the layouts.

``defines`` hands sizes and numbers to the C compiler, which refuses to compile when the two disagree.
"""

from __future__ import annotations

from enum import IntEnum

from trainprobe.bpf.structures import *  # noqa: F403 - users name each as a member of this module

NAME_SIZE = 64  # of a record_function mark
PATH_SIZE = 512  # of a path as the process passed it: sweeps put their settings into folders' names
START_PATH_SIZE = 256  # of one that a program opened before its first step
PART_SIZE = 64  # of one component of a path that the kernel program walked itself
PARTS = PATH_SIZE // PART_SIZE  # components that fit where a path has its place
QUIET = 0x80  # bit of a thread's level byte: no events, the process is not wanted yet
POOLS = 4096
LEDGERS_BY_ID = 2048  # places that the last bits of thread ids name, a power of two
LEDGERS = LEDGERS_BY_ID + 1024
DRIVERS = 64  # of one process that have a ledger: the places are for everybody
CLOCK = "clock on_clock"  # its name among what is attached
CLOCK_TICK_NS = 200_000_000
ALARMS = 64  # drivers whose steps the kernel itself holds against their limits
HELD_STEPS = 32  # of one row, at most; a power of two
UNTOLD = (1 << 32) - 1  # in place of a count that this kernel does not tell
HELD_NS = 1_000_000_000  # and they take no longer
STARTS = 512  # programs whose first step has not come
START_SPANS, START_FILES = 128, 8  # kept of a program's start; powers of two
BEAT_INTERVALS = 48  # half octaves: up to 17 s
CALL_GPU_ALLOCATE = 0x10000  # stands for a system call's number where an allocation of CUDA fails
CALL_NUMBERS = 512
STOOD_STILL_NS = 20_000_000  # a processor that did not run for so long is told of; a tick comes each 1 to 10 ms
OPERATIONS = ("read", "write", "flush", "discard")  # enum req_op, the numbers from 0
FORM_TRUNCATE, FORM_ALLOCATE = 3, 4  # Syscall.form of calls that give a file a size: its argument, the sum of two


class RingMessage(IntEnum):
    """First word of everything in the ring."""

    ROW = 1
    FILE = 2
    NAMED_FILE = 3
    PROCESS = 4
    CANDIDATE = 5
    FAILURE = 6
    SITE = 7
    LOOK = 8
    STANDSTILL = 9


class KernelFileKind(IntEnum):
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


class GpuCall(IntEnum):
    """What a call of CUDA does, as far as the ledger cares."""

    WAIT = 0
    ALLOCATE = 1
    FREE = 2


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


class StartKind(IntEnum):
    """What a program opened."""

    CODE = 0
    LIBRARY = 1
    DATA = 2


class BeatKind(IntEnum):
    """What a counted call is. Of the first kind there are a few a step; of the others there may be too many."""

    WAIT = 0
    LAUNCH = 1
    RELEASE = 2  # of the interpreter's lock
