# SPDX-License-Identifier: Apache-2.0
"""Whoever reads a row that waits, and reads it again when it is told, has each step and each byte once."""

from __future__ import annotations

from ctypes import c_uint32
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.bpf import abi
from trainprobe.bpf.read import decode
from trainprobe.bpf.read.batched_rows import BatchedRows
from trainprobe.model.cells import RowKind
from trainprobe.model.event import MarkRow

TID = 7


class Kernel:
    """Holds the row of one thread, as marks.bpf.c does."""

    def __init__(self) -> None:
        self.held: abi.Held | None = None
        self.now, self.bytes = 1000, 0
        self.torn = 0  # so many readings more come in the middle of a change
        self.ring: list[bytes] = []

    def map(self, name: str, key: object, value: object) -> Kernel:
        assert name == "held"
        return self

    def insert(self, key: c_uint32, value: abi.Held) -> bool:
        if self.held is not None:
            return False
        self.held = value
        return True

    def get(self, key: c_uint32) -> abi.Held | None:
        if self.held is None:
            return None
        read = abi.Held.from_buffer_copy(self.held)
        if self.torn and read.row.held:
            self.torn -= 1
            read.row.at += 5
        return read

    def step(self, length: int, written: int) -> None:
        assert self.held is not None
        row = self.held.row
        if not row.held:
            row.began, self.bytes = self.now, 0
            row.message, row.kind, row.tid = abi.RingMessage.ROW, RowKind.OPTIMIZER, TID
        self.now += length
        self.bytes += written
        row.at = self.now
        row.files[0] = abi.StepFileRecord(ino=3, dev=1, io_ns=self.bytes, bytes=self.bytes, calls=row.held + 1)
        row.lengths[row.held] = length
        row.held += 1
        if row.held == abi.HELD_STEPS:
            self.tell()

    def tell(self) -> None:
        if self.held is not None and self.held.row.held:
            self.ring.append(bytes(self.held.row))
            self.held.row.held = 0


def drained(kernel: Kernel, held: BatchedRows) -> list[MarkRow]:
    """As Probes.drain() does."""
    held.read()
    news: list[MarkRow | None] = []
    for raw in kernel.ring:
        row = decode.message(raw)
        assert isinstance(row, MarkRow)
        news.append(held.news_of(row))
    kernel.ring.clear()
    return [*(row for row in news if row is not None), *held.rest()]


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


DO = st.sampled_from(["step", "step", "step", "step", "tell", "drain"])


@given(st.lists(st.tuples(DO, st.integers(1, 10**9), st.integers(0, 10**6)), max_size=200))
def test_each_step_is_told_once(course: list[tuple[str, int, int]]) -> None:
    kernel = Kernel()
    held = BatchedRows(cast(Any, kernel))
    held.allow({TID})
    lengths: list[int] = []
    told: list[MarkRow] = []
    written = 0
    for what, length, size in course:
        if what == "step":
            kernel.step(length, size)
            lengths.append(length)
            written += size
        elif what == "tell":
            kernel.tell()
        else:
            told += drained(kernel, held)
            assert (told[-1].at_ns if told else 1000) == kernel.now, "whoever looks knows every step that has ended"
    told += drained(kernel, held)
    assert [length for row in told for length in row.lengths] == lengths
    assert sum(use.bytes for row in told for use in row.files) == written
    for before, after in pairwise(told):
        assert after.at_ns - sum(after.lengths) == before.at_ns


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        pytest.param([(3, 30), (3, 10)], [(3, 45), (3, 10)], {3: 15}, id="one file in two slots"),
        pytest.param([(3, 30), (4, 10)], [(3, 30), (0, 25)], {0: 15}, id="the last slot is shared since"),
        pytest.param([(3, 30), (0, 10)], [(3, 31), (0, 25)], {3: 1, 0: 15}, id="it was shared before"),
    ],
)
def test_each_byte_of_a_file_is_told_once(
    kernel: Kernel, before: list[tuple[int, int]], after: list[tuple[int, int]], news: dict[int, int]
) -> None:
    held = BatchedRows(cast(Any, kernel))
    held.allow({TID})
    told: list[MarkRow] = []
    for files in (before, after):
        kernel.step(50, 0)
        assert kernel.held is not None
        for place, (ino, size) in enumerate(files):
            kernel.held.row.files[place] = abi.StepFileRecord(ino=ino, dev=ino, io_ns=size, bytes=size, calls=1)
        told += drained(kernel, held)
    assert {use.ino: use.bytes for use in told[1].files} == news
    assert [use.io_ns for use in told[1].files] == [use.bytes for use in told[1].files]


def test_a_row_that_is_being_written_is_read_again(kernel: Kernel) -> None:
    held = BatchedRows(cast(Any, kernel))
    held.allow({TID})
    kernel.step(50, 0)
    kernel.torn = 2
    assert [row.lengths for row in drained(kernel, held)] == [(50,)]
    kernel.step(60, 0)
    kernel.torn = 100
    assert drained(kernel, held) == [], "the next look will do"
    kernel.torn = 0
    assert [row.lengths for row in drained(kernel, held)] == [(60,)]


def test_who_may_no_longer_wait_is_read_until_nothing_waits(kernel: Kernel) -> None:
    held = BatchedRows(cast(Any, kernel))
    held.allow({TID})
    kernel.step(50, 0)
    held.allow(())
    assert len(drained(kernel, held)) == 1
    kernel.step(60, 0)
    kernel.tell()
    assert [row.lengths for row in drained(kernel, held)] == [(60,)]
    kernel.step(70, 0)
    assert not drained(kernel, held), "nobody allowed it: there is nothing to read"


def test_a_thread_that_has_ended_is_forgotten(kernel: Kernel) -> None:
    held = BatchedRows(cast(Any, kernel))
    held.allow({TID})
    kernel.step(50, 10)
    assert len(drained(kernel, held)) == 1
    kernel.step(60, 10)
    kernel.tell()
    kernel.held = None
    (row,) = drained(kernel, held)
    assert (row.lengths, [use.bytes for use in row.files]) == ((60,), [10])
    held.allow({TID})
    assert drained(kernel, held) == []
