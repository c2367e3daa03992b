"""Lines as the kernel writes them (pure)."""

from __future__ import annotations


def lines_of(text: str) -> list[str]:
    """Split at newlines and nowhere else: ``str.splitlines`` also takes a carriage return, a form feed, U+2028 and more
    for the end of a line, and names of cgroups, mounts and processes may hold them."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
