"""docs/configuration.md, from the schema. ``python -m trainprobe.config.document`` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from trainprobe.config.parse import number
from trainprobe.config.schema import DaemonConfig, ExporterConfig

_TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text"}

_INTRODUCTION = """\
# Configuration

<!-- Generated: .venv/bin/python -m trainprobe.config.document > docs/configuration.md -->

Two YAML files, one for each program; files and keys are optional. A file named by `--config FILE` must exist. Unknown
keys are errors; all errors of a file are reported at once, each with the dotted path of its key. SIGHUP reads the
file again; a file with errors changes nothing. Anchors, aliases and tags are not supported.

Arguments of a command line that look like a key, token, secret or password are never kept.
"""


def markdown() -> str:
    parts = [_INTRODUCTION]
    for kind in (DaemonConfig, ExporterConfig):
        rows = "\n".join(_rows(kind, ""))
        parts.append(f"## {kind.__doc__}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _rows(kind: type, path: str) -> Iterator[str]:
    hints = get_type_hints(kind)
    for field in fields(kind):
        name, hint, meaning = path + field.name, hints[field.name], field.metadata["meaning"]
        if is_dataclass(hint):
            yield f"| **`{name}`** | section | | {meaning} |"
            yield from _rows(hint, name + ".")  # type: ignore[arg-type]
        else:
            assert field.default is not MISSING
            yield f"| `{name}` | {_type(hint, field.metadata)} | {_default(field.default)} | {meaning} |"


def _type(hint: Any, bounds: Mapping[str, Any]) -> str:
    if get_origin(hint) is tuple:
        return f"list: {_type(get_args(hint)[0], bounds)}"
    text = "path" if bounds["absolute"] else _TYPES[hint]
    for bound, words in (("minimum", "at least"), ("above", "above")):
        if bounds[bound] is not None:
            text += f", {words} {number(bounds[bound])}"
    return text


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in ("", ()):
        return "empty"
    return f"`{number(value)}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    print(markdown(), end="")
