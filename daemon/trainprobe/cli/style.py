"""How text may look where it goes: width, colour, characters; and names of strangers made inert."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, tzinfo
from typing import TextIO

from trainprobe.cli import cells
from trainprobe.cli.terminal import WIDEST, Terminal
from trainprobe.model.cause import State
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message
from trainprobe.text.render import Speaker
from trainprobe.text.saying import word
from trainprobe.views.palette import STATES

ROOM = 20  # columns that text beside something needs
UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|us|min|h|%|B|kB|MB|GB|TB|it/s)\b|%)")
GLUE = "\u00a0"
WORD, IN_PATH, BREAK = re.compile(r"\S+"), re.compile(r"(?<=[^\s/])/"), "/ \u2060"
"""A path that is longer than a line goes on behind one of its slashes."""
PHASES = (word("startup"), word("compile"), word("evaluation"), word("idle"), word("attaching"), word("shutdown"))
"""Names of phases, which are said in the reader's language."""
CODES = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


@dataclass(frozen=True, slots=True)
class Style:
    """The place that text is made for."""

    width: int = WIDEST
    colour: bool = False
    unicode: bool = True
    zone: tzinfo | None = None  # None: the local one
    speaker: Speaker = field(default_factory=Speaker)

    @classmethod
    def of(cls, stream: TextIO | None, environment: Mapping[str, str], language: str | None = None) -> Style:
        """What fits there; ``language``: the one that was asked for."""
        return cls.on(Terminal.of(stream, environment, language))

    @classmethod
    def on(cls, place: Terminal, zone: tzinfo | None = None) -> Style:
        return cls(place.width, place.colour, place.unicode, zone, Speaker(place.language))

    def say(self, template: str, **values: object) -> str:
        """What the program says, in the reader's language: an English template and its values."""
        return self.speaker.say(template, **values)

    def counted(self, number: int, one: str, several: str) -> str:
        """The number and its word, in the reader's language: 1 stall, 3 stalls."""
        return self.say(one if number == 1 else several, number=number)

    def cause(self, key: str) -> str:
        """A cause in a sentence: its key, which metrics have too; in other languages its title, with the key."""
        title = self.speaker.message(Message(f"cause.{key}"), key)
        return (
            key if self.speaker.language == "en" or title == key else self.say("{title} ({key})", title=title, key=key)
        )

    def state(self, key: str) -> str:
        """A state of the training thread in a sentence: its key; in other languages its title."""
        known = self.speaker.language != "en" and key in STATES
        return self.say(STATES[State(key)].title) if known else key

    def label(self, text: str) -> str:
        """What stands before a text, in the reader's language already, with its colon."""
        return self.say("{label}: ", label=text)

    def listed(self, parts: Iterable[str]) -> str:
        """The parts of an enumeration."""
        return self.say(", ").join(parts)

    def paint(self, text: str, *looks: str) -> str:
        """``text`` in these looks, where there is colour."""
        if not self.colour or not looks or not text:
            return text
        return f"\x1b[{';'.join(CODES[look] for look in looks)}m{text}\x1b[0m"

    def wrapped(self, text: str, first: str = "", rest: str | None = None) -> list[str]:
        """``text`` in lines of the width; ``first`` and ``rest`` stand before the first and the further ones."""
        rest = " " * cells.width(first) if rest is None else rest
        if self.width - max(cells.width(first), len(rest)) < ROOM:  # too narrow for a column: below instead of beside
            return [*self.wrapped(first.strip()), *self.wrapped(text, "    ")] if first.strip() else [text]
        if cells.width(text) != len(text) or cells.width(first) != len(first):
            return cells.wrap(text, self.width, first, rest)
        glued, room = UNIT.sub(GLUE, text), self.width - len(rest)  # a number and its unit stay on one line
        glued = WORD.sub(lambda one: IN_PATH.sub(BREAK, one[0]) if len(one[0]) > room else one[0], glued)
        lines = textwrap.wrap(glued, self.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
        return [_unglued(line) for line in lines] or [first.rstrip()]

    def painted(self, text: str, *looks: str, first: str = "") -> list[str]:
        """The same in these looks."""
        return [self.paint(line, *looks) for line in self.wrapped(text, first)]

    def bar(self, share: float, room: int) -> str:
        """A share of 1 as a bar of at most ``room`` characters; what is there at all is at least one."""
        full = round(max(0.0, min(1.0, share)) * room)
        return ("█" if self.unicode else "#") * max(full, 1 if share > 0 else 0)

    def clock(self, seconds: float, *, date: bool = False) -> str:
        """UNIX seconds as the time of day where the reader is."""
        try:
            moment = datetime.fromtimestamp(seconds, self.zone)
        except (OverflowError, OSError, ValueError):
            return "?"
        return moment.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def inert(text: str, limit: int = 400) -> str:
    """A stranger's text that can do nothing to a terminal: escapes instead of control and bidirectional characters."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text[:limit]
    )
    return shown + ("…" if len(text) > limit else "")


def _unglued(line: str) -> str:
    return line.replace(BREAK, "/").replace(BREAK[2:], "").replace(GLUE, " ")
