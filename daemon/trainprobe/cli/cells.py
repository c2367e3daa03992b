"""Text measured in terminal cells: Chinese, Japanese and Korean characters take two, combining marks none."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

_WIDE = ("W", "F")
_NO_START = "，。；：！？、）》”’…%,.;:!?)"  # never at the beginning of a line


def width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, room: int) -> str:
    """``text`` in at most ``room`` cells; what is cut off is told by an ellipsis."""
    if width(text) <= room:
        return text
    if room < 1:
        return ""
    kept, used = [], 0
    for character in text:
        used += _cells(character)
        if used > room - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def fill(text: str, room: int) -> str:
    """``text`` with spaces behind it up to ``room`` cells."""
    return text + " " * max(0, room - width(text))


def fill_left(text: str, room: int) -> str:
    """``text`` with spaces before it up to ``room`` cells."""
    return " " * max(0, room - width(text)) + text


def pad(text: str, room: int) -> str:
    """``text`` cut or filled to exactly ``room`` cells."""
    return fill(cut(text, room), room)


def fitting(parts: Sequence[str], room: int) -> str:
    """The first parts, whole, as many as fit beside each other."""
    line = cut(parts[0], room)
    for part in parts[1:]:
        if width(longer := f"{line} · {part}") > room:
            break
        line = longer
    return line


def wrap(text: str, room: int, first: str, rest: str) -> list[str]:
    """Lines of at most ``room`` cells; ``first`` and ``rest`` stand before the first and the further ones."""
    lines: list[str] = []
    line, prefix = "", first
    for piece in _pieces(text):
        if width(prefix) + width(line) + width(piece.rstrip()) > room and line.strip():
            lines.append(prefix + line.rstrip())
            line, prefix = "", rest
            piece = piece.lstrip()
        while width(prefix) + width(piece.rstrip()) > room:  # longer than a line by itself
            head = _head(piece, room - width(prefix))
            lines.append(prefix + head)
            piece, prefix = piece[len(head) :], rest
        line += piece
    if line.strip() or not lines:
        lines.append((prefix + line).rstrip())
    return lines


def _pieces(text: str) -> Iterator[str]:
    """Where a line may be broken: behind a space, and beside a wide character that is no closing mark."""
    piece = ""
    for index, character in enumerate(text):
        piece += character
        after = text[index + 1] if index + 1 < len(text) else ""
        breakable = _cells(character) == 2 or (after and _cells(after) == 2)
        if not after or (character == " " and after != " ") or (breakable and after not in _NO_START):
            yield piece
            piece = ""


def _head(text: str, room: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _cells(character)
        if used > room:
            return text[: text.rfind("/", 1, index) + 1 or max(1, index)]
    return text


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
