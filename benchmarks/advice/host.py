"""Swap in compressed memory, for what a too small memory needs. It is given back."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.stalls.host import CannotHere

ZRAM = Path("/sys/block/zram0")
SWAP_BYTES = 2 << 30
LOCK = Path("/run/lock/trainprobe-benchmarks-swap")


def has_swap() -> bool:
    return len(Path("/proc/swaps").read_text().splitlines()) > 1


@contextlib.contextmanager
def swap(size: int = SWAP_BYTES) -> Iterator[None]:
    """Swap, where this host has none. Raises CannotHere. Only one program at a time has it; the others wait."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if has_swap():
            yield
            return
        if not ZRAM.exists():
            raise CannotHere("no swap and no zram device (modprobe zram)")
        with _made(size):
            yield


@contextlib.contextmanager
def _made(size: int) -> Iterator[None]:
    try:
        (ZRAM / "disksize").write_text(str(size))
        subprocess.run(["mkswap", "/dev/zram0"], check=True, capture_output=True)
        subprocess.run(["swapon", "/dev/zram0"], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["swapoff", "/dev/zram0"], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            (ZRAM / "reset").write_text("1")
