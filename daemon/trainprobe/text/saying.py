"""A sentence that a program prints: its English template and the values in it. It is translated where it is printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from string import Formatter
from typing import Any, TypeAlias

from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, counted


class _Places(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return counted(value, format_spec) if "|" in format_spec else format(value, format_spec)


_PLACES = _Places()


def filled(template: str, values: Mapping[str, object]) -> str:
    """The sentence with its values; a place may have both numbers of a word, as in a report's messages."""
    return _PLACES.vformat(template, (), values) if values else template


@dataclass(frozen=True, slots=True)
class Saying:
    """``str()`` of it is English; ``Style.say(saying.template, **saying.values)`` is the reader's language."""

    template: str
    values: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return filled(self.template, self.values)


class SaidError(Exception):
    """An error that is told to a person: ``str()`` of it is English, ``as_saying`` is for a reader of any language."""

    def __init__(self, what: Saying) -> None:
        super().__init__(str(what))
        self.as_saying = what


Text: TypeAlias = "str | Saying | Message"
"""What a reader is told: a sentence with its values, one that has none, or a report's."""


def saying(template: str, **values: object) -> Saying:
    return Saying(template, values)


def word(text: str) -> str:
    """The text as it is: it goes through a sayer elsewhere, and translators find it here."""
    return text
