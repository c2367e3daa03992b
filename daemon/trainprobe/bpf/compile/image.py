# SPDX-License-Identifier: Apache-2.0
"""Compiled programs as data: instructions in which maps are named, and what those maps look like.

Pure. An image can be kept in a file and installed by whoever has the rights, without the compiler.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trainprobe.model.dataclass import dataclass

MAGIC = b"trainprobe programs 1\n"
_INSTRUCTION = struct.Struct("<BBhi")  # code; source and target register; offset; immediate
_LOAD_WIDE, _OF_MAP, _OF_VALUE = 0x18, 1, 2  # BPF_LD | BPF_DW | BPF_IMM; BPF_PSEUDO_MAP_*, in the source register
VALUES = ("levels", "calling", "writers", "call_kinds")
"""Maps with one entry whose value's address programs hold; the compiler knows their places here as VALUE_*."""
_CALL, _OF_KERNEL = 0x85, 2  # BPF_JMP | BPF_CALL; BPF_PSEUDO_KFUNC_CALL
_DIGEST = hashlib.sha256


class Spoiled(Exception):
    """These bytes are no image; the message says why."""


class MapShape(NamedTuple):
    """As the kernel describes a map (struct bpf_map_info)."""

    kind: int
    key_size: int
    value_size: int
    entries: int
    flags: int


@dataclass(frozen=True, slots=True)
class Code:
    """A program; where it names a map, a descriptor goes."""

    instructions: bytes
    maps: tuple[tuple[int, str], ...]  # index of the instruction, name

    @classmethod
    def of(cls, loadable: bytes, names: Mapping[int, str]) -> Code:
        """From instructions that hold descriptors; raises Spoiled where one of them has no name.

        A call of a helper with a negative number, for which a compiler takes an address that is negative, is one of the
        kernel's own function with that id in BTF.
        """
        instructions, maps = bytearray(loadable), []
        for index, (code, registers, offset, value) in enumerate(_INSTRUCTION.iter_unpack(loadable)):
            at = index * _INSTRUCTION.size
            if code == _CALL and registers == 0 and value < 0:
                _INSTRUCTION.pack_into(instructions, at, code, _OF_KERNEL << 4, offset, -value)
            source = registers >> 4 if code == _LOAD_WIDE else 0
            if source not in (_OF_MAP, _OF_VALUE):
                continue
            name = names.get(value) if source == _OF_MAP else VALUES[value] if 0 <= value < len(VALUES) else None
            if name is None:
                raise Spoiled(f"instruction {index} loads an unknown map")
            maps.append((index, name))
            _INSTRUCTION.pack_into(instructions, at, code, registers, offset, 0)
        return cls(bytes(instructions), tuple(maps))

    def with_maps(self, descriptors: Mapping[str, int]) -> bytes:
        instructions = bytearray(self.instructions)
        for index, name in self.maps:
            struct.pack_into("<i", instructions, index * _INSTRUCTION.size + 4, descriptors[name])
        return bytes(instructions)


@dataclass(frozen=True, slots=True)
class Image:
    """Programs that were compiled together, with every map that their source declares."""

    license: str
    maps: dict[str, MapShape]
    programs: dict[str, Code]
    made_by: tuple[tuple[str, int, int], ...] = ()
    """Path, size and time of change, in ns, of each file of the compiler."""


def joined(images: Sequence[Image]) -> Image:
    """One of several parts of the same source."""
    first = images[0]
    programs = {name: code for image in images for name, code in image.programs.items()}
    return Image(first.license, first.maps, programs, first.made_by)


def encode(image: Image, key: str) -> bytes:
    """For a file; ``key`` says what it was compiled from and for."""
    head = {
        "key": key,
        "license": image.license,
        "made_by": image.made_by,
        "maps": image.maps,
        "programs": {name: [len(code.instructions), code.maps] for name, code in image.programs.items()},
    }
    text = json.dumps(head).encode()
    body = struct.pack("<I", len(text)) + text + b"".join(code.instructions for code in image.programs.values())
    return MAGIC + _DIGEST(body).digest() + body


def decode(data: bytes, key: str) -> Image | None:
    """None: it is for something else than ``key``. Raises Spoiled."""
    start = len(MAGIC) + _DIGEST().digest_size
    if not data.startswith(MAGIC):
        raise Spoiled("it is not a file of compiled programs, or one of another version")
    body = memoryview(data)[start:]
    if _DIGEST(body).digest() != data[len(MAGIC) : start]:
        raise Spoiled("it is damaged")
    try:
        (length,) = struct.unpack_from("<I", body)
        head = json.loads(bytes(body[4 : 4 + length]))
        return _image(head, body[4 + length :]) if head["key"] == key else None
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise Spoiled(f"it is malformed: {error}") from error


def _image(head: dict[str, Any], code: memoryview) -> Image:
    programs, at = {}, 0
    for name, (length, maps) in head["programs"].items():
        programs[str(name)] = Code(bytes(code[at : at + length]), tuple((int(i), str(n)) for i, n in maps))
        at += length
    shapes = {str(name): MapShape(*map(int, shape)) for name, shape in head["maps"].items()}
    made_by = tuple((str(path), int(size), int(changed)) for path, size, changed in head["made_by"])
    return Image(str(head["license"]), shapes, programs, made_by)
