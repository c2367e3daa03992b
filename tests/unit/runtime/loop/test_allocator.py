"""What the C library is told to keep: tried in a process of its own, whose heap nobody else uses."""

from __future__ import annotations

import os
import subprocess
import sys

OURS, GIVEN_BACK = "allocator.limit_arenas()", "allocator.Heap().give_back()"
GROWN = """
import ctypes, threading
from trainprobe.runtime.loop import allocator

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

{first}
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def churn():
    blocks = [library.malloc(8000) for _ in range(4000)]
    for block in blocks:
        ctypes.memset(block, 1, 8000)
    for block in blocks[:-1]:  # the last one keeps the top of the heap where it is
        library.free(block)

before = resident()
thread = threading.Thread(target=churn)
thread.start()
thread.join()
{then}
print(resident() - before)
"""


def printed(script: str) -> int:
    """The number that it prints, in an interpreter of its own."""
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout)


def grown(first: str, then: str) -> int:
    """Bytes that a thread's 32 MB leave behind, all but a block of which it freed."""
    return printed(GROWN.format(first=first, then=then))


def test_what_was_freed_goes_back_though_something_above_it_stays() -> None:
    kept = grown("pass", "pass")
    left = grown(OURS, GIVEN_BACK)
    assert kept > 16_000_000
    assert left < 4_000_000


SMALL = """
from trainprobe.runtime.loop import allocator

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

early = [[number] for number in range(100_000)]  # lies in Python's arenas, and ends there
{first}
before = resident()
passing = [[(at, number) for number in range(1000)] for at in range(500)]
kept = [many[0] for many in passing]
early[0].extend(range(100))
assert early[0][-1] == 99 and early[1] == [1]
del early[1:], passing
{then}
print(resident() - before)
"""


def scattered(first: str, then: str) -> int:
    """Bytes that half a million tuples leave behind, one in a thousand of which stays."""
    return printed(SMALL.format(first=first, then=then))


def test_of_small_objects_too_only_the_pages_of_those_in_use_stay() -> None:
    kept = scattered("pass", "pass")
    left = scattered(OURS, GIVEN_BACK)
    assert kept > 20_000_000
    assert left < 5_000_000


def test_an_allocator_that_somebody_chose_stays() -> None:
    for chosen in ("malloc", "debug"):
        subprocess.run(
            [sys.executable, "-c", SMALL.format(first=OURS, then=GIVEN_BACK)],
            env={**os.environ, "PYTHONMALLOC": chosen}, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip


PEAK = """
import gc
from trainprobe.runtime.loop import allocator

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

allocator.limit_arenas()
gc.set_threshold(10_000, 10, 10)
before = resident()
passing = [(tuple([number] * length), bytes(700)) for number in range(2000) for length in range(1, 20)]
assert resident() - before > 30_000_000
del passing
allocator.Heap().give_back()
print(resident() - before)
"""


def test_dead_tuples_that_python_keeps_hold_no_pages() -> None:
    left = printed(PEAK)
    assert left < 4_000_000


def test_what_has_not_grown_costs_no_search() -> None:
    looked = """
import gc
from trainprobe.runtime.loop import allocator

found = []
gc.callbacks.append(lambda phase, info: found.append(info["generation"]) if phase == "stop" else None)
heap = allocator.Heap()
for _ in range(5):
    heap.give_back()
grown = b"x" * (3 << 20)
heap.give_back()
print(found.count(2))
"""
    assert printed(looked) == 2
