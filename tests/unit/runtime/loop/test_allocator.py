"""What the C library is told to keep: tried in a process of its own, whose heap nobody else uses."""

from __future__ import annotations

import subprocess
import sys

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


def grown(first: str, then: str) -> int:
    """Bytes that a thread's 32 MB leave behind, all but a block of which it freed."""
    script = GROWN.format(first=first, then=then)
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout)


def test_what_was_freed_goes_back_though_something_above_it_stays() -> None:
    kept = grown("pass", "pass")
    left = grown("allocator.limit_arenas()", "allocator.give_back()")
    assert kept > 16_000_000
    assert left < 4_000_000
