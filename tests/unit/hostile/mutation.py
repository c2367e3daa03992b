"""Inputs that are almost right: what a reader takes, bent in one to four places."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
WIDE = (*EDGES, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
WORDS = (
    b"", b"\0", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9",
    b'"', b"\\", b"\\u0000", b"\\ud800", b"'", b"<script>", b"&", b"%00", b"%", b"../", b"\x1b[2J", b"{", b"}", b"[",
    b"]", b":", b",", b"-", b"--", b"=", b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"0x", b"9" * 40,
    b"9" * 5000, b"1." + b"0" * 400, b"[" * 2000, b'{"a":' * 500, b"A" * 5000, b"&a [*a,*a]", b"!!python/object:x",
    b"? ", b"2001-99-99", b"1:2:3", b"0o9", b"_",
)  # fmt: skip

Change = Callable[[random.Random, bytearray], None]


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after some changes."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        chance.choice(_CHANGES)(chance, data)
    if chance.random() < 0.05:
        data += chance.choice(seeds)
    return bytes(data)


def _place(chance: random.Random, data: bytearray, size: int = 1) -> int:
    return chance.randint(0, max(0, len(data) - size))


def _flip(chance: random.Random, data: bytearray) -> None:
    if data:
        data[_place(chance, data)] ^= 1 << chance.randrange(8)


def _byte(chance: random.Random, data: bytearray) -> None:
    if data:
        data[_place(chance, data)] = chance.choice(EDGES) & 0xFF


def _number(chance: random.Random, data: bytearray) -> None:
    shape, numbers = chance.choice((("<H", EDGES[:9]), ("<I", EDGES), ("<Q", WIDE)))
    raw = struct.pack(shape, chance.choice(numbers))
    at = _place(chance, data, len(raw))
    data[at : at + len(raw)] = raw


def _cut(chance: random.Random, data: bytearray) -> None:
    del data[_place(chance, data) :]


def _remove(chance: random.Random, data: bytearray) -> None:
    at = _place(chance, data)
    del data[at : at + chance.randint(1, 64)]


def _repeat(chance: random.Random, data: bytearray) -> None:
    at = _place(chance, data)
    data[at:at] = data[at : at + chance.randint(1, 256)] * chance.choice((1, 2, 20))


def _insert(chance: random.Random, data: bytearray) -> None:
    at = _place(chance, data)
    data[at:at] = chance.choice(WORDS)


def _replace(chance: random.Random, data: bytearray) -> None:
    at = _place(chance, data)
    data[at : at + chance.randint(1, 16)] = chance.choice(WORDS)


_CHANGES: tuple[Change, ...] = (_flip, _byte, _number, _number, _cut, _remove, _repeat, _insert, _replace, _replace)
