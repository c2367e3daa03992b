# SPDX-License-Identifier: Apache-2.0
"""Which symbols are probed, and where in a function."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from trainprobe.bpf import marks
from trainprobe.bpf.rations import Rations
from trainprobe.bpf.symbols import Symbol


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("488b3f4883c710e954ba34fb0f1f4000", 7),  # mov (%rdi),%rdi; add $16,%rdi; jmp
        ("41554989d5", 0),  # push
        ("488b3f4883c710c3", 0),
        ("", 0),
    ],
)
def test_a_probe_sits_where_the_kernel_need_not_single_step(code: str, place: int) -> None:
    assert marks.cheap_place(bytes.fromhex(code)) == place


def test_a_prefix_that_ends_with_nul_is_the_whole_name() -> None:
    table = {"_ZN1aE": [Symbol("_ZN1aE", 1), Symbol("_ZN1aES2_", 2)]}
    assert [s.offset for s in marks._matching(table, b"_ZN1aE\0")] == [1]
    assert [s.offset for s in marks._matching(table, b"_ZN1aE")] == [1, 2]
    assert marks._matching(table, b"_ZN1b") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_file_that_is_no_library_is_read_once_and_counted_against_its_user(tmp_path: Path) -> None:
    class Told(Rations):
        def __init__(self) -> None:
            self.taken: list[tuple[int, bool]] = []

        def refusal(self, uid: int) -> str:
            return "enough" if self.taken else ""

        def took(self, uid: int, seconds: float, *, useful: bool) -> None:
            self.taken.append((uid, useful))

    rations, seen = Told(), []
    attaching = marks.Marks({}, lambda program, path, offset, counter: 0, rations)
    for name in ("libtorch_cpu.so", "libtorch_cpu-2.so"):
        path = tmp_path / name
        path.write_bytes(b"no ELF" * 1000)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC):
            start, end = next((a, b) for a, b, mapped in marks._executable_maps(os.getpid()) if mapped == bytes(path))
            seen += [attaching.attach(os.getpid(), str(path), start, end) for _ in range(2)]
    assert rations.taken == [(os.geteuid(), False)]
    assert seen[0] is seen[1]
    assert "not" in seen[0].reason
    assert {attached.reason for attached in seen[2:]} == {"enough"}


def test_a_process_that_is_gone_is_a_reason() -> None:
    attached = marks.Marks({}, lambda program, path, offset, counter: 0).attach(1 << 30, "/x/libtorch_cpu.so", 1, 2)
    assert "cannot be opened" in attached.reason
    assert attached.found == {}
