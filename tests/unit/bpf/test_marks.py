# SPDX-License-Identifier: Apache-2.0
"""Which symbols are probed, and where in a function."""

from __future__ import annotations

import pytest

from trainprobe.bpf import marks
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


def test_a_process_that_is_gone_is_a_reason() -> None:
    attached = marks.Marks({}, lambda program, path, offset: 0).attach(1 << 30, "/x/libtorch_cpu.so", 1, 2)
    assert "cannot be opened" in attached.reason
    assert attached.found == {}
