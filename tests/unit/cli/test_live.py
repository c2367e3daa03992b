"""The status line, on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator

import pytest

from trainprobe.cli.live import StatusLine


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    os.set_blocking(outer, False)
    yield outer, inner
    os.close(outer)
    os.close(inner)


def written(outer: int) -> str:
    try:
        return os.read(outer, 65536).decode()
    except BlockingIOError:
        return ""


def line(inner: int, monkeypatch: pytest.MonkeyPatch, *, foreground: bool = True) -> StatusLine:
    made = StatusLine(inner, {"TERM": "xterm"})
    monkeypatch.setattr(made, "_in_foreground", lambda: foreground)
    return made


def test_it_is_drawn_in_the_last_row_and_taken_away(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    status = line(terminal[1], monkeypatch)
    status.show("step 1 " + "x" * 100)
    drawn = written(terminal[0])
    assert "\x1b[1;23r" in drawn, "the scrolling area ends above it"
    assert "\x1b[24;1H" in drawn
    assert "x" * 33 in drawn
    assert "x" * 34 not in drawn, "it is cut to the width"
    status.show("step 2")
    assert "\x1b[1;23r" not in written(terminal[0]), "once is enough"
    status.clear()
    assert "\x1b[r" in written(terminal[0])
    status.clear()
    assert written(terminal[0]) == ""


def test_chinese_is_cut_to_the_width_too(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    line(terminal[1], monkeypatch).show("停" * 100)
    drawn = written(terminal[0])
    assert "停" * 20 in drawn
    assert "停" * 21 not in drawn


def test_nothing_is_drawn_from_the_background(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    line(terminal[1], monkeypatch, foreground=False).show("step 1")
    assert written(terminal[0]) == ""


@pytest.mark.parametrize("environment", [{}, {"TERM": "dumb"}])
def test_nothing_is_drawn_where_it_cannot_be(terminal: tuple[int, int], environment: dict[str, str]) -> None:
    status = StatusLine(terminal[1], environment)
    assert not status.possible
    status.show("step 1")
    status.clear()
    assert written(terminal[0]) == ""


def test_nothing_is_drawn_into_a_pipe() -> None:
    reading, writing = os.pipe()
    assert not StatusLine(writing, {"TERM": "xterm"}).possible
    os.close(reading)
    os.close(writing)
