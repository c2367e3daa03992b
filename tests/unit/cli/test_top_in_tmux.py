"""`trainprobe top` on a real terminal: what tmux has on its screen is what a person sees."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.cli.moving import moving
from trainprobe.runtime.publishing import rundir
from trainprobe.wire import report as wire

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux here: apt-get install tmux")
PATIENCE = 60.0  # seconds; a busy machine is slow to start a Python


class Screen:
    """A tmux server of its own, with `top` in its one window."""

    def __init__(self, directory: Path, size: tuple[int, int], **environment: str) -> None:
        self.socket = directory / "tmux"
        words = {"LC_ALL": "C.UTF-8", "TERM": "screen-256color", **environment}
        # Curses believes LINES and COLUMNS, which readline sets in a worker of pytest-xdist, more than the terminal.
        env = "-u LINES -u COLUMNS " + " ".join(f"{name}={value}" for name, value in words.items())
        top = f"{sys.executable} -m trainprobe.cli top --directory {directory}"
        self("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]),
             f"echo before; env {env} {top}; echo code $?; sleep 60")  # fmt: skip

    def __call__(self, *words: str) -> str:
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            ["tmux", "-S", str(self.socket), *words], capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout

    def keys(self, *keys: str) -> None:
        self("send-keys", *keys)

    def until(self, right: Callable[[list[str]], bool], *look: str) -> list[str]:
        """The lines on the screen, as soon as they are right."""
        end = time.monotonic() + PATIENCE
        while not right(lines := self("capture-pane", "-p", *look).splitlines()):
            assert time.monotonic() < end, "\n".join(lines)
            time.sleep(0.1)
        return lines


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    now = time.time()
    report = moving(8.0, 50, now - 8.0)
    rundir.write(str(tmp_path / "report.json"), wire.encode(report).encode(), mode=0o640)
    started: list[Screen] = []

    def begin(size: tuple[int, int] = (80, 24), **environment: str) -> Screen:
        started.append(Screen(tmp_path, size, **environment))
        return started[-1]

    yield begin
    for screen in started:
        screen("kill-server")


def test_fifty_runs_at_80x24_chosen_opened_and_left(start: Callable[..., Screen]) -> None:
    screen = start()
    running = "trainprobe · gpu-7 · 50 running"
    lines = screen.until(lambda lines: lines[0].startswith(running) and "quit" in lines[-1])
    assert len(lines) == 24
    screen.keys("s")
    screen.until(
        lambda lines: any(line.startswith("  train_0") and "STALL 3.00 s data_storage" in line for line in lines)
    )
    screen.keys("Home")
    screen.until(
        lambda lines: (
            any(line.startswith("> train_0") for line in lines)
            and any("__getitem__ (dataset.py:88)" in line for line in lines)
        )
    )
    screen.keys("Enter")
    screen.until(lambda lines: "python train.py" in lines[0] and any("Where the time went" in line for line in lines))
    screen.keys("Escape")
    screen.until(lambda lines: lines[0].startswith("trainprobe"))
    screen.keys("q")
    screen.until(lambda lines: lines[:2] == ["before", "code 0"])  # what was there before comes back


def test_a_new_size_is_drawn_anew(start: Callable[..., Screen]) -> None:
    screen = start()
    screen.until(lambda lines: "quit" in lines[-1])
    screen("resize-window", "-x", "120", "-y", "40")
    lines = screen.until(lambda lines: len(lines) == 40 and "quit" in lines[-1])
    assert any("train_49.py-00000031" in line for line in lines)
    screen("resize-window", "-x", "50", "-y", "12")
    lines = screen.until(lambda lines: len(lines) == 12 and lines[-1].startswith("↑↓ choose"))
    assert all(len(line) <= 50 for line in lines)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "vt100"}])
def test_without_colour(start: Callable[..., Screen], environment: dict[str, str]) -> None:
    screen = start(**environment)
    lines = screen.until(lambda lines: "quit" in lines[-1], "-e")
    assert not re.search("\x1b\\[[34][0-7]m", "\n".join(lines))


def test_colour_marks_the_stall(start: Callable[..., Screen]) -> None:
    screen = start()
    lines = screen.until(lambda lines: any("STALLED now" in line for line in lines), "-e")
    assert "\x1b[31m" in next(line for line in lines if "STALLED" in line).replace("\x1b[1m", "")


def test_an_unknown_terminal_is_said(start: Callable[..., Screen]) -> None:
    screen = start(TERM="never-heard-of")
    screen.until(lambda lines: any("top --once" in line for line in lines))


def test_a_signal_gives_the_terminal_back(start: Callable[..., Screen]) -> None:
    screen = start()
    screen.until(lambda lines: "quit" in lines[-1])
    pane = int(screen("display-message", "-p", "#{pane_pid}"))
    children = Path(f"/proc/{pane}/task/{pane}/children").read_text().split()
    os.kill(int(children[0]), 15)
    screen.until(lambda lines: lines[:2] == ["before", "code 143"])
