"""Every frame of a run as a line of JSON, for ``trainprobe replay``."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from trainprobe.model.frame import Frame
from trainprobe.wire import frame as wire
from trainprobe.wire.recording import Header, encode_header


class Recorder:
    """Writes lines to ``write`` (text without its newline) until ``limit`` bytes are reached."""

    def __init__(self, write: Callable[[str], None], header: Header, limit: int | None = None) -> None:
        self._write = write
        self._left = limit
        self._line(encode_header(header))

    def __call__(self, frame: Frame) -> None:
        if self._left is None or self._left > 0:
            self._line(wire.encode(frame))

    def _line(self, line: str) -> None:
        if self._left is not None:
            self._left -= len(line) + 1
        self._write(line)


def to_file(file: IO[str]) -> Callable[[str], None]:
    """A sink for lines: each is in the file when the call returns, so that a kill costs the last one at most."""

    def write(line: str) -> None:
        file.write(line + "\n")
        file.flush()

    return write
