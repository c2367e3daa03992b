"""A mapping, as YAML gives it, into a configuration: all of it right, or every error of it at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from trainprobe.model.dataclass import dataclass
from trainprobe.text.saying import Saying, saying, word

Config = TypeVar("Config")

NAMES = {bool: word("true or false"), int: word("a whole number"), float: word("a number"), str: word("text")}


@dataclass(frozen=True, slots=True)
class Problem:
    """One error: the dotted path of its key ("" for the file as a whole) and what is wrong there."""

    path: str
    text: str | Saying

    def __str__(self) -> str:
        return str(self.as_saying)

    @property
    def as_saying(self) -> Saying:
        """The same for a reader of any language."""
        what = self.text if isinstance(self.text, Saying) else Saying(self.text)
        return saying("{path}: {why}", path=self.path, why=what) if self.path else what


class ConfigError(Exception):
    """A configuration that is not used; ``problems`` holds everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__("\n".join(map(str, self.as_sayings)))

    @property
    def as_sayings(self) -> list[Saying]:
        """Each problem, with its file, for a reader of any language."""
        found = [problem.as_saying for problem in self.problems]
        return [saying("{path}: {why}", path=self.source, why=one) for one in found] if self.source else found


def parse(kind: type[Config], data: object) -> Config:
    """``data`` as a configuration of ``kind``; keys that are not there have their defaults.

    Raises ConfigError with all problems.
    """
    problems: list[Problem] = []
    config = _section(kind, {} if data is None else data, "", problems)
    if problems:
        raise ConfigError(problems)
    return config


def number(value: float) -> str:
    """A bound or default as one writes it: 1.5, 0.05, 1000000."""
    return str(int(value)) if value == int(value) else str(value)


def _section(kind: type[Config], data: object, path: str, problems: list[Problem]) -> Config:
    declared = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    if not isinstance(data, Mapping):
        problems.append(Problem(path, _no_section(data)))
        return kind()
    values: dict[str, Any] = {}
    found = len(problems)
    for name, value in data.items():
        place = _join(path, name)
        if name not in declared:
            problems.append(Problem(place, _unknown(name, declared)))
        elif is_dataclass(hint := hints[name]):
            values[name] = _section(hint, {} if value is None else value, place, problems)  # type: ignore[arg-type]
        else:
            values[name] = _value(hint, value, declared[name], place, problems)
    if len(problems) > found:
        return kind()
    config = kind(**values)
    for name, text in getattr(config, "problems", tuple)():
        problems.append(Problem(_join(path, name), text))
    return config


def _value(hint: Any, value: object, field: Field[Any], place: str, problems: list[Problem]) -> object:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            problems.append(Problem(place, _not_a("a list", value)))
            return ()
        inner = get_args(hint)[0]
        return tuple(_value(inner, item, field, f"{place}[{i}]", problems) for i, item in enumerate(value))
    if get_origin(hint) is dict:
        return _texts(value, place, problems)
    plain = _plain(hint, value)
    if plain is None:
        problems.append(Problem(place, _not_a(NAMES[hint], value)))
    elif wrong := _out_of_bounds(plain, field):
        problems.append(Problem(place, wrong))
    return plain


def _texts(value: object, place: str, problems: list[Problem]) -> dict[str, str]:
    """Texts by names that the schema does not know: users, say."""
    if not isinstance(value, Mapping):
        problems.append(Problem(place, _no_section(value)))
        return {}
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            problems.append(Problem(_join(place, name), _not_a("text", text)))
    return dict(value)


def _plain(hint: type, value: object) -> bool | int | float | str | None:
    """``value`` where it is of the type, a whole number being a number too; None otherwise."""
    if isinstance(value, bool):
        return value if hint is bool else None
    if hint is float and isinstance(value, (int, float)):
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:
            return None
    return value if isinstance(value, hint) and isinstance(value, (int, str)) else None


def _no_section(value: object) -> Saying:
    return saying("must hold keys and values, not {value}", value=_shown(value))


def _not_a(kind: str, value: object) -> Saying:
    return saying("must be {kind}, not {value}", kind=saying(kind), value=_shown(value))


def _out_of_bounds(value: bool | int | float | str, field: Field[Any]) -> Saying | None:
    bounds, given = field.metadata, _shown(value)
    if isinstance(value, str):
        is_relative = bounds["absolute"] and value and not value.startswith("/")
        return saying("must be a path from /, not {value}", value=given) if is_relative else None
    if bounds["minimum"] is not None and value < bounds["minimum"]:
        return saying("must be at least {bound}, not {value}", bound=number(bounds["minimum"]), value=given)
    if bounds["above"] is not None and value <= bounds["above"]:
        return saying("must be above {bound}, not {value}", bound=number(bounds["above"]), value=given)
    return None


def _unknown(name: object, declared: Iterable[str]) -> Saying:
    import difflib  # for what is wrong alone

    near = difflib.get_close_matches(str(name)[:64], declared, n=1)
    if near:
        return saying("unknown key; did you mean {key}?", key=near[0])
    return saying("unknown key; known here: {names}", names=", ".join(declared))


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _shown(value: object) -> str | Saying:
    if value is None:
        return saying("nothing")
    if isinstance(value, Mapping):
        return saying("keys and values")
    if isinstance(value, list):
        return saying("a list")
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
