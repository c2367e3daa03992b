# SPDX-License-Identifier: Apache-2.0
"""Both sides of the ABI agree: the C compiler checks sizes, this checks what sizes cannot show."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from trainprobe.bpf import abi
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, cell

HEADERS = Path(abi.__file__).parent / "src" / "include"
LAYOUT, REGISTERS = ((HEADERS / name).read_text() for name in ("layout.h", "registers.h"))
SHAPES = {
    "step_file": abi.StepFileRecord,
    "ledger": abi.Ledger,
    "row": abi.Row,
    "file_key": abi.FileKey,
    "file_use": abi.FileUse,
    "file_message": abi.FileMessage,
    "named_file_message": abi.NamedFileMessage,
    "process_message": abi.ProcessMessage,
    "candidate_message": abi.CandidateMessage,
    "process": abi.Process,
    "pool": abi.Pool,
}
BYTES = {"u8": 1, "char": 1, "s16": 2, "u16": 2, "u32": 4, "s32": 4, "u64": 8}


def members(name: str) -> list[tuple[str, str]]:
    """(type, name) of a structure's members in order, comments and array sizes left out."""
    found = re.search(rf"struct {name} {{(.*?)\n}};", LAYOUT, re.DOTALL)
    assert found, name
    body = re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL)
    listed = []
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        kind, _, names = re.sub(r"^struct ", "struct_", declaration).partition(" ")
        listed += [(kind, re.sub(r"\[.*?\]", "", part).strip()) for part in names.split(",")]
    return listed


@pytest.mark.parametrize("name", SHAPES)
def test_members_have_the_same_names_order_and_width(name: str) -> None:
    shape = SHAPES[name]
    written = members(name)
    assert [member for _, member in written] == [field[0] for field in shape._fields_]
    for (kind, member), (_, *rest) in zip(written, shape._fields_):
        element = rest[0]._type_ if hasattr(rest[0], "_length_") else rest[0]
        if not kind.startswith("struct_"):
            assert ctypes.sizeof(element) == BYTES[kind], member


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
    defined = {flag[2:].split("=")[0] for flag in abi.defines()}
    source = "".join(path.read_text() for path in (Path(abi.__file__).parent / "src").glob("*.bpf.c"))
    used = set(re.findall(r"\b((?:LEAF|REGION|ROW|RUN|LEVEL|FILE|PROCESS|WHY|CALL|LOST|SIZE)_[A-Z_]+)\b", source))
    local = set(re.findall(r"#define (\w+)", source + LAYOUT + REGISTERS))
    assert used - defined - local == set()


def test_defines_are_unambiguous() -> None:
    names = [flag.split("=")[0] for flag in abi.defines()]
    assert len(names) == len(set(names))
