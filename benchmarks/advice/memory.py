"""What a process and its descendants take, read from outside: PSS, swap, and what they hold of /dev/shm."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

EVERY_SECONDS = 1.0


class Peak:
    """``bytes``: the most that was seen so far."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            family = _family(self._pid)
            self.bytes = max(self.bytes, sum(map(_private, family)) + _shared(family))


def _shared(family: list[int]) -> int:
    """Bytes of the files of /dev/shm that they have open, each once."""
    held = {}
    for pid in family:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/dev/shm/"):
                        held[os.stat(entry.path).st_ino] = 512 * os.stat(entry.path).st_blocks
    return sum(held.values())


def _private(pid: int) -> int:
    """PSS without shared memory, and swap; 0 for one that has just ended, and for the observer itself."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if len(command) < 2 or Path(os.fsdecode(command[1])).name != "training.py":
            return 0
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
    return sizes["Pss"] - sizes["Pss_Shmem"] + sizes["SwapPss"]


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
    return found
