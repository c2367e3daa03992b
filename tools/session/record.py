"""A session in a terminal, as it was: ``python tools/session/record.py docs/images/session.svg``.

Runs ``COMMANDS`` in a pseudo terminal, notes when they write what, and draws that as one SVG that moves by itself and
needs nothing else. Pauses are shortened, nothing else is changed. It needs root, and a host that is quiet.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS, ROWS = 100, 32
COMMANDS = (
    "trainprobe run -o run.json -- python train.py",
    "trainprobe report --input run.json | head -19",
    "trainprobe advise run.json | head -8",
)
PAUSE, READ, HOLD, TYPED = 0.6, 2.5, 12.0, 0.05
"""Seconds: the longest pause that is kept; of the picture after a command, and after the last one; of a key."""
CELL, LINE, EDGE = 8.4, 17, 14  # pixels
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff", "1": "#ffffff", "2": "#8b949e"}
CODE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])")
Picture = tuple[str, ...]  # of each row what it shows, as SVG


def record(command: str, folder: Path) -> Iterator[tuple[float, str]]:
    """(seconds since the last one, text) of all that the command writes to its terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        path = f"{folder}/bin:{os.environ['PATH']}"
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8", LC_ALL="C.UTF-8", PATH=path)
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    last = time.monotonic()
    while True:
        select.select([terminal], [], [])
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not data:
            break
        now = time.monotonic()
        yield now - last, data.decode(errors="replace")
        last = now
    os.waitpid(child, 0)


class Screen:
    """Rows of text with colours: what a program needs that writes lines, and one line again and again."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[str, str]]] = [[]]  # (character, colour)
        self.column, self.colour = 0, ""

    def write(self, text: str) -> None:
        """Take in what was written."""
        at = 0
        while at < len(text):
            found = CODE.match(text, at)
            if found:
                self._obey(found[1], found[2])
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _obey(self, values: str, code: str) -> None:
        if code == "m":
            known = [COLOURS[value] for value in values.split(";") if value in COLOURS]
            self.colour = known[-1] if known else ""
        elif code == "K":
            del self.rows[-1][self.column :]

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.rows.append([])
            self.column = 0
        elif character.isprintable():
            row = self.rows[-1]
            row += [(" ", "")] * (self.column - len(row))
            row[self.column : self.column + 1] = [(character, self.colour)]
            self.column += 1

    def picture(self) -> Picture:
        """The last rows, each as the inside of an SVG text."""
        return tuple(_spans(row) for row in self.rows[-ROWS:])


def _spans(row: Sequence[tuple[str, str]]) -> str:
    out, at = [], 0
    while at < len(row):
        end = at
        while end < len(row) and row[end][1] == row[at][1]:
            end += 1
        text = escape("".join(character for character, _ in row[at:end]))
        out.append(f'<tspan fill="{row[at][1]}">{text}</tspan>' if row[at][1] else text)
        at = end
    return "".join(out).rstrip()


def pictures(folder: Path) -> list[tuple[float, Picture]]:
    """(seconds for which it is seen, picture)."""
    made: list[tuple[float, Picture]] = []
    screen = Screen()
    for number, command in enumerate(COMMANDS):
        if number == 1:  # what the first one printed has scrolled by
            screen = Screen()
        screen.write("$ ")
        for key in command:
            screen.write(key)
            made.append((TYPED, screen.picture()))
        made[-1] = (PAUSE, made[-1][1])
        screen.write("\r\n")
        for after, text in record(command, folder):
            if after > 0.02:
                made[-1] = (max(min(after, PAUSE), TYPED), made[-1][1])
            screen.write(text)
            made.append((TYPED, screen.picture()))
        made[-1] = (READ, made[-1][1])
    made[-1] = (HOLD, made[-1][1])
    return made


def drawn(frames: Sequence[tuple[float, Picture]]) -> str:
    """The SVG: each row of text once, each picture a list of its rows, shown while its time is."""
    texts: dict[str, int] = {}
    groups, rules, at, whole = [], [], 0.0, sum(seconds for seconds, _ in frames)
    for number, (seconds, picture) in enumerate(frames):
        uses = "".join(
            f'<use href="#t{texts.setdefault(row, len(texts))}" y="{place * LINE}"/>'
            for place, row in enumerate(picture) if row
        )  # fmt: skip
        begin, end = 100 * at / whole, 100 * (at + seconds) / whole
        rules.append(f"@keyframes f{number}{{0%,{begin:.3f}%{{opacity:0}}{begin + 0.001:.3f}%,{end:.3f}%{{opacity:1}}"
                     f"{min(end + 0.001, 100):.3f}%,100%{{opacity:{int(number == len(frames) - 1)}}}}}")  # fmt: skip
        groups.append(f'<g style="animation-name:f{number}">{uses}</g>')
        at += seconds
    width, height = round(COLUMNS * CELL + 2 * EDGE), ROWS * LINE + 2 * EDGE
    lines = "".join(f'<text id="t{number}" xml:space="preserve">{text}</text>' for text, number in texts.items())
    style = (
        f"text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3}}"
        f"g g{{opacity:0;animation-duration:{whole:.2f}s;animation-iteration-count:infinite;"
        "animation-timing-function:step-end}"
        f"@media (prefers-reduced-motion){{g g{{animation:none}}g g:last-child{{opacity:1}}}}{''.join(rules)}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="A training is run under trainprobe; its report says which cause took how many seconds">'
        f'<style>{style}</style><defs>{lines}</defs><rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
        f'<g transform="translate({EDGE} {EDGE + LINE - 4})">{"".join(groups)}</g></svg>\n'
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--python", default="python", help="an interpreter with PyTorch")
    options = parser.parse_args()
    interpreter = shutil.which(options.python)  # before a "python" of our own is the first on PATH
    if interpreter is None:
        parser.error(f"{options.python}: not found; name an interpreter with PyTorch by --python")
    with tempfile.TemporaryDirectory(prefix="train-") as temporary:
        folder = Path(temporary)
        (folder / "train.py").write_text((HERE / "train.py").read_text())
        (folder / "bin").mkdir()
        for name, program in (("trainprobe", f"{sys.executable} -m trainprobe.cli"), ("python", interpreter)):
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
        frames = pictures(folder)
    options.output.write_text(drawn(frames), encoding="utf-8")
    print(f"{options.output}: {options.output.stat().st_size / 1000:.0f} kB, {len(frames)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
