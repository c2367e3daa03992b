"""The ways in which a training's log costs it time. Each works for about ``seconds``, as long as that takes."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Callable


def fsync_lines(directory: str, seconds: float) -> None:
    """A line, a flush and an fsync, again and again: a log handler that wants to lose nothing."""
    end = time.monotonic() + seconds
    with open(os.path.join(directory, "train.log"), "a", encoding="utf-8") as file:
        number = 0
        while time.monotonic() < end:
            file.write(f"metric {number} {number * 0.5:.6f} of this and that layer\n")
            file.flush()
            os.fsync(file.fileno())
            number += 1


def open_append_close(directory: str, seconds: float) -> None:
    """One open, one short append, one close per metric, over many files."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        with open(os.path.join(directory, f"metric_{number % 40}.log"), "a", encoding="utf-8") as file:
            file.write(f"{number} {number * 0.25:.6f}\n")
        number += 1


def event_file(directory: str, seconds: float) -> None:
    """A TensorBoard event file that the training's own thread appends to and flushes."""
    end = time.monotonic() + seconds
    record = b"\x09" + b"loss" * 8
    with open(os.path.join(directory, "events.out.tfevents.1700000000.host.1.0"), "ab") as file:
        while time.monotonic() < end:
            file.write(struct.pack("<Q", len(record)) + b"\0\0\0\0" + record + b"\0\0\0\0")
            file.flush()
            os.fsync(file.fileno())


def print_blob(_directory: str, size: float) -> None:
    """``size`` bytes to stdout: cheap, unless whoever reads the pipe is slow."""
    line = "x" * 99 + "\n"
    sys.stdout.write(line * (int(size) // len(line)))
    sys.stdout.flush()


LOGGERS: dict[str, Callable[[str, float], None]] = {
    logger.__name__: logger for logger in (fsync_lines, open_append_close, event_file, print_blob)
}
