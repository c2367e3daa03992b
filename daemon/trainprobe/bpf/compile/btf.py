# SPDX-License-Identifier: Apache-2.0
"""Byte offsets of kernel structure members, from the kernel's own type information (/sys/kernel/btf/vmlinux)."""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator
from types import TracebackType

VMLINUX = "/sys/kernel/btf/vmlinux"
MAX_BYTES = 64 << 20
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MAGIC = 0xEB9F
_INT, _ARRAY, _STRUCT, _UNION, _ENUM, _TYPEDEF, _FUNC = 1, 3, 4, 5, 6, 8, 12
_FUNC_PROTO, _VAR, _DATASEC, _DECL_TAG, _ENUM64 = 13, 14, 15, 17, 19
_ALIASES = frozenset((8, 9, 10, 11, 18))  # typedef, volatile, const, restrict, type tag
_EACH = {_STRUCT: 12, _UNION: 12, _DATASEC: 12, _ENUM64: 12, _ENUM: 8, _FUNC_PROTO: 8}
_FIXED = {_INT: 4, _ARRAY: 12, _VAR: 4, _DECL_TAG: 4}
_MAX_DEPTH = 16


class BtfError(Exception):
    """There is no type information, or it is not what it should be."""


def _places(data: bytes | mmap.mmap, wanted: bytes, start: int, end: int) -> Iterator[int]:
    at = data.find(wanted, start, end)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1, end)


class Btf:
    """One pass over the types finds where each begins; members are looked up on demand.

    Works on any buffer, so that it can be tested without a kernel.
    """

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self._data = data
        try:
            magic, _, _, header, types, types_size, strings, strings_size = _HEADER.unpack_from(data, 0)
            if magic != _MAGIC:
                raise BtfError("no BTF: wrong magic")
            self._strings = header + strings
            self._strings_end = min(self._strings + strings_size, len(data))
            self._starts = [0]
            self._structs: dict[int, int] = {}
            self._typedefs: dict[int, int] = {}
            self._scan(header + types, min(header + types + types_size, len(data)))
        except struct.error as error:
            raise BtfError(f"truncated BTF: {error}") from error

    @classmethod
    def of_kernel(cls, path: str = VMLINUX) -> Btf:
        """Map the running kernel's type information; raises BtfError where it has none."""
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if not 0 < size <= MAX_BYTES:
                    raise BtfError(f"{path} has {size} bytes")
                try:
                    return cls(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))
                except (OSError, ValueError):  # sysfs binary files can be mapped only since Linux 6.16
                    return cls(file.read(MAX_BYTES))
        except OSError as error:
            raise BtfError(f"{path}: {error.strerror}") from error

    def __enter__(self) -> Btf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def offset(self, path: str) -> int | None:
        """Byte offset of ``struct.member.member``, through anonymous members; None where there is no such member.

        Raises BtfError where the types end in the middle of it.
        """
        name, *members = path.split(".")
        at = self._find(name, self._structs)
        total = 0
        for member in members:
            try:
                found = None if at is None else self._member(at, member, 0)
            except struct.error as error:
                raise BtfError(f"truncated BTF: {error}") from error
            if found is None:
                return None
            bits, at = found
            total += bits
        return None if total % 8 else total // 8

    def tracepoint_arguments(self, name: str) -> int | None:
        """How many arguments a raw tracepoint passes; None where the kernel has no such tracepoint."""
        at = self._find(f"btf_trace_{name}", self._typedefs) or 0
        for _ in range(2):  # the typedef, then the pointer
            at = self._target(at)
        if not at:
            return None
        _, info, _ = _TYPE.unpack_from(self._data, self._starts[at])
        return (info & 0xFFFF) - 1 if info >> 24 & 31 == _FUNC_PROTO else None  # the first one is not passed

    def struct(self, name: str) -> int | None:
        """The id of a structure's type; None where the kernel has none of this name."""
        return self._find(name, self._structs)

    def tracepoint(self, name: str) -> int | None:
        """The id of the type that a program on a raw tracepoint is loaded for; None: there is no such tracepoint."""
        return self._find(f"btf_trace_{name}", self._typedefs)

    def function(self, name: str) -> int | None:
        """The id of a function of the kernel, as programs call it by; None where it has none of this name."""
        starts = self._starts
        for label in self._labels(name):  # functions are half of all types: too many to note each
            for at in _places(self._data, struct.pack("<I", label), starts[1] if len(starts) > 1 else 0, self._strings):
                place = bisect_left(starts, at)
                if place < len(starts) and starts[place] == at:
                    _, info, _ = _TYPE.unpack_from(self._data, at)
                    if info >> 24 & 31 == _FUNC:
                        return place
        return None

    def _target(self, at: int) -> int:
        """What a typedef or pointer points to; 0: nothing."""
        if not 0 < at < len(self._starts):
            return 0
        target = int(_TYPE.unpack_from(self._data, self._starts[at])[2])
        return target if 0 < target < len(self._starts) else 0

    def _scan(self, position: int, end: int) -> None:
        unpack, starts, structs, typedefs = _TYPE.unpack_from, self._starts, self._structs, self._typedefs
        data, each, fixed = self._data, _EACH.get, _FIXED.get
        while position + 12 <= end:
            name, info, _ = unpack(data, position)
            kind = info >> 24 & 31
            if kind == _STRUCT and name:
                structs.setdefault(name, len(starts))
            elif kind == _TYPEDEF:
                typedefs.setdefault(name, len(starts))
            starts.append(position)
            position += 12 + (fixed(kind, 0) or each(kind, 0) * (info & 0xFFFF))

    def _find(self, name: str, kinds: dict[int, int]) -> int | None:
        return next((kinds[label] for label in self._labels(name) if label in kinds), None)

    def _labels(self, name: str) -> Iterator[int]:
        """Where among the strings the name is; types name themselves by that."""
        for at in _places(self._data, b"\0" + name.encode() + b"\0", max(self._strings - 1, 0), self._strings_end):
            yield at + 1 - self._strings

    def _resolve(self, type_id: int) -> int | None:
        for _ in range(_MAX_DEPTH):
            if not 0 < type_id < len(self._starts):
                return None
            _, info, target = _TYPE.unpack_from(self._data, self._starts[type_id])
            if (info >> 24 & 31) not in _ALIASES:
                return type_id
            type_id = target
        return None

    def _named(self, offset: int, name: bytes) -> bool:
        start = self._strings + offset
        return self._data[start : start + len(name) + 1] == name + b"\0"

    def _member(self, type_id: int, name: str, depth: int) -> tuple[int, int] | None:
        """(bit offset, type) of a member, looked for in anonymous members too."""
        found = self._resolve(type_id)
        if found is None or depth > _MAX_DEPTH:
            return None
        start = self._starts[found]
        _, info, _ = _TYPE.unpack_from(self._data, start)
        if (info >> 24 & 31) not in (_STRUCT, _UNION):
            return None
        wanted = name.encode()
        for index in range(info & 0xFFFF):
            label, inner, place = _TYPE.unpack_from(self._data, start + 12 + 12 * index)
            bits = place & 0xFFFFFF if info >> 31 else place
            if label and self._named(label, wanted):
                return bits, inner
            if not label and (deeper := self._member(inner, name, depth + 1)):
                return bits + deeper[0], deeper[1]
        return None
