"""What the page says: the texts in its scripts, as translators find them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_STRING = r'"(?:[^"\\]|\\.)*"'
_CALL = re.compile(r"\b(?:say|word)\(")
_CHOSEN = re.compile(rf"\s*(?:[^\"(),{{}}]*\?\s*)?({_STRING})(?:\s*:\s*({_STRING}))?")
_COUNTED = re.compile(rf"\bmany\([^\"]*?({_STRING}),\s*({_STRING})\)")


def said_by(script: str) -> set[str]:
    """Each text that ``say``, ``word`` or ``many`` is called with, both sides of a choice."""
    return {text for _, text in lines_of_script(script)}


def lines_of_script(script: str) -> Iterator[tuple[int, str]]:
    """The same with their lines."""
    for call in _CALL.finditer(script):
        found = _CHOSEN.match(script, call.end())
        for text in found.groups() if found else ():
            if text is not None:
                yield script.count("\n", 0, call.start()) + 1, json.loads(text)
    for call in _COUNTED.finditer(script):
        for text in call.groups():
            yield script.count("\n", 0, call.start()) + 1, json.loads(text)
