"""What the place that text goes to can show: all that must be known of it where the text is made elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from trainprobe.model.dataclass import dataclass
from trainprobe.text.catalogue import chosen

WIDEST, NARROWEST, USUAL = 100, 40, 80


def columns(environment: Mapping[str, str]) -> int:
    """As shutil.get_terminal_size, whose module brings the compressors along: half a megabyte of the daemon."""
    told = environment.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or USUAL if sys.__stdout__ else USUAL
    except (OSError, ValueError):
        return USUAL


def is_terminal(stream: TextIO | None) -> bool:
    """None: the stream was closed before we began, as cron and daemons may do it."""
    return stream is not None and stream.isatty()


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal, or a file."""

    width: int = WIDEST
    colour: bool = False
    unicode: bool = True
    language: str = "en"
    utc_offset: int = 0  # seconds, of the reader's clock now

    @classmethod
    def of(cls, stream: TextIO | None, environment: Mapping[str, str], language: str | None = None) -> Terminal:
        """Colour on a terminal (not with NO_COLOR or TERM=dumb), as wide as it is and never wider than 100.

        ``language``: the one that was asked for; the environment's without one, where the stream can show it.
        """
        if stream is None:
            return cls(language=chosen(language, environment))
        terminal = is_terminal(stream)
        width = WIDEST
        if terminal:
            try:
                width = os.get_terminal_size(stream.fileno()).columns or WIDEST
            except OSError:
                pass
        unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
        return cls(
            width=max(NARROWEST, min(width, WIDEST)),
            colour=terminal and not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb",
            unicode=unicode,
            language=chosen(language, environment if unicode else {}),
            utc_offset=time.localtime().tm_gmtoff,
        )
