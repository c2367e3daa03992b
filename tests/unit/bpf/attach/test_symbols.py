# SPDX-License-Identifier: Apache-2.0
"""Symbols of ELF files: a hand-made one, hostile ones, and what a child with limits makes of them."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.bpf.attach import symbols
from trainprobe.bpf.attach.symbols import Symbol, Unreadable

PREFIX = b"_ZN5torch"


def elf(names: list[tuple[bytes, int, int]], *, kind: int = 2, address: int = 0x10000, offset: int = 0x1000) -> bytes:
    """A little ELF: one executable segment, one symbol table. names: (name, value, info)."""
    strings, table = b"\0", bytes(24)
    for name, value, info in names:
        table += struct.pack("<IBBHQQ", len(strings), info, 0, 1, value, 16)
        strings += name + b"\0"
    table_at = 64 + 56
    strings_at = table_at + len(table)
    sections_at = strings_at + len(strings)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, 3, 2)
    segment = struct.pack("<IIQQQQQQ", 1, 5, offset, address, address, 0x2000, 0x2000, 0x1000)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, table_at, len(table), 2, 0, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, strings_at, len(strings), 0, 0, 1, 0)
    return header + segment + table + strings + sections


FUNCTION, OBJECT = 2, 1


@pytest.mark.parametrize("kind", [2, 11], ids=["symtab", "dynsym"])
def test_functions_by_the_beginning_of_their_names(kind: int) -> None:
    raw = elf(
        [
            (PREFIX + b"7executeE", 0x10100, FUNCTION),
            (PREFIX + b"7executeE.cold", 0x10200, FUNCTION),
            (b"_ZGVZN5torch8guard", 0x10300, FUNCTION),
            (PREFIX + b"8variable", 0x10400, OBJECT),
            (PREFIX + b"9elsewhere", 0x90000, FUNCTION),
        ],
        kind=kind,
    )
    assert symbols.find(raw, [PREFIX]) == {PREFIX.decode(): [Symbol((PREFIX + b"7executeE").decode(), 0x1100)]}


def test_whole_names_with_and_without_a_version() -> None:
    """As nm shows them: cudaMalloc@@libcudart.so.12; the version is not in the table, unless the linker left it."""
    names = [b"cudaMallocAsync", b"cudaMalloc", b"__cudaMalloc", b"cudaFree@@libcudart.so.12", b"cudaFreeHost"]
    raw = elf([(name, 0x10100 + 16 * at, FUNCTION) for at, name in enumerate(names)], kind=11)
    assert symbols.find(raw, [b"=cudaMalloc", b"=cudaFree", b"=cudaFreeArray"]) == {
        "=cudaMalloc": [Symbol("cudaMalloc", 0x1110)],
        "=cudaFree": [Symbol("cudaFree@@libcudart.so.12", 0x1130)],
        "=cudaFreeArray": [],
    }


def with_probe(name: bytes, place: int, base: int, semaphore: int) -> bytes:
    """A little ELF with one USDT note, a .stapsdt.base at 0x10800, and a segment that is written to at 0x40000."""
    described = struct.pack("<QQQ", place, base, semaphore) + b"python\0" + name + b"\0-4@%eax\0"
    note = struct.pack("<III", 8, len(described), 3) + b"stapsdt\0" + described + bytes(-len(described) % 4)
    names = b"\0.stapsdt.base\0"
    note_at = 64 + 2 * 56
    sections_at = note_at + len(note) + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 2, 64, 4, 3)
    code = struct.pack("<IIQQQQQQ", 1, 5, 0x1000, 0x10000, 0x10000, 0x2000, 0x2000, 0x1000)
    data = struct.pack("<IIQQQQQQ", 1, 6, 0x3000, 0x40000, 0x40000, 0x1000, 0x1000, 0x1000)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, 7, 0, 0, note_at, len(note), 0, 0, 4, 0)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0x10800, 0x1800, 1, 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, note_at + len(note), len(names), 0, 0, 1, 0)
    return header + code + data + note + names + sections


def test_a_usdt_probe_has_its_place_and_its_semaphore() -> None:
    wanted = "usdt:python:gc__start"
    told = [Symbol("python:gc__start", 0x1100, 0x3010)]
    raw = with_probe(b"gc__start", 0x10100, 0x10800, 0x40010)
    assert symbols.find(raw, [wanted.encode()]) == {wanted: told}
    moved = with_probe(b"gc__start", 0x100, 0x800, 0x30010)  # prelink moved everything by 0x10000
    assert symbols.find(moved, [wanted.encode()]) == {wanted: told}


def test_a_usdt_probe_whose_semaphore_lies_nowhere_is_left_alone() -> None:
    raw = with_probe(b"gc__start", 0x10100, 0x10800, 0x90010)
    assert symbols.find(raw, [b"usdt:python:gc__start"]) == {"usdt:python:gc__start": []}
    other = with_probe(b"gc__done", 0x10100, 0x10800, 0)
    assert symbols.find(other, [b"usdt:python:gc__start"]) == {"usdt:python:gc__start": []}
    assert symbols.find(other, [b"usdt:python:gc__done"])["usdt:python:gc__done"][0].counter == 0


def test_a_name_that_is_missing_is_an_empty_list() -> None:
    assert symbols.find(elf([]), [PREFIX]) == {PREFIX.decode(): []}


@pytest.mark.parametrize("before", range(-30, 3))
def test_a_name_across_the_border_of_two_blocks_is_found_once(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "BLOCK", 64)
    monkeypatch.setattr(symbols, "BLOCK_SYMBOLS", 1)
    names = [(b"x" * (62 + before), 0x10100, FUNCTION), (PREFIX + b"7executeE", 0x10200, FUNCTION)]
    found = symbols.find(elf([*names, (b"_ZN5torchlight", 0x10300, FUNCTION)]), [PREFIX + b"7", b"=_ZN5torchlight"])
    assert found == {
        (PREFIX + b"7").decode(): [Symbol((PREFIX + b"7executeE").decode(), 0x1200)],
        "=_ZN5torchlight": [Symbol("_ZN5torchlight", 0x1300)],
    }


def test_a_crowd_of_names_is_capped() -> None:
    raw = elf([(PREFIX + b"%d" % i, 0x10000 + i, FUNCTION) for i in range(500)])
    found = symbols.find(raw, [PREFIX])
    assert isinstance(found, dict)
    assert len(found[PREFIX.decode()]) <= symbols.MAX_PER_PREFIX


def test_truncated_anywhere_it_is_unreadable_or_empty() -> None:
    whole = elf([(PREFIX + b"x", 0x10100, FUNCTION)])
    for length in range(0, len(whole), 3):
        assert isinstance(symbols.find(whole[:length], [PREFIX]), (Unreadable, dict))


@given(st.binary(max_size=600))
def test_garbage_is_unreadable(noise: bytes) -> None:
    assert isinstance(symbols.find(noise, [PREFIX]), Unreadable)


@given(st.data())
def test_flipped_bytes_never_raise(data: st.DataObject) -> None:
    raw = bytearray(elf([(PREFIX + b"x", 0x10100, FUNCTION)]))
    for _ in range(data.draw(st.integers(1, 12))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(symbols.find(bytes(raw), [PREFIX]), (Unreadable, dict))


def test_sizes_that_point_behind_the_file() -> None:
    raw = bytearray(elf([(PREFIX + b"x", 0x10100, FUNCTION)]))
    sections_at = struct.unpack_from("<Q", raw, 40)[0]
    struct.pack_into("<Q", raw, sections_at + 64 + 32, 1 << 62)
    assert isinstance(symbols.find(bytes(raw), [PREFIX]), Unreadable)


@pytest.mark.parametrize("make", ["fifo", "directory", "empty", "absent", "device"])
def test_only_regular_files_are_read(tmp_path: Path, make: str) -> None:
    path = tmp_path / "x"
    if make == "fifo":
        os.mkfifo(path)
    elif make == "directory":
        path.mkdir()
    elif make == "empty":
        path.touch()
    name = "/dev/zero" if make == "device" else str(path)
    assert isinstance(symbols.find_in_file(name, [PREFIX]), Unreadable)


@pytest.mark.parametrize("size", [symbols.MAX_FILE, symbols.MAX_FILE + 1, 1 << 40])
def test_a_huge_file_costs_neither_time_nor_memory(tmp_path: Path, size: int) -> None:
    """Holes behind a header that says everything lies at the file's end."""
    raw = bytearray(elf([(PREFIX + b"7executeE", 0x10100, FUNCTION)]))
    struct.pack_into("<Q", raw, 40, size - 4096)  # where the sections are
    path = tmp_path / "lib.so"
    path.write_bytes(raw)
    os.truncate(path, size)
    tracemalloc.start()
    try:
        found = symbols.find_in_file(str(path), [PREFIX])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == {PREFIX.decode(): []} or isinstance(found, Unreadable)
    assert isinstance(found, Unreadable) or size <= symbols.MAX_FILE
    assert peak < 4 << 20


def test_in_a_child_it_finds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(elf([(PREFIX + b"7executeE", 0x10100, FUNCTION)]))
    assert symbols.find_apart(str(path), [PREFIX]) == symbols.find_in_file(str(path), [PREFIX])
    assert isinstance(symbols.find_apart(str(tmp_path / "absent"), [PREFIX]), Unreadable)


@pytest.mark.parametrize(
    "output",
    [b"", b"[]", b"{}", b'{"symbols": 3}', b'{"symbols": {"a": [[1]]}}', b"\xff", b'{"symbols": {"a": [["n", "x"]]}}'],
)
def test_a_childs_nonsense_is_unreadable(output: bytes) -> None:
    assert isinstance(symbols._answer(0, output), Unreadable)


def test_this_interpreter_can_be_read() -> None:
    found = symbols.find_in_file(os.path.realpath(sys.executable), [b"Py_BytesMain"])
    assert isinstance(found, dict)


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_who_reads_a_strangers_file_has_no_rights(tmp_path: Path) -> None:
    """Whatever is wrong with our reading, root is not there to be had."""
    path = tmp_path / "lib.so"
    path.write_bytes(bytes(64))
    path.chmod(0o400)
    code = (
        "from trainprobe.bpf.attach import symbols\n"
        f"symbols.find_in_file({str(path)!r}, [], symbols._become_nobody)\n"
        "print(*(line for line in open('/proc/self/status') if line[:4] in ('Uid:', 'Gid:', 'CapE', 'CapP', 'Grou')))"
    )
    environment = {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    told = dict(line.split(":") for line in done.stdout.split("\n") if ":" in line)
    values = {name.strip(): value.split() for name, value in told.items()}
    assert values["Uid"] == values["Gid"] == ["65534"] * 4
    assert values["CapEff"] == values["CapPrm"] == ["0" * 16]
    assert values["Groups"] == []
