"""Lines over a pipe between the two halves of `run`: JSON, one message a line."""

from __future__ import annotations

import os

LIMIT = 64 << 20  # bytes of one line: the largest ones are frames of a recording, of some 100 KB
AT_ONCE = 1 << 20  # bytes that are taken before what they say is dealt with


class LineReader:
    """Takes what has come, some of it at a time, without waiting for more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)
        self._rest = bytearray()
        self.ended = False

    def read(self) -> list[bytes]:
        """Lines that are complete now, without their newlines; sets ``ended`` at the end of the pipe."""
        lines, taken = [], 0
        while not self.ended and taken < AT_ONCE:
            try:
                part = os.read(self.fd, AT_ONCE)
            except BlockingIOError:
                break
            taken += len(part)
            rest, *begun = part.split(b"\n")
            self._rest += rest
            for begin in begun:
                lines.append(bytes(self._rest))
                self._rest = bytearray(begin)
            self.ended = not part or len(self._rest) > LIMIT
        return lines


def write(fd: int, line: bytes) -> None:
    """The whole line; waits while the pipe is full. Raises OSError when nobody reads any more."""
    view = memoryview(line + b"\n")
    while view:
        view = view[os.write(fd, view) :]
