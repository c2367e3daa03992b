"""Label values come from strangers (names of scripts, containers, probes): made printable and bounded, no more."""

from __future__ import annotations

MAX_CHARACTERS = 128
_TAIL = 16
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def label_value(text: object) -> str:
    """Any value as a label value: what cannot be printed or encoded becomes U+FFFD, the middle of a long one goes.

    The end is kept because the end of a run's id is the hash that makes it unique. None is the empty value.
    """
    if text is None:
        return ""
    value = text if isinstance(text, str) else str(text)
    if len(value) > MAX_CHARACTERS:
        value = f"{value[: MAX_CHARACTERS - _TAIL - 1]}…{value[-_TAIL:]}"
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else _REPLACEMENT for c in value)
