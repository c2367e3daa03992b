# SPDX-License-Identifier: Apache-2.0
"""Offsets from type information: a hand-made one, the kernel's own, and garbage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.bpf.compile.btf import VMLINUX, Btf, BtfError

STRUCT, UNION, INT, TYPEDEF, FUNCTION = 4, 5, 1, 8, 12


class Builder:
    """Writes BTF: strings and types as they are added, ids counted from 1."""

    def __init__(self) -> None:
        self.strings, self.types, self.count = b"\0", b"", 0

    def name(self, text: str) -> int:
        at = len(self.strings)
        self.strings += text.encode() + b"\0"
        return at if text else 0

    def add(
        self, kind: int, name: str, last: int, members: tuple[tuple[str, int, int], ...] = (), extra: bytes = b""
    ) -> int:
        self.types += struct.pack("<III", self.name(name), kind << 24 | len(members), last) + extra
        for label, member, bits in members:
            self.types += struct.pack("<III", self.name(label), member, bits)
        self.count += 1
        return self.count

    def bytes(self) -> bytes:
        header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings))
        return header + self.types + self.strings


def sample() -> bytes:
    b = Builder()
    number = b.add(INT, "int", 4, extra=struct.pack("<I", 32))
    inner = b.add(STRUCT, "qstr", 16, (("hash", number, 0), ("name", number, 64)))
    alias = b.add(TYPEDEF, "qstr_t", inner)
    anonymous = b.add(UNION, "", 16, (("d_name", alias, 0), ("other", number, 0)))
    b.add(STRUCT, "dentry", 40, (("flags", number, 0), ("", anonymous, 128), ("bit", number, 259)))
    return b.bytes()


@pytest.mark.parametrize(
    ("path", "offset"),
    [
        ("dentry.flags", 0),
        ("dentry.d_name.name", 24),
        ("dentry.other", 16),
        ("dentry.absent", None),
        ("absent.flags", None),
        ("dentry.flags.deeper", None),
        ("dentry.bit", None),
        ("qstr.name", 8),
    ],
)
def test_offsets_go_through_anonymous_members_and_typedefs(path: str, offset: int | None) -> None:
    assert Btf(sample()).offset(path) == offset


@pytest.mark.parametrize("arguments", [3, 4])
def test_a_tracepoint_tells_how_many_arguments_it_passes(arguments: int) -> None:
    b = Builder()
    number = b.add(INT, "int", 4, extra=struct.pack("<I", 32))
    b.types += struct.pack("<III", 0, 13 << 24 | (arguments + 1), 0) + struct.pack("<II", 0, number) * (arguments + 1)
    b.count += 1
    pointer = b.add(2, "", b.count)
    b.add(TYPEDEF, "btf_trace_sched_switch", pointer)
    assert Btf(b.bytes()).tracepoint_arguments("sched_switch") == arguments
    assert Btf(b.bytes()).tracepoint_arguments("absent") is None


def test_structures_tracepoints_and_functions_are_found_by_name() -> None:
    b = Builder()
    number = b.add(INT, "int", 4, extra=struct.pack("<I", 32))
    file = b.add(STRUCT, "file", 4, (("f_mode", number, 0),))
    switch = b.add(TYPEDEF, "btf_trace_sched_switch", number)
    function = b.add(FUNCTION, "bpf_rdonly_cast", number)
    found = Btf(b.bytes())
    assert (found.struct("file"), found.tracepoint("sched_switch")) == (file, switch)
    assert found.function("bpf_rdonly_cast") == function
    assert found.struct("bpf_rdonly_cast") is found.function("file") is found.tracepoint("file") is None


def test_truncation_anywhere_is_an_error_or_unknown() -> None:
    whole = sample()
    for length in range(len(whole)):
        try:
            Btf(whole[:length]).offset("dentry.d_name.name")
        except BtfError:
            pass


@given(st.binary(max_size=400))
def test_garbage_is_an_error_or_unknown(noise: bytes) -> None:
    for raw in (noise, sample()[:24] + noise):
        try:
            Btf(raw).offset("dentry.d_name.name")
        except BtfError:
            pass


def test_a_typedef_of_itself_ends() -> None:
    b = Builder()
    b.add(TYPEDEF, "loop", 1)
    b.add(STRUCT, "s", 8, (("m", 1, 0),))
    assert Btf(b.bytes()).offset("s.m.x") is None


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BtfError):
        Btf.of_kernel(str(tmp_path / "absent"))
    (tmp_path / "empty").touch()
    with pytest.raises(BtfError):
        Btf.of_kernel(str(tmp_path / "empty"))


@pytest.mark.skipif(not Path(VMLINUX).exists(), reason="this kernel has no BTF")
def test_the_running_kernel_has_what_we_need() -> None:
    from trainprobe.bpf.compile.kernel_types import TRACEPOINTS, member_flags, tracepoint_types

    with Btf.of_kernel() as btf:
        flags = dict(flag[2:].split("=") for flag in member_flags(btf))
    assert int(flags["OFFSET_TASK_PID"]) + 4 == int(flags["OFFSET_TASK_TGID"])
    types = tracepoint_types(f"-D{name}={value}" for name, value in flags.items())
    assert set(types) == set(TRACEPOINTS)
    assert all(types.values())
