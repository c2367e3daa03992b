# SPDX-License-Identifier: Apache-2.0
"""Functions of an ELF file by the beginning of their mangled names, and its USDT probes, with their places in the file.

The file comes from a stranger: every size is capped, every offset checked, and anything odd is an ``Unreadable``, never
an exception or unbounded memory. Reading a symbol table of 90 MB leaves its pages in our memory, so ``find_apart`` does
the work in a child with limits: ``python -m trainprobe.bpf.attach.symbols PATH PREFIX…`` prints JSON.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import resource
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

MAX_FILE = 8 << 30
MAX_SECTIONS = 4096
MAX_PER_PREFIX = 64
MAX_NAME = 4096
BLOCK, BLOCK_SYMBOLS = 1 << 20, 1 << 16
TIME_LIMIT_S = 10
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM, _NOTES, _LOAD, _FUNC = 2, 11, 7, 1, 2
_NOTE = struct.Struct("<III")
_PROBE = struct.Struct("<QQQ")  # where it is, where .stapsdt.base was then, its semaphore
_PROBE_KIND, _PROBE_OWNER, _PROBE_BASE = 3, b"stapsdt\0", b".stapsdt.base\0"
MAX_NOTES = 4096
USDT = b"usdt:"
"""What a wanted name begins with that is ``usdt:PROVIDER:PROBE``."""
WHOLE = b"="
"""What a wanted name begins with that must be the whole name (but for the version behind an "@")."""
_MACHINES = frozenset((62, 183))  # x86-64, aarch64
_NOBODY = 65534


class Symbol(NamedTuple):
    name: str
    offset: int  # in the file: what a uprobe wants
    counter: int = 0  # in the file: the semaphore of a USDT probe, 0 where it has none


class Unreadable(NamedTuple):
    """Why a file has no symbols for us."""

    reason: str


Found = dict[str, list[Symbol]]
Range = tuple[int, int]


def find(data: bytes | mmap.mmap, prefixes: Sequence[bytes]) -> Found | Unreadable:
    """Functions of both symbol tables whose names begin so; clones of cold code are left out."""
    try:
        return _Elf(data).find(prefixes)
    except (struct.error, ValueError, OverflowError) as error:
        return Unreadable(f"not an ELF file we can read: {error}")


class _Elf:
    def __init__(self, data: bytes | mmap.mmap) -> None:
        self._data, self._size = data, len(data)
        ident, _, machine, _, _, phoff, shoff, _, _, *counts = _HEADER.unpack_from(data, 0)
        phentsize, phnum, shentsize, shnum, _ = counts
        if ident[:6] != b"\x7fELF\x02\x01" or machine not in _MACHINES:
            raise ValueError("not a little-endian 64-bit ELF of a machine we know")
        if phentsize != _SEGMENT.size or shentsize != _SECTION.size or shnum > MAX_SECTIONS or phnum > MAX_SECTIONS:
            raise ValueError("odd header sizes")
        self._sections = [_SECTION.unpack_from(data, shoff + i * shentsize) for i in range(shnum)]
        segments = (_SEGMENT.unpack_from(data, phoff + i * phentsize) for i in range(phnum))
        loads = [s for s in segments if s[0] == _LOAD]
        self._loads = [(s[3], s[2], s[5]) for s in loads if s[1] & 1]  # vaddr, offset, filesz
        self._written = [(s[3], s[2], s[5]) for s in loads if s[1] & 2]
        self._names = counts[-1]

    def find(self, prefixes: Sequence[bytes]) -> Found:
        found: Found = {prefix.decode(): [] for prefix in prefixes}
        if any(prefix.startswith(USDT) for prefix in prefixes):
            self._probes(found)
        prefixes = [prefix for prefix in prefixes if not prefix.startswith(USDT)]
        for section in self._sections:
            if section[1] in (_DYNSYM, _SYMTAB) and section[9] == _SYMBOL.size and section[6] < len(self._sections):
                strings = self._sections[section[6]]
                self._search(self._range(section), self._range(strings), prefixes, found)
        return found

    def _probes(self, found: Found) -> None:
        """The USDT probes among what is wanted: notes of the section that names none of our tables."""
        moved_to = self._address_of(_PROBE_BASE)
        for section in self._sections:
            if section[1] != _NOTES:
                continue
            at, end = self._range(section)
            for _ in range(MAX_NOTES):
                if at + _NOTE.size > end:
                    break
                name_size, size, kind = _NOTE.unpack_from(self._data, at)
                name_at = at + _NOTE.size
                start = name_at + -(-name_size // 4) * 4
                at = start + -(-size // 4) * 4
                ours = kind == _PROBE_KIND and self._data[name_at : name_at + name_size] == _PROBE_OWNER
                if ours and start + size <= end and size > _PROBE.size:
                    self._note(start, size, moved_to, found)

    def _note(self, start: int, size: int, moved_to: int | None, found: Found) -> None:
        address, base, semaphore = _PROBE.unpack_from(self._data, start)
        words = self._data[start + _PROBE.size : start + min(size, MAX_NAME)].split(b"\0")
        known = found.get((USDT + b":".join(words[:2])).decode(errors="replace"))
        moved = moved_to - base if moved_to is not None and base else 0
        place = _offset(address + moved, self._loads)
        counter = _offset(semaphore + moved, self._written) if semaphore else 0
        if known is not None and place is not None and counter is not None and len(known) < MAX_PER_PREFIX:
            known.append(Symbol(":".join(word.decode(errors="replace") for word in words[:2]), place, counter))

    def _address_of(self, name: bytes) -> int | None:
        """The address of the first section with this name (and its NUL)."""
        if self._names >= len(self._sections):
            return None
        start, end = self._range(self._sections[self._names])
        for section in self._sections:
            at = start + section[0]
            if at + len(name) <= end and self._data[at : at + len(name)] == name:
                return int(section[3])
        return None

    def _range(self, section: tuple[int, ...]) -> Range:
        start, size = section[4], section[5]
        if start + size > self._size:
            raise ValueError("a section ends behind the file")
        return start, start + size

    def _search(self, table: Range, strings: Range, prefixes: Sequence[bytes], found: Found) -> None:
        named: dict[int, list[tuple[str, str]]] = {}  # place among the strings -> (wanted, name)
        counts = dict.fromkeys(prefixes, 0)
        for at in self._candidates(prefixes, *strings) if prefixes else ():
            name = self._data[at : at + MAX_NAME].split(b"\0", 1)[0]
            for prefix in prefixes:
                if _begins(name, prefix) and b".cold" not in name and counts[prefix] < MAX_PER_PREFIX:
                    counts[prefix] += 1
                    named.setdefault(at - strings[0], []).append((prefix.decode(), name.decode(errors="replace")))
        for place, value in self._values(list(named), *table):
            for wanted, label in named[place]:
                symbol, known = self._place(label, value), found[wanted]
                if symbol and symbol.offset not in {one.offset for one in known} and len(known) < MAX_PER_PREFIX:
                    known.append(symbol)

    def _candidates(self, prefixes: Sequence[bytes], start: int, end: int) -> Iterator[int]:
        """Where names begin that may be wanted. One pass for all of them, looking for what they have in common."""
        texts = [prefix.removeprefix(WHOLE) for prefix in prefixes]
        common: bytes = os.path.commonprefix(texts) or b""  # noqa: RUF071  of characters, not of paths
        others = b"|".join(re.escape(text[len(common) :]) for text in texts)
        pattern = re.compile(b"\0" + re.escape(common) + b"(?:" + others + b")")
        overlap = max(map(len, texts)) + 1
        for at in range(start, end, BLOCK):
            # A slice is bytes, in which a search is many times as fast as in the mapping.
            block = self._data[at : min(at + BLOCK + overlap, end)]
            yield from (at + match.start() + 1 for match in pattern.finditer(block) if match.start() < BLOCK)

    def _values(self, names: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
        """(name, address) of functions with these names: the column of names is searched for their offsets as bytes."""
        wanted = [(name, struct.pack("=I", name)) for name in names]
        for at in range(start, end - _SYMBOL.size + 1, _SYMBOL.size * BLOCK_SYMBOLS) if wanted else ():
            block = self._data[at : min(at + _SYMBOL.size * BLOCK_SYMBOLS, end)]
            whole = memoryview(block)[: len(block) // _SYMBOL.size * _SYMBOL.size]
            column = whole.cast("I")[:: _SYMBOL.size // 4].tobytes()
            for name, packed in wanted:
                place = column.find(packed)
                while place >= 0:
                    if place % 4 == 0:
                        _, info, _, section, value, _ = _SYMBOL.unpack_from(block, place // 4 * _SYMBOL.size)
                        if info & 15 == _FUNC and section and value:
                            yield name, value
                    place = column.find(packed, place + 1)

    def _place(self, name: str, value: int) -> Symbol | None:
        offset = _offset(value, self._loads)
        return None if offset is None else Symbol(name, offset)


def _begins(name: bytes, wanted: bytes) -> bool:
    """Whether a name is one of those that ``wanted`` describes."""
    whole = wanted.removeprefix(WHOLE)
    return name.startswith(wanted) if whole == wanted else name.split(b"@", 1)[0] == whole


def _offset(value: int, loads: Sequence[tuple[int, int, int]]) -> int | None:
    """Where in the file an address lies."""
    for address, offset, size in loads:
        if address <= value < address + size:
            return value - address + offset
    return None


def find_in_file(path: str, prefixes: Sequence[bytes], opened: Callable[[], None] = lambda: None) -> Found | Unreadable:
    """``find`` on a regular file, mapped. ``opened`` is called before its first byte is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Unreadable(f"cannot be opened: {error.strerror}")
    try:
        opened()
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Unreadable("not a regular file")
        if not 64 <= status.st_size <= MAX_FILE:
            return Unreadable(f"has {status.st_size} bytes")
        with mmap.mmap(descriptor, status.st_size, prot=mmap.PROT_READ) as data:
            return find(data, prefixes)
    except (OSError, ValueError) as error:
        return Unreadable(str(error))
    finally:
        os.close(descriptor)


def find_apart(path: str, prefixes: Sequence[bytes]) -> Found | Unreadable:
    """``find_in_file`` in a child with limits on time and memory. Raises OSError when there is no child just now."""
    import subprocess  # which the child has no use for: a start takes it a quarter less without

    command = [sys.executable, "-S", "-m", "trainprobe.bpf.attach.symbols", path, *map(bytes.decode, prefixes)]
    environment = {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_LIMIT_S,
            cwd="/",
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Unreadable(f"the symbol reader failed: {type(error).__name__}")
    return _answer(done.returncode, done.stdout)


def _answer(status: int, output: bytes) -> Found | Unreadable:
    try:
        answer = json.loads(output)
        if status != 0 or not isinstance(answer, dict):
            raise ValueError
        if "unreadable" in answer:
            return Unreadable(str(answer["unreadable"]))
        symbols: Mapping[str, list[list[object]]] = answer["symbols"]
        return {
            prefix: [Symbol(str(n), int(str(o)), int(str(c))) for n, o, c in rows] for prefix, rows in symbols.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return Unreadable(f"the symbol reader ended with status {status}")


def main(arguments: list[str]) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT_S, TIME_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_FILE + (1 << 30), MAX_FILE + (1 << 30)))
    resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = find_in_file(arguments[0], [prefix.encode() for prefix in arguments[1:]], _become_nobody)
    if isinstance(found, Unreadable):
        answer: dict[str, object] = {"unreadable": found.reason}
    else:
        answer = {"symbols": {prefix: [(s.name, s.offset, s.counter) for s in rows] for prefix, rows in found.items()}}
    sys.stdout.write(json.dumps(answer))
    return 0


def _become_nobody() -> None:
    """The file is a stranger's: whoever reads it needs no rights any more. Capabilities go with the last root id."""
    if os.geteuid() != 0:
        return
    try:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    except PermissionError:
        pass  # a container without CAP_SETUID: the limits remain


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
