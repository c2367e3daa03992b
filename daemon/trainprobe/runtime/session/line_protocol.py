"""Lines over a pipe between the two halves of `run`: JSON, one message a line."""

from __future__ import annotations

import os

LIMIT = 64 << 20  # bytes of one line: a report, or a frame of a recording


class LineReader:
    """Takes what has come, without waiting for more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)
        self._rest = bytearray()
        self.ended = False

    def read(self) -> list[bytes]:
        """The lines that are complete now, without their newlines; sets ``ended`` at the end of the pipe."""
        while not self.ended:
            try:
                part = os.read(self.fd, 1 << 20)
            except BlockingIOError:
                break
            self._rest += part
            self.ended = not part or len(self._rest) > LIMIT
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        return [bytes(line) for line in lines]


def write(fd: int, line: bytes) -> None:
    """The whole line; waits while the pipe is full. Raises OSError when nobody reads any more."""
    view = memoryview(line + b"\n")
    while view:
        view = view[os.write(fd, view) :]
