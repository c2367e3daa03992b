"""The status line while a command runs: the terminal's last row, which the command's own output does not reach.

The scrolling area is made one row shorter, as apt does it; nothing is drawn where stderr is no terminal, where the
terminal cannot do it, or while somebody else has the foreground.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainprobe.cli import cells

SAVE, RESTORE, CLEAR = "\x1b7", "\x1b8", "\x1b[K"
SMALLEST = 4  # rows


class StatusLine:
    """Nothing happens before the first ``show``; ``clear`` gives the row back."""

    def __init__(self, fd: int, environment: Mapping[str, str] = os.environ) -> None:
        self._fd = fd
        self._rows = 0
        self.possible = os.isatty(fd) and environment.get("TERM", "dumb") not in ("", "dumb")

    def show(self, text: str) -> None:
        if not self.possible or not self._in_foreground():
            return
        try:
            size = os.get_terminal_size(self._fd)
        except OSError:  # it hung up meanwhile
            return
        if size.lines < SMALLEST:
            return
        text = text[: size.columns]
        while cells.width(text) > size.columns:  # Chinese
            text = text[:-1]
        drawn = ""
        if size.lines != self._rows:
            # ESC D makes room below without leaving the column: the last line of output must not lie under the status.
            drawn = f"\x1bD{SAVE}\x1b[1;{size.lines - 1}r{RESTORE}\x1b[A"
            self._rows = size.lines
        drawn += f"{SAVE}\x1b[{size.lines};1H{CLEAR}\x1b[7m{text}\x1b[0m{RESTORE}"
        self._write(drawn)

    def clear(self) -> None:
        if self._rows:
            self._write(f"{SAVE}\x1b[r\x1b[{self._rows};1H{CLEAR}{RESTORE}")
            self._rows = 0

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def _write(self, text: str) -> None:
        try:
            os.write(self._fd, text.encode("utf-8", "replace"))
        except OSError:
            self.possible = False
