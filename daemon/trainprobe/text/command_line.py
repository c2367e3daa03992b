"""Command lines in the reader's language: what ``--help`` prints, and argparse's own texts and errors.

Descriptions are translated by paragraph. What has no translation, as a text of a later argparse, stays English.
"""

from __future__ import annotations

import argparse
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import takewhile

from trainprobe.text.catalogue import LANGUAGES, catalogue
from trainprobe.text.saying import Saying, filled, word

_texts: ContextVar[Mapping[str, str] | None] = ContextVar("texts", default=None)
_BREAKS = re.compile("(?<= )|(?<=[^ -~])|(?=[^ -~])")
_NO_START = "，。；：！？、）"  # never at the beginning of a line
OWN = (
    word("usage: "),
    word("%(heading)s:"),
    word("positional arguments"),
    word("options"),
    word("show this help message and exit"),
    word("show program's version number and exit"),
    word("%(prog)s: error: %(message)s\n"),
    word("argument %(argument_name)s: %(message)s"),
    word("the following arguments are required: %s"),
    word("unrecognized arguments: %s"),
    word("invalid choice: %(value)r (choose from %(choices)s)"),
    word("invalid choice: %(value)r, maybe you meant %(closest)r? (choose from %(choices)s)"),
    word("unknown parser %(parser_name)r (choices: %(choices)s)"),
    word("invalid %(type)s value: %(value)r"),
    word("ambiguous option: %(option)s could match %(matches)s"),
    word("ignored explicit argument %r"),
    word("expected one argument"),
    word("expected %s argument"),
    word("expected %s arguments"),
)
"""What a reader can meet of argparse, of Python 3.10 to 3.14."""


def say(text: str) -> str:
    return (_texts.get() or {}).get(text, text)


def invalid(what: Saying) -> argparse.ArgumentTypeError:
    """The error of an option's ``type``."""
    return argparse.ArgumentTypeError(filled(say(what.template), what.values))


def asked_language(arguments: Sequence[str]) -> str | None:
    """The value of ``--lang``, before the whole command line is judged; None without a valid one."""
    early = argparse.ArgumentParser(add_help=False, exit_on_error=False, formatter_class=partial(HelpText, width=80))
    early.add_argument("--lang", choices=LANGUAGES)
    try:
        found, _ = early.parse_known_args([*takewhile(lambda one: one != "--", arguments)])
    except argparse.ArgumentError:
        return None
    language: str | None = found.lang
    return language


@contextmanager
def spoken_in(language: str) -> Iterator[None]:
    """What argparse prints within is in this language."""
    names = [] if language == "en" else [name for name in ("_", "ngettext") if hasattr(argparse, name)]
    kept = {name: getattr(argparse, name) for name in names}
    token = _texts.set(None if language == "en" else catalogue(language).programs)
    try:
        for name in names:
            setattr(argparse, name, say if name == "_" else _counted)
        yield
    finally:
        for name, function in kept.items():
            setattr(argparse, name, function)
        _texts.reset(token)


def _counted(one: str, several: str, number: int) -> str:
    return say(one if number == 1 else several)


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions."""

    def add_text(self, text: str | None) -> None:
        super().add_text(text and "\n\n".join(map(say, text.strip().split("\n\n"))))

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and say(heading))

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help and say(action.help)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """``width`` is of terminal cells; Chinese may be broken beside each character."""
        if text.isascii():
            return super()._split_lines(text, width)
        lines = [""]
        for piece in _BREAKS.split(text):
            if _width(lines[-1] + piece.rstrip()) <= width or piece in _NO_START:
                lines[-1] += piece
            else:
                lines.append(piece)
        return [line.rstrip() for line in lines]


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
