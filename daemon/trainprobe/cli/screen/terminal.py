"""The terminal in full-screen mode: draws lines and returns keys. Curses knows each terminal's ways by terminfo."""

from __future__ import annotations

import curses
import os
import re
import signal
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NoReturn

from trainprobe.cli import cells
from trainprobe.text.saying import SaidError, saying

LOOK = re.compile("\x1b\\[([0-9;]*)m")
COLOURS = {"31": 1, "32": 2, "33": 3, "34": 5, "35": 6, "36": 4}
ESCAPE_MS = 25  # how long to wait whether an Esc is the beginning of a key
KEYS = {
    curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_PPAGE: "page up", curses.KEY_NPAGE: "page down",
    curses.KEY_HOME: "home", curses.KEY_END: "end", curses.KEY_ENTER: "enter", curses.KEY_RIGHT: "enter",
    curses.KEY_LEFT: "back", curses.KEY_BACKSPACE: "back", curses.KEY_RESIZE: "resize",
    10: "enter", 13: "enter", 27: "back", 127: "back", 8: "back", 9: "tab", 12: "redraw",
}  # fmt: skip


class TerminalError(SaidError):
    """The terminal cannot show a full screen; the text says why."""


class FullScreen:
    """Full screen from ``__enter__`` to ``__exit__``; what was on the terminal before comes back."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __enter__(self) -> FullScreen:
        """Raises TerminalError."""
        try:
            self._window = curses.initscr()
        except curses.error as error:
            term = f"TERM={os.environ.get('TERM', '')!r}"
            raise TerminalError(saying("{term} is not known here ({error})", term=term, error=error)) from None
        curses.noecho()
        curses.cbreak()
        if hasattr(curses, "set_escdelay"):
            curses.set_escdelay(ESCAPE_MS)
        self._window.keypad(True)
        self._hide_cursor()
        self._colours = self._begin_colours()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._window.keypad(False)
            curses.nocbreak()
            curses.echo()
            curses.endwin()
        except curses.error:
            pass  # the terminal is gone

    def size(self) -> tuple[int, int]:
        """Lines and columns."""
        rows, columns = self._window.getmaxyx()
        return rows, columns

    def draw(self, lines: Sequence[str]) -> None:
        rows, columns = self.size()
        self._window.erase()
        for row, line in enumerate(lines[:rows]):
            column = 0
            for text, looks in pieces(line):
                # The last cell of the last line cannot be written without scrolling.
                shown = cells.cut(text, columns - column - (1 if row == rows - 1 else 0))
                if shown:
                    self._write(row, column, shown, looks)
                    column += cells.width(shown)
        self._window.refresh()

    def key(self, seconds: float) -> str:
        """The next key by name (one of KEYS, else the character); "" when none came in time."""
        self._window.timeout(max(0, int(seconds * 1000)))
        try:
            code = self._window.getch()
        except KeyboardInterrupt:
            return "q"
        if code == -1:
            return ""
        return KEYS.get(code, chr(code) if 32 <= code < 127 else "other")

    def redraw(self) -> None:
        """All of it anew, whatever other programs wrote over it."""
        self._window.clearok(True)

    def _write(self, row: int, column: int, text: str, looks: Sequence[str]) -> None:
        try:
            self._window.addstr(row, column, text, self._attributes(looks))
        except (curses.error, UnicodeEncodeError):
            pass  # the window has become smaller meanwhile, or its encoding lacks a character

    def _attributes(self, looks: Sequence[str]) -> int:
        attributes = curses.A_NORMAL
        for look in looks:
            if look == "1":
                attributes |= curses.A_BOLD
            elif look == "2":
                attributes |= curses.A_DIM
            elif look == "7":
                attributes |= curses.A_REVERSE
            elif self._colours and look in COLOURS:
                attributes |= curses.color_pair(COLOURS[look])
        return attributes

    def _begin_colours(self) -> bool:
        if not self._colour or not curses.has_colors():
            return False
        curses.start_color()
        curses.use_default_colors()
        for code, pair in COLOURS.items():
            curses.init_pair(pair, int(code) - 30, -1)
        return True

    def _hide_cursor(self) -> None:
        try:
            curses.curs_set(0)
        except curses.error:
            pass  # it cannot


def pieces(line: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A line with colour codes as texts, each with its codes."""
    looks: tuple[str, ...] = ()
    at = 0
    for found in LOOK.finditer(line):
        if found.start() > at:
            yield line[at : found.start()], looks
        codes = tuple(code for code in found[1].split(";") if code not in ("", "0"))
        looks = codes
        at = found.end()
    if at < len(line):
        yield line[at:], looks


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """A signal ends the program by the usual way, which gives the terminal back."""
    del frame
    raise SystemExit(128 + number)
