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
from collections.abc import Sequence
from pathlib import Path
from statistics import median

WORK = "sum(number * number for number in range(4_000_000))"
USUAL_SECONDS = 0.25
"""That a bare Python 3.11 takes for that on an idle core of 2024, its start included."""
COMPILATION = Path(__file__).with_name("compilation.py")
USUAL_COMPILING_SECONDS = 0.5
"""That two of those take at once on the two CPUs of such a host, where a first start of the daemon takes 0.8 to
1.1 s. Beside others' work a compiler, which reads much memory, becomes slow before an interpreter's loop does."""
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


def slowness() -> float:
    """1.0, or how many times longer a bare interpreter takes now for USUAL_SECONDS of work."""
    return max(median(_interpret() for _ in range(TURNS)) / USUAL_SECONDS, 1.0)


def within(seconds: float, limit: float) -> bool:
    """Whether something took no longer than ``limit``, or would have taken no longer on an ordinary host. Asked when
    the load of the test itself is gone: else that would count for the host's."""
    return seconds <= limit or seconds <= limit * slowness()


def _interpret() -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", WORK], check=True)
    return time.monotonic() - begun


def compiling_slowness(seconds: Sequence[float]) -> float:
    """1.0, or how many times the usual those of ``compiling_seconds`` are that were taken beside what is judged."""
    return max(median(seconds) / USUAL_COMPILING_SECONDS, 1.0)


def compiling_seconds() -> float:
    """That BCC takes now for a program which has nothing to do with the daemon's, two of them at once, as a first
    start compiles in two halves. Raises OSError, CalledProcessError where there is no BCC."""
    begun = time.monotonic()
    both = [subprocess.Popen([sys.executable, str(COMPILATION)], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [one.communicate()[1] for one in both]
    took = time.monotonic() - begun
    for one, error in zip(both, told, strict=True):
        if one.returncode:
            raise subprocess.CalledProcessError(one.returncode, one.args, stderr=error)
    return took
