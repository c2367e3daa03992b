"""One kind of call in a loop, timed by the process itself: what somebody's watching adds to each.

Reads a line for each measurement, ``KIND CALLS``, and answers with nanoseconds for each call. It needs nothing but
Python, so that nobody takes it for a training.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINE = b"x" * 63 + b"\n"


def writes(calls: int) -> float:
    """write(2) of 64 bytes to a file, into the page cache."""
    with tempfile.TemporaryFile(dir=os.path.expanduser("~"), buffering=0) as file:
        descriptor, write = file.fileno(), os.write
        begin = time.perf_counter_ns()
        for _ in range(calls):
            write(descriptor, LINE)
        return (time.perf_counter_ns() - begin) / calls


def unrelated(calls: int) -> float:
    """getppid(2): nobody watches it."""
    call = os.getppid
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - begin) / calls


def switches(calls: int) -> float:
    """A change of the thread on a processor, by two processes that give way to each other."""
    with _rival():
        give_way, before = os.sched_yield, _switched()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            give_way()
        passed = time.perf_counter_ns() - begin
        return passed / (2 * max(_switched() - before, 1))


@contextmanager
def _rival() -> Iterator[None]:
    """Another process on our processor that gives way as well."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    child = os.fork()
    if child == 0:
        while True:
            os.sched_yield()
    try:
        time.sleep(0.01)
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.sched_setaffinity(0, allowed)


def _switched() -> int:
    """How often this process has left a processor."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return sum(int(line.split()[1]) for line in file if "_ctxt_switches" in line)


KINDS: dict[str, Callable[[int], float]] = {"write": writes, "unrelated call": unrelated, "switch": switches}


def main() -> None:
    for line in sys.stdin:
        kind, _, calls = line.strip().rpartition(" ")
        print(KINDS[kind](int(calls)), flush=True)


if __name__ == "__main__":
    main()
