"""All trainings of this host as they run: speed, where the last minute went, the stall that goes on and its cause.

examples:
  trainprobe top
  trainprobe top --once           one picture as text, for a pipe or a ticket
  ssh HOST -t trainprobe top      any terminal will do; without colour with NO_COLOR=1

keys:
  ↑ ↓ j k      choose a run                 Enter →    its details
  PgUp PgDn    by pages (Space: down)       Esc ←      back
  Home End     first, last (g G)            h ?        help
  s            those that lose most first   n p        next, previous run (in the details)
  Tab          next rank (in the details)   q          quit

It reads what the daemon publishes; root and the group trainprobe see all runs, others their own."""

from __future__ import annotations

import argparse
import locale
import os
import sys
import time
from dataclasses import field, replace
from pathlib import Path

from trainprobe.cli import FAILED, OK, Refusal, published, show
from trainprobe.cli.screen import details, overview
from trainprobe.cli.screen.history import RankHistory
from trainprobe.cli.screen.terminal import FullScreen, TerminalError
from trainprobe.cli.style import Style
from trainprobe.cli.terminal import is_terminal
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Report, Run
from trainprobe.runtime.loop import clock
from trainprobe.runtime.publishing import rundir
from trainprobe.text.saying import Text, word

PERIOD = 0.5  # seconds between two looks
SMALLEST = (6, 30)  # lines, columns


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="print one picture as text and end")
    parser.add_argument("--run", metavar="ID", default="", help="choose this run; the beginning of its name is enough")
    parser.add_argument("--directory", type=Path, default=rundir.DIRECTORY, help=argparse.SUPPRESS)


def act(args: argparse.Namespace) -> int:
    first = published.read(args.directory)
    view = View(args.directory, first, Style.of(sys.stdout, os.environ, args.lang))
    if args.run:
        run = next((run.key for run in first.runs if run.key.startswith(args.run)), None)
        if run is None:
            raise published.unknown(args.run, first)
        view.choice.run = run
    if args.once:
        show("\n".join(view.lines(*_once_size())).rstrip())
        return OK
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise Refusal(FAILED, word("top needs a terminal"), word("trainprobe top --once, or: trainprobe report"))
    locale.setlocale(locale.LC_ALL, "")  # curses writes in the locale's encoding
    try:
        with FullScreen(colour=view.style.colour) as terminal:
            _watch(view, terminal)
    except TerminalError as error:
        raise Refusal(FAILED, error.as_saying, word("TERM=xterm trainprobe top, or: trainprobe top --once")) from None
    return OK


@dataclass(slots=True)
class View:
    """What is seen, what is chosen, and the figures over time."""

    directory: Path
    report: Report
    style: Style
    history: RankHistory = field(default_factory=RankHistory)
    choice: overview.Choice = field(default_factory=overview.Choice)
    position: details.Position | None = None  # in the details of the chosen run; None: the overview
    help: bool = False
    trouble: str = ""

    def __post_init__(self) -> None:
        self._show(self.report)

    def refresh(self) -> None:
        """The newest report; when there is none, the last one stays, with the reason."""
        try:
            self._show(published.read(self.directory))
            reason: Text = word("its process has ended") if published.has_ended(self.directory) else ""
        except Refusal as gone:
            reason = gone.reason
        since = self.style.clock(self.report.generated)
        gone_since = self.style.say(
            "daemon gone since {since} ({reason})", since=since, reason=self.style.speaker.text(reason)
        )
        self.trouble = gone_since if reason else ""

    def _show(self, report: Report) -> None:
        self.report = self.style.speaker.report(report)
        self.history.add_report(self.report)

    def lines(self, height: int, width: int) -> list[str]:
        if height < SMALLEST[0] or width < SMALLEST[1]:
            return [self.style.say("too small")]
        style = replace(self.style, width=width)
        if self.help:
            return [*_help(self.style)[: height - 1], self.style.say("any key: back")]
        run = self.run()
        if self.position is not None and run is not None:
            return details.lines(run, self.history, self.position, style, height)
        trouble = self.trouble or overview.silence(self.report.age(clock.now()), style)
        return overview.lines(self.report, self.history, self.choice, style, height, trouble)

    def run(self) -> Run | None:
        return next((run for run in self.report.runs if run.key == self.choice.run), None)

    def press(self, key: str, page: int) -> bool:
        """What a key does; False: to quit. ``page``: lines of a page."""
        if self.help:
            self.help = False
        elif key == "q":
            return False
        elif key in ("h", "?"):
            self.help = True
        elif self.position is not None:
            self._press_in_details(key, page, self.position)
        else:
            self._press_in_list(key, page)
        return True

    def _press_in_list(self, key: str, page: int) -> None:
        if key == "enter" and self.run() is not None:
            self.position = details.Position()
        elif key == "s":
            self.choice.by_loss = not self.choice.by_loss
        else:
            self._choose(_move(key, page))

    def _press_in_details(self, key: str, page: int, position: details.Position) -> None:
        if key == "back":
            self.position = None
        elif key in ("n", "p"):
            self._choose(1 if key == "n" else -1)
            self.position = details.Position()
        elif key == "tab" and (run := self.run()) is not None:
            self.position = details.Position(rank=details.next_rank(run, position.rank))
        else:
            position.line = max(0, position.line + _move(key, page))

    def _choose(self, by: int) -> None:
        rows = self.choice.rows
        if by and self.choice.run in rows:
            self.choice.run = rows[max(0, min(len(rows) - 1, rows.index(self.choice.run) + by))]


def _help(style: Style) -> list[str]:
    meanings = (
        ("↑ ↓ j k", style.say("choose a run; scroll in the details")),
        ("PgUp PgDn", style.say("by pages")),
        ("Enter →", style.say("details of the run")),
        ("Esc ←", style.say("back to all runs")),
        ("s", style.say("those that lose most first, or the newest")),
        ("n p", style.say("next, previous run (in the details)")),
        ("Tab", style.say("next rank (in the details)")),
        ("q", style.say("quit")),
        (style.say("LOST 1m"), style.say("share of the last minute that was lost; of an ended run, of all its time")),
    )
    return [f"  {keys:<12} {meaning}" for keys, meaning in meanings]


FAR = 1_000_000


def _move(key: str, page: int) -> int:
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, " ": page}
    return steps.get(key, -FAR if key in ("home", "g") else FAR if key in ("end", "G") else 0)


def _watch(view: View, terminal: FullScreen) -> None:
    due = 0.0
    while True:
        if time.monotonic() >= due:
            view.refresh()
            due = time.monotonic() + PERIOD
        height, width = terminal.size()
        terminal.draw(view.lines(height, width))
        key = terminal.key(due - time.monotonic())
        if key == "redraw":
            terminal.redraw()
        elif key and not view.press(key, max(1, height - 4)):
            return


def _once_size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):  # closed, a file, a test's
        return 24, 80
    return size.lines or 24, size.columns or 80
