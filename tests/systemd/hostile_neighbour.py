"""A user who would like to disturb: odd names everywhere, a libtorch that is none, many threads and short lives.

Usage: hostile_neighbour.py DIRECTORY SECONDS SEED
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
from pathlib import Path

EVIL = '\n"}\\<script>alert(1)</script>\x1b[2J\r\u202e'
LAST_BYTES = b"\xff\xfe"
THREADS, CHILDREN = 300, 20


def library(chance: random.Random) -> bytes:
    """An ELF header whose sections claim to be anywhere, with the names that are looked for."""
    names = b"\0_ZN5torch8autograd8profiler25record_function_enter_newE\0_ZN5torch8autograd6Engine7executeE\0"
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 128, 0, 64, 56, 1, 64, 4, 2)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 62, 1 << 62, 1)
    places = [(chance.choice((2, 3, 11)), chance.choice((0, 64, 4096, 1 << 40))) for _ in range(4)]
    sections = [
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, chance.choice((24, 1 << 20)), 1, 0, 8, 24) for kind, at in places
    ]
    return (header + segment).ljust(128, b"\0") + b"".join(sections) + names + chance.randbytes(1 << 20)


def main() -> None:
    place, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    chance = random.Random(sys.argv[3])
    folder = os.fsencode(place / str(os.getpid())) + b"-" + os.fsencode(EVIL).replace(b"/", b"|") + LAST_BYTES
    os.mkdir(folder)
    os.chdir(folder)
    path = os.path.join(folder, b"libtorch_cpu.so")
    with open(path, "wb") as file:
        file.write(library(chance))
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    ctypes.CDLL(None).prctl(15, b'pt\n"\x1b[31m\xff', 0, 0, 0)  # PR_SET_NAME
    threading.stack_size(64 << 10)
    for _ in range(THREADS):
        threading.Thread(target=time.sleep, args=(max(0, until - time.monotonic()),), daemon=True).start()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while time.monotonic() < until:
        for _ in range(CHILDREN):
            if os.fork() == 0:
                os.execve("/bin/true", [b"python\n" + LAST_BYTES, os.fsencode(EVIL)], {b"RANK": b"\n\xff" * 500})
        time.sleep(0.5)
    mapped.close()
    os._exit(0)


if __name__ == "__main__":
    main()
