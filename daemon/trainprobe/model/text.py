"""Enumerations whose members are their own text (StrEnum needs Python 3.11; 3.10 is supported), and strangers' text."""

from __future__ import annotations

import re
from enum import Enum

LONGEST_PATH = 512
"""Characters. A process may have longer paths; trainings do not."""
# views/assets/format.js has the same set.
_STEERING = re.compile("[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


class StrEnum(str, Enum):
    """A member is its value wherever text is wanted: f-strings, JSON, labels."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


def end_of(path: str) -> str:
    """A path; of one that is longer than LONGEST_PATH the end, which has the file's name."""
    return path if len(path) <= LONGEST_PATH else "…" + path[1 - LONGEST_PATH :]


def spelt_out(json: str) -> str:
    """The same JSON with an escape for each character that steers a display: reading directions, invisible letters."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", json)
