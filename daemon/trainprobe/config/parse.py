"""A mapping, as YAML gives it, into a configuration: all of it right, or every error of it at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Config = TypeVar("Config")

NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One error: the dotted path of its key ("" for the file as a whole) and what is wrong there."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class ConfigError(Exception):
    """A configuration that is not used; ``problems`` holds everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__("\n".join(f"{source}: {problem}" if source else str(problem) for problem in self.problems))


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
        problems.append(Problem(path, f"must hold keys and values, not {_shown(data)}"))
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
            problems.append(Problem(place, f"must be a list, not {_shown(value)}"))
            return ()
        inner = get_args(hint)[0]
        return tuple(_value(inner, item, field, f"{place}[{i}]", problems) for i, item in enumerate(value))
    if get_origin(hint) is dict:
        return _texts(value, place, problems)
    plain = _plain(hint, value)
    if plain is None:
        problems.append(Problem(place, f"must be {NAMES[hint]}, not {_shown(value)}"))
    elif wrong := _out_of_bounds(plain, field):
        problems.append(Problem(place, f"{wrong}, not {_shown(value)}"))
    return plain


def _texts(value: object, place: str, problems: list[Problem]) -> dict[str, str]:
    """Texts by names that the schema does not know: users, say."""
    if not isinstance(value, Mapping):
        problems.append(Problem(place, f"must hold keys and values, not {_shown(value)}"))
        return {}
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            problems.append(Problem(_join(place, name), f"must be text, not {_shown(text)}"))
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


def _out_of_bounds(value: bool | int | float | str, field: Field[Any]) -> str:
    bounds = field.metadata
    if isinstance(value, str):
        return "must be a path from /" if bounds["absolute"] and value and not value.startswith("/") else ""
    if bounds["minimum"] is not None and value < bounds["minimum"]:
        return f"must be at least {number(bounds['minimum'])}"
    if bounds["above"] is not None and value <= bounds["above"]:
        return f"must be above {number(bounds['above'])}"
    return ""


def _unknown(name: object, declared: Iterable[str]) -> str:
    import difflib  # for what is wrong alone

    near = difflib.get_close_matches(str(name)[:64], declared, n=1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; known here: {', '.join(declared)}"


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "keys and values"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
