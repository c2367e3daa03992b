"""The second screen: one run, now at the top and its whole report below."""

from __future__ import annotations

from trainprobe.cli import cells
from trainprobe.cli.screen import overview
from trainprobe.cli.screen.history import RankHistory
from trainprobe.cli.style import Style, inert
from trainprobe.cli.text import worst
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank, Run
from trainprobe.text.saying import word

KEYS = (
    word("↑↓ PgUp PgDn scroll"),
    word("Esc back"),
    word("q quit"),
    word("Tab next rank"),
    word("n p next, previous run"),
)
"""The most important ones first: what does not fit is left out."""


@dataclass(slots=True)
class Position:
    line: int = 0
    rank: str = ""  # the one that is shown; the worst when it is not there


def lines(run: Run, history: RankHistory, position: Position, style: Style, height: int) -> list[str]:
    """The screen, at most ``height`` lines; ``position`` is brought within the text."""
    text = _text(run, history, position, style)
    room = max(1, height - 2)
    position.line = max(0, min(position.line, len(text) - room))
    shown = text[position.line : position.line + room]
    hidden = len(text) - position.line - len(shown)
    title = f"{inert(run.key)} · " + " ".join(inert(word) for word in run.command)
    more = [style.say("{hidden} more lines below", hidden=hidden)] if hidden else []
    head = style.paint(cells.pad(title, style.width), "reverse" if style.colour else "bold")
    foot = style.paint(cells.fitting([*more, *map(style.say, KEYS)], style.width), "dim")
    return [head, *shown, *[""] * (room - len(shown)), foot][:height]


def next_rank(run: Run, name: str) -> str:
    names = [rank.name for rank in run.ranks]
    if not names:
        return ""
    return names[(names.index(name) + 1) % len(names)] if name in names else names[0]


def _text(run: Run, history: RankHistory, position: Position, style: Style) -> list[str]:
    if not run.ranks:
        return ["", *style.wrapped(style.say("No training step was seen."), " ")]
    rank = _chosen(run, position)
    position.rank = rank.name
    return [*overview.body(run, rank, history, style), *overview.further(run, rank, style)]


def _chosen(run: Run, position: Position) -> Rank:
    return next((rank for rank in run.ranks if rank.name == position.rank), worst(run))
