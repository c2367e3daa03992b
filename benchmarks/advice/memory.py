"""What a process and its descendants take, read from outside while they run: PSS, swap, and all of /dev/shm."""

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
        self._shared_before = shared()
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
            own = sum(map(_private, _family(self._pid)))
            self.bytes = max(self.bytes, own + shared() - self._shared_before)


def shared() -> int:
    """Bytes of /dev/shm in use, by files without a name too."""
    space = os.statvfs("/dev/shm")
    return (space.f_blocks - space.f_bfree) * space.f_frsize


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
