"""How slow this host is now, beside one on which limits in seconds of wall time hold: others may have its processors.

A limit that a busy host exceeds is a limit times ``slowness()``, taken in the same test: on an ordinary host it is one.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import time
from statistics import median

WORK = "sum(number * number for number in range({}))"
ROUNDS = 4_000_000
USUAL_SECONDS = 0.25
"""That a bare Python 3.11 takes for so many on an idle core of 2024, its start included."""
TURNS = 3
PAIRS = 20_000
USUAL_VERIFYING_SECONDS = 0.011
"""That a kernel takes to verify and translate a program of so many pairs of instructions, on hosts where a later start
of the daemon takes the 0.35 to 0.53 s of docs/cost.md. One within a virtual machine may take twice as long, though
its interpreters are as quick as elsewhere."""
_BPF, _PROG_LOAD, _SOCKET_FILTER, _SIZE = 321, 5, 1, 120  # bpf(2) on x86-64


def kernel_slowness() -> float:
    """1.0, or how many times longer the kernel takes to load a BPF program now. Needs root; raises OSError."""
    pair = struct.pack("<BBhi", 0x07, 0, 0, 1) + struct.pack("<BBhi", 0x57, 0, 0, 0x7F)  # r0 += 1, r0 &= 127
    code = struct.pack("<BBhi", 0xB7, 0, 0, 0) + PAIRS * pair + struct.pack("<BBhi", 0x95, 0, 0, 0)
    return max(median(_load(code) for _ in range(TURNS)) / USUAL_VERIFYING_SECONDS, 1.0)


def _load(code: bytes) -> float:
    instructions, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    where = ctypes.addressof(instructions), ctypes.addressof(licence)
    attributes = ctypes.create_string_buffer(struct.pack("<IIQQ", _SOCKET_FILTER, len(code) // 8, *where), _SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    begun = time.monotonic()
    program = libc.syscall(_BPF, _PROG_LOAD, attributes, _SIZE)
    took = time.monotonic() - begun
    if program < 0:
        raise OSError(ctypes.get_errno(), "the kernel takes no BPF program")
    os.close(program)
    return took


def slowness(together: int = 1, turns: int = 1) -> float:
    """1.0, or how many times longer bare interpreters take now: so many at once, each for ``turns`` times USUAL_SECONDS
    of work. A short turn tells nothing of longer work: who comes new is often let in at once."""
    usual = turns * USUAL_SECONDS * max(together / len(os.sched_getaffinity(0)), 1.0)
    return max(median(_turn(together, turns) for _ in range(TURNS)) / usual, 1.0)


def within(seconds: float, limit: float) -> bool:
    """Whether something took no longer than ``limit``, or would have taken no longer on an ordinary host. Asked when
    the load of the test itself is gone: else that would count for the host's."""
    return seconds <= limit or seconds <= limit * slowness()


def _turn(together: int, turns: int) -> float:
    begun = time.monotonic()
    command = [sys.executable, "-S", "-c", WORK.format(turns * ROUNDS)]
    started = [subprocess.Popen(command) for _ in range(together)]
    for one in started:
        one.wait()
    return time.monotonic() - begun
