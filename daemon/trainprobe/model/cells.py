"""The cells of the kernel's ledger: ``acc[region][leaf]`` in nanoseconds.

The numbers are the ABI between ``bpf/src/*.bpf.c`` and user space; ``bpf/compile/defines`` passes them to the compiler
as ``-D``, so they are written down once, here."""

from __future__ import annotations

from enum import IntEnum


class Region(IntEnum):
    """What the program does, by the uprobe marks inside it (innermost known mark)."""

    STEP = 0  # between marks: the forward pass and everything else
    FETCH = 1  # inside enumerate(DataLoader)#….__next__
    BACKWARD = 2  # inside the outermost torch::autograd::Engine::execute
    OPTIMIZER = 3  # inside the outermost Optimizer.step
    NO_GRAD = 4  # gradients switched off by Python, outside of all of the above


class Leaf(IntEnum):
    """What the thread does, by the scheduler and the system call in flight."""

    CPU = 0
    RUNQUEUE = 1
    THROTTLED = 2
    STOPPED = 3
    RECLAIM = 4
    SWAP = 5
    FAULT = 6  # major fault on a mapped file
    FILE_READ = 7  # blocked in read (or open, close of a file not written)
    FILE_WRITE = 8
    FILE_SYNC = 9  # fsync, fdatasync, sync_file_range, ftruncate, fallocate
    FILE_META = 10  # open for writing, close of a written file, rename, unlink, truncate
    FILE_GAP = 11  # on the CPU between two write-class calls on the same file: producing its bytes
    PIPE_READ = 12
    STREAM_OUT = 13  # write to a pipe or a terminal
    SOCKET = 14
    POLL = 15
    LOCK = 16  # futex
    CHILD = 17  # wait4, waitid
    SLEEP = 18
    DEVICE = 19
    GPU = 20  # blocked on an nvidia device
    OTHER = 21
    READ_CPU = 22  # on the CPU inside a traced read: copying from the page cache
    COLLECTOR = 23  # on the CPU in Python's garbage collector


COMPUTING = frozenset({Leaf.CPU, Leaf.FILE_GAP, Leaf.READ_CPU, Leaf.COLLECTOR})
"""The thread runs on a CPU."""
QUEUED = (Leaf.RUNQUEUE, Leaf.THROTTLED)
"""It is runnable, and on none."""
LEAVES = 24  # cells of one region
CELLS = 128  # room of the array in the kernel: 5 regions x 24, rounded up
STEP_FILES = 4  # files that a step row tells apart; the last slot takes what does not fit


def cell(region: Region, leaf: Leaf) -> int:
    """Index of a (region, leaf) pair in a row's cells."""
    return region * LEAVES + leaf


class RowKind(IntEnum):
    OPTIMIZER = 0  # an outermost Optimizer.step begins
    BACKWARD = 1  # an outermost backward begins
    DRIVER = 2  # the first mark that makes this thread a driver
    EXIT = 3  # the thread's last row
    FETCH_END = 4  # a fetch that waited long ended (rare: see DEEP_FETCH_NS in the BPF source)
    GPU = 5  # the call of CUDA that comes once a step, where nothing else marks one
    FINALIZE = 6  # the driver begins to finalize its interpreter: the training loop was left
    RHYTHM = 7  # a burst of calls that recurs evenly, where nothing better marks a step


class Level(IntEnum):
    """How closely a thread is traced."""

    NONE = 0
    WRITER = 1  # write-class calls only: helper threads
    COARSE = 2  # + scheduler and faults: worker processes
    FULL = 3  # + reads and marks: drivers


class ThreadState(IntEnum):
    ON = 0
    RUNNABLE = 1
    BLOCKED = 2
    GONE = 3


BLOCK_IO_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper bounds of the durations of a block device's requests, seconds; one more bucket has what took longer."""
