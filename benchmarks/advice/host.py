"""What a too small memory needs: a cgroup with a limit, and swap in compressed memory. All of it is given back."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
ZRAM = Path("/sys/block/zram0")
SWAP_BYTES = 2 << 30


class CannotHere(Exception):
    """This host cannot make memory too small; the text says why."""


@contextlib.contextmanager
def limited(limit: int) -> Iterator[Path]:
    """A cgroup with so many bytes. Raises CannotHere."""
    old = V1.is_dir()
    made = (V1 if old else V2) / f"trainprobe-advice-{os.getpid()}"
    try:
        made.mkdir()
        (made / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit))
    except OSError as error:
        raise CannotHere(f"no memory cgroup can be made: {error}") from error
    try:
        yield made
    finally:
        for _ in range(50):  # the kernel lets go of it when the last process has been waited for
            with contextlib.suppress(OSError):
                made.rmdir()
                break
            time.sleep(0.1)


@contextlib.contextmanager
def swap() -> Iterator[None]:
    """Swap, where this host has none. Raises CannotHere."""
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        yield
        return
    if not ZRAM.exists():
        raise CannotHere("no swap and no zram device (modprobe zram)")
    try:
        (ZRAM / "disksize").write_text(str(SWAP_BYTES))
        subprocess.run(["mkswap", "/dev/zram0"], check=True, capture_output=True)
        subprocess.run(["swapon", "/dev/zram0"], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["swapoff", "/dev/zram0"], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            (ZRAM / "reset").write_text("1")
