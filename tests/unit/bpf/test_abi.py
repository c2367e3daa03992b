# SPDX-License-Identifier: Apache-2.0
"""Both sides of the ABI agree: the C compiler checks sizes, this checks what sizes cannot show."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from trainprobe.bpf import abi
from trainprobe.bpf.compile.defines import defines
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, cell

HEADERS = Path(abi.__file__).parent / "src" / "include"
LAYOUT, REGISTERS = ((HEADERS / name).read_text() for name in ("layout.h", "registers.h"))
DEFINES = dict(flag[2:].split("=") for flag in defines())
NAMES = {abi.CallRecord: "call", abi.StepFileRecord: "step_file"}
SHAPES: dict[str, type[ctypes.Structure]] = {
    NAMES.get(kind, re.sub(r"(?<=.)([A-Z])", r"_\1", kind.__name__).lower()): kind
    for kind in vars(abi).values()
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure
}
SCALARS = {
    "u8": ctypes.c_uint8, "char": ctypes.c_char, "s16": ctypes.c_int16, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32, "u64": ctypes.c_uint64,
}  # fmt: skip


def members(name: str) -> list[tuple[str, type[ctypes._CData]]]:
    """Name and type of each member of a structure in layout.h, in order."""
    found = re.search(rf"struct {name} {{(.*?)\n}};", LAYOUT, re.DOTALL)
    assert found, name
    body = re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL)
    listed = []
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        kind, _, names = declaration.removeprefix("struct ").partition(" ")
        element = SHAPES[kind] if declaration.startswith("struct ") else SCALARS[kind]
        for part in names.split(","):
            member, _, length = part.strip().rstrip("]").partition("[")
            listed.append((member, element * int(DEFINES.get(length, length)) if length else element))
    return listed


def test_each_structure_stands_on_both_sides() -> None:
    assert set(re.findall(r"^struct (\w+) {", LAYOUT, re.MULTILINE)) == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_members_have_the_same_names_order_and_types(name: str) -> None:
    assert [tuple(field[:2]) for field in SHAPES[name]._fields_] == members(name)


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_is_padded(name: str) -> None:
    """Padding is memory of the kernel that nobody wrote."""
    shape = SHAPES[name]
    end = 0
    for field, *_ in shape._fields_:
        place = getattr(shape, field)
        assert place.offset == end, field
        end += place.size
    assert end == ctypes.sizeof(shape)


def test_every_cell_has_room() -> None:
    assert cell(max(Region), max(Leaf)) < CELLS
    assert len(Leaf) <= LEAVES
    assert CELLS & (CELLS - 1) == 0, "the kernel masks indices"


def test_every_number_that_the_programs_use_is_defined() -> None:
    defined = {flag[2:].split("=")[0] for flag in defines()}
    source = "".join(path.read_text() for path in (Path(abi.__file__).parent / "src").glob("*.bpf.c"))
    used = set(
        re.findall(r"\b((?:MESSAGE|LEAF|REGION|ROW|RUN|LEVEL|FILE|PROCESS|WHY|CALL|LOST|SIZE)_[A-Z_]+)\b", source)
    )
    local = set(re.findall(r"#define (\w+)", source + LAYOUT + REGISTERS))
    assert used - defined - local == set()


def test_defines_are_unambiguous() -> None:
    names = [flag.split("=")[0] for flag in defines()]
    assert len(names) == len(set(names))
