"""Sentences as data: a message is an id and its parameters; its text is made where it is shown.

Code decides by ids and parameters, never by text. ``template`` declares a sentence once, beside the code that makes it;
Babel extracts the declarations (keyword ``template:1c,2``: the id is the context, the English text the msgid).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from string import Formatter
from typing import Any, TypeAlias

from trainprobe.model import amounts
from trainprobe.model.dataclass import dataclass

Value: TypeAlias = "str | int | float | Message | Sequence[str | int | Message] | None"
"""A parameter. None and an empty list are shown as nothing; a list's items are joined by the place's format
specification: ``{names:, }``."""
AMOUNTS: Mapping[str, Callable[[float], str]] = {
    "seconds": amounts.seconds,
    "size": amounts.size,
    "percent": amounts.percent,
    "bytes": amounts.three_digits,
    "span": amounts.span,
    "MB": lambda value: f"{value / 1e6:.0f} MB",
    "MB/s": lambda value: f"{value / 1e6:.1f} MB/s",
    "MHz": lambda value: f"{value / 1e6:.0f} MHz",
}
"""Format specifications beside Python's own: ``{wait:seconds}`` is "1.20 s", ``{file:size}`` "246 MB". One with a bar
says both numbers of a word: ``{files:# file|# files}`` is "1 file" or "3 files"."""
Catalogue: TypeAlias = "Callable[[str], str | None]"
"""The text of a template in one language, by its id; None: it has none."""


class Unrenderable(ValueError):
    """A message cannot be rendered: its id is unknown, or its parameters are not those of the text."""


@dataclass(frozen=True, slots=True)
class Template:
    """An English sentence with named places; a call with their values returns a message."""

    id: str
    text: str

    def __call__(self, **params: Value) -> Message:
        """Raises TypeError where the names of the values are not those of the places."""
        if params.keys() != places(self.text):
            raise TypeError(f"{self.id} takes {sorted(places(self.text))}, given {sorted(params)}")
        return Message(self.id, params) if params else _constant(self.id)


TEMPLATES: dict[str, Template] = {}
"""By id: every template that an imported module has declared."""


def template(id: str, text: str) -> Template:  # noqa: A002  the word that reports use
    """Declare a sentence. Raises ValueError where another sentence has the id."""
    known = TEMPLATES.setdefault(id, Template(id, text))
    if known.text != text:
        raise ValueError(f"two sentences are called {id}")
    return known


class _Kept:
    """A place for the text that is made of a message."""

    __slots__ = ("_english",)
    _english: str


@dataclass(frozen=True, slots=True)
class Message(_Kept):
    """A sentence before it has a language. ``params`` hold raw values in SI units, and messages for its parts."""

    id: str
    params: Mapping[str, Any] = field(default_factory=dict)  # Value; Any for the reader of JSON

    def __str__(self) -> str:
        """The English text; the id where there is none (of another version)."""
        return text_of(self, self.id)


def alike(value: object) -> object:
    """A key that is equal for messages that hardly differ: numbers count by their first three digits, those below one
    (shares are shown as 12.3 %) by three after the point."""
    if isinstance(value, Message):
        return value.id, tuple(alike(one) for one in value.params.values())
    if isinstance(value, (list, tuple)):
        return tuple(map(alike, value))
    if not isinstance(value, float):
        return value
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.3g}"


@cache
def _constant(id: str) -> Message:  # noqa: A002
    return Message(id)


def english(id: str) -> str | None:  # noqa: A002
    """The catalogue of the language in which templates are written."""
    known = TEMPLATES.get(id)
    return None if known is None else known.text


def text_of(message: Message, otherwise: str, catalogue: Catalogue = english) -> str:
    try:
        return render(message, catalogue)
    except Unrenderable:
        return otherwise


def counted(value: object, spec: str) -> str:
    """The side of the bar for one, or for several; ``#`` is the number."""
    one, _, several = spec.partition("|")
    return (one if value == 1 else several).replace("#", str(value))


def texts(messages: Sequence[Message]) -> list[str]:
    return [str(message) for message in messages]


def render(message: Message, catalogue: Catalogue) -> str:
    """The message's text in the catalogue's language. Raises Unrenderable."""
    if catalogue is not english:
        return _rendered(message, catalogue)
    try:
        return message._english
    except AttributeError:
        text = _rendered(message, english)
        object.__setattr__(message, "_english", text)
        return text


def _rendered(message: Message, catalogue: Catalogue) -> str:
    text = catalogue(message.id)
    if text is None:
        raise Unrenderable(message.id)
    try:
        out = []
        for literal, name, spec in _parts(text):
            out.append(literal)
            if name is not None:
                out.append(_shown(message.params[name], spec, catalogue))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unrenderable(f"{message.id}: {error}") from None
    return "".join(out)


@cache
def places(text: str) -> frozenset[str]:
    return frozenset(name for _, name, _ in _parts(text) if name)


@cache
def _parts(text: str) -> tuple[tuple[str, str | None, str], ...]:
    """A template as (literal text, name of the place that follows, its format specification)."""
    return tuple((literal, name, spec or "") for literal, name, spec, _ in Formatter().parse(text))


def _shown(value: Any, spec: str, catalogue: Catalogue) -> str:
    """A parameter as its place asks for it."""
    if isinstance(value, str) and not spec:
        return value
    if value is None:
        return ""
    if "|" in spec:
        return counted(value, spec)
    if isinstance(value, Message):
        return render(value, catalogue)
    if isinstance(value, (list, tuple)):
        return spec.join(_shown(one, "", catalogue) for one in value)
    amount = AMOUNTS.get(spec)
    return amount(value) if amount is not None else format(value, spec)
