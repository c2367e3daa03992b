"""The configuration files that the package brings: every key, commented out, with its meaning and default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from textwrap import wrap
from typing import get_type_hints

_HEAD = """\
# {title}
#
# Every key is optional; what stands here, commented out, is the default. An unknown key or a value that does not fit
# is refused, with all errors at once. After a change: {reload}
# (a file with errors changes nothing; `journalctl -u {unit}` has them). All keys: /usr/share/doc/trainprobe/.
"""
_WIDTH = 118


def sample(kind: type, unit: str) -> str:
    """The text for a configuration schema; an own file is below ``unit``'s name in the journal."""
    title = (kind.__doc__ or "").strip()
    return (
        _HEAD.format(title=title, reload=f"systemctl reload {unit}", unit=unit) + "\n".join(_section(kind, "")) + "\n"
    )


def _section(kind: type, indent: str) -> Iterator[str]:
    hints = get_type_hints(kind)
    default = kind()
    for field in fields(kind):
        if not indent:
            yield ""
        meaning = wrap(str(field.metadata["meaning"]), _WIDTH - len(indent) - 5)
        yield from (f"#{indent}# {line}" for line in meaning)
        if is_dataclass(hints[field.name]):
            yield f"#{indent}{field.name}:"
            yield from _section(hints[field.name], indent + "  ")
        else:
            yield f"#{indent}{field.name}: {_value(getattr(default, field.name))}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return "[]" if value == () else str(value)
