"""Plain dataclasses <-> JSON values, driven by the type hints of the model: one coder per class, made once.

Reading is strict where a wrong value would mislead (types, non-finite numbers, numbers beyond 64 bits, whole or not)
and lenient where a later version may have added something (unknown fields are ignored, missing ones take their
default). Nothing that is measured is smaller than ``FINEST``: it is read as 0. So a product or a ratio of what was read
is finite.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any

from trainprobe.model.message import Message
from trainprobe.model.settled import SettledRanks
from trainprobe.model.text import spelt_out
from trainprobe.text.saying import Saying, saying

Decoder = Callable[[Any], Any]
_Reader = tuple[Sequence[str], Callable[[Any], Any]]
LIMIT = 1 << 63
FINEST = 1e-18
DEEPEST = 8  # messages within messages
_SURROGATES = re.compile("[\ud800-\udfff]")


class WireError(ValueError):
    """Something that was read is not what the format allows; ``path`` says where ("runs.0.ranks.1.pid")."""

    def __init__(self, what: str | Saying, path: str = "") -> None:
        super().__init__(what, path)
        self.what = what
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else str(self.what)

    @property
    def as_saying(self) -> Saying:
        """The same for a reader of any language."""
        what = self.what if isinstance(self.what, Saying) else saying(self.what)
        return saying("{path}: {why}", path=self.path, why=what) if self.path else what

    def within(self, outer: str | int) -> WireError:
        """The same error seen from one level further out."""
        return WireError(self.what, f"{outer}.{self.path}" if self.path else str(outer))


def loads(text: str | bytes) -> Any:
    """JSON to values; NaN and infinities become None; anything malformed is a WireError."""
    try:
        return json.loads(text, parse_constant=lambda _name: None)
    except json.JSONDecodeError as error:
        why = saying("not JSON: line {line}, column {column}", line=error.lineno, column=error.colno)
        raise WireError(why) from None
    except (ValueError, RecursionError) as error:
        raise WireError(saying("not JSON: {error}", error=error)) from None


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Valid JSON for anything made of dataclasses and plain values: text made valid UTF-8, non-finite numbers null.

    What steers a display is spelt out.
    """
    encoder = _encoder(indent)
    try:
        text = encoder.encode(value)
    except ValueError:  # NaN or infinity somewhere: rare, so the search for it is not in the common path
        text = encoder.encode(finite(value))
    return text if text.isascii() else spelt_out(valid_text(text))


def opened(value: Any, without: Collection[str]) -> str:
    """A dataclass as JSON, without some of its members and without its last brace: others follow."""
    members = {name: getattr(value, name) for name in names(value.__class__) if name not in without}
    return dumps(members).removesuffix("}")


@cache
def _encoder(indent: int | None) -> json.JSONEncoder:
    separators = (",", ":") if indent is None else (",", ": ")
    return json.JSONEncoder(
        default=_members,
        allow_nan=False,
        check_circular=False,
        ensure_ascii=False,
        separators=separators,
        indent=indent,
    )


def valid_text(text: str) -> str:
    """The same text with what is no Unicode (bytes of a foreign file name) replaced by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def decode(kind: Any, value: Any) -> Any:
    """``value`` (from JSON) as an instance of the dataclass ``kind``."""
    return decoder(kind)(value)


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The same dataclass with every text in it changed, keys of objects too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return value.__class__(with_texts(item, change) for item in value)
    if isinstance(value, dict):
        return {change(key): with_texts(item, change) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        made = {name: with_texts(getattr(value, name), change) for name in names(value.__class__)}
        return value.__class__(**made)
    return value


def _members(value: Any) -> Any:
    if value.__class__ is SettledRanks:
        return list(value)
    own, read = _reader(value.__class__)
    return dict(zip(own, read(value)))


@cache
def _reader(kind: Any) -> _Reader:
    return _reading(names(kind))


def _reading(own: Sequence[str]) -> _Reader:
    """The names, and what reads them: one call for all, for a report has tens of thousands of records."""
    read = attrgetter(*own)
    return own, read if len(own) > 1 else lambda value: (read(value),)


@cache
def names(kind: Any) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no JSON form")
    return tuple(field.name for field in dataclasses.fields(kind))


def finite(value: Any) -> Any:
    """The same values with None for every number that JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, SettledRanks)):
        return [finite(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {name: finite(getattr(value, name)) for name in names(value.__class__)}
    return value


@cache
def decoder(hint: Any) -> Decoder:
    """The reader of one type hint. Made once per hint; the hints are those of the model, never a stranger's."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: value
    if hint is Message:
        return _message
    if origin in (typing.Union, types.UnionType):
        return _optional(arguments)
    if origin is list:
        return _sequence(decoder(arguments[0]), list)
    if origin is Sequence:
        return _sequence(decoder(arguments[0]), tuple)
    if origin is tuple:
        if arguments[1:] != (Ellipsis,):
            raise TypeError(f"{hint}: only tuples of one kind of item have a form on the wire")
        return _sequence(decoder(arguments[0]), tuple)
    if origin is dict:
        return _mapping(decoder(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    return _SCALARS[hint]


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(f"expected a whole number, found {_shown(value)}")
    if not -LIMIT <= value < LIMIT:
        raise WireError(f"expected a whole number, found {_shown(value)}: too large")
    return value


def _all_integers(values: list[Any]) -> bool:
    """That ``_integer`` takes them all, found without a call for each: a ledger has more than a hundred."""
    if set(map(type, values)) - {int}:
        return False
    return not values or (min(values) >= -LIMIT and max(values) < LIMIT)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WireError(f"expected a number, found {_shown(value)}")
    if not -LIMIT <= value <= LIMIT:
        raise WireError(f"expected a number, found {_shown(value)}: too large")
    return float(value) if not 0 < abs(value) < FINEST else 0.0


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise WireError(f"expected text, found {_shown(value)}")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WireError(f"expected true or false, found {_shown(value)}")
    return value


def _scalar(value: Any) -> str | int | float:
    if isinstance(value, str):
        return value
    return _number(value) if isinstance(value, float) else _integer(value)


_SCALARS: dict[Any, Decoder] = {int: _integer, float: _number, str: _string, bool: _boolean}


def _shown(value: Any) -> str:
    shown = repr(value) if not isinstance(value, (list, dict)) else type(value).__name__
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _optional(arguments: tuple[Any, ...]) -> Decoder:
    """``X | None``, and ``float | str`` (the first that takes the value)."""
    choices = [decoder(argument) for argument in arguments if argument is not types.NoneType]
    nullable = types.NoneType in arguments

    def read(value: Any) -> Any:
        if value is None and nullable:
            return None
        for choice in choices[:-1]:
            try:
                return choice(value)
            except WireError:
                continue
        return choices[-1](value)

    return read


def _sequence(item: Decoder, make: Callable[[list[Any]], Any]) -> Decoder:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise WireError(f"expected a list, found {_shown(value)}")
        if item is _integer and _all_integers(value):
            return make(list(value))
        items = []
        for index, entry in enumerate(value):
            try:
                items.append(item(entry))
            except WireError as error:
                raise error.within(index) from None
        return make(items)

    return read


def _mapping(item: Decoder) -> Decoder:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise WireError(f"expected an object, found {_shown(value)}")
        result = {}
        for key, entry in value.items():
            try:
                result[key] = item(entry)
            except WireError as error:
                raise error.within(key) from None
        return result

    return read


def _message(value: Any, depth: int = 0) -> Message:
    if not isinstance(value, dict):
        raise WireError(f"expected an object, found {_shown(value)}")
    if depth > DEEPEST:
        raise WireError("messages within too many messages")
    given = value.get("params", {})
    try:
        params = _mapping(lambda one: _parameter(one, depth))(given) if given != {} else given
    except WireError as error:
        raise error.within("params") from None
    return Message(_string(value.get("id")), params)


def _parameter(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return _message(value, depth + 1)
    if isinstance(value, list):
        return [_message(one, depth + 1) if isinstance(one, dict) else _scalar(one) for one in value]
    return None if value is None else _scalar(value)


def _enum(kind: type[Enum]) -> Decoder:
    def read(value: Any) -> Enum:
        try:
            return kind(value)
        except ValueError:
            raise WireError(f"{_shown(value)} is no {kind.__name__}") from None

    return read


def _dataclass(kind: Any) -> Decoder:
    hints = typing.get_type_hints(kind)

    @cache  # when it is read first: a class may hold itself
    def fields() -> list[tuple[str, Decoder, bool]]:
        return [
            (field.name, decoder(hints[field.name]), field.default is field.default_factory is dataclasses.MISSING)
            for field in dataclasses.fields(kind)
        ]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise WireError(f"expected an object, found {_shown(value)}")
        found = {}
        for name, field_decoder, required in fields():
            if name not in value:
                if required:
                    raise WireError("is missing", name)
                continue
            try:
                found[name] = field_decoder(value[name])
            except WireError as error:
                raise error.within(name) from None
        return kind(**found)

    return read
