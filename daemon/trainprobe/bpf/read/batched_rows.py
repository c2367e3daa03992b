# SPDX-License-Identifier: Apache-2.0
"""Rows of even steps, which the kernel joins to one row: which threads may, and what of a row is new.

Each sampling pass reads the rows that the kernel still holds, so every step that has ended is known. When such a row is
emitted, the part of it that was read before is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from ctypes import c_uint32
from dataclasses import replace

from trainprobe.bpf import abi
from trainprobe.bpf.load.loader import Loaded
from trainprobe.bpf.read import decode
from trainprobe.model.event import MarkRow, StepFile

TRIES = 3  # the kernel may be writing the row that is read
_SHARED = (0, 0)  # in place of a file: several


class BatchedRows:
    """The kernel's table of them, by thread."""

    def __init__(self, loaded: Loaded) -> None:
        self._rows = loaded.map("held", c_uint32, abi.Held)
        self._allowed: frozenset[int] = frozenset()
        self._waiting: set[int] = set()  # threads whose row may wait
        self._read: dict[int, MarkRow] = {}  # as last read, whole
        self._found: dict[int, MarkRow] = {}  # by the reading that goes on

    def allow(self, tids: Collection[int]) -> None:
        """The rows of these drivers may wait from now on, those of others no longer: their next one tells."""
        for tid in frozenset(tids) - self._allowed:
            self._rows.insert(c_uint32(tid), abi.Held())  # where it is there yet, it may hold something
        self._waiting.update(tids)
        self._allowed = frozenset(tids)
        self._read = {tid: row for tid, row in self._read.items() if tid in self._waiting}

    def read(self) -> None:
        """Find what waits. The ring is to be read after this: what is told there of the same thread says more."""
        self._found = {tid: row for tid in [*self._waiting] if (row := self._row(tid)) is not None}

    def _row(self, tid: int) -> MarkRow | None:
        for _ in range(TRIES):
            held = self._rows.get(c_uint32(tid))
            if held is None or not held.row.held:
                if held is None or tid not in self._allowed:
                    self._waiting.discard(tid)  # the ring has what it held
                return None
            try:
                row = decode.message(bytes(held.row))
            except decode.Malformed:
                continue
            return row if isinstance(row, MarkRow) else None
        return None

    def news_of(self, row: MarkRow) -> MarkRow | None:
        """A row of several steps that came from the ring: what of it is news."""
        news = self._news(row)
        self._read.pop(row.tid, None)
        if row.at_ns >= self._found.get(row.tid, row).at_ns:
            self._found.pop(row.tid, None)
        return news

    def rest(self) -> list[MarkRow]:
        """After the ring: the news of what was found waiting and was not told there."""
        found, self._found = self._found, {}
        fresh = [news for row in found.values() if (news := self._news(row)) is not None]
        self._read.update(found)
        return fresh

    def _news(self, row: MarkRow) -> MarkRow | None:
        before = self._read.get(row.tid)
        if before is None or _began(before) != _began(row):
            return row
        lengths = row.lengths[len(before.lengths) :]
        return replace(row, lengths=lengths, files=_since(before.files, row.files)) if lengths else None


def _began(row: MarkRow) -> int:
    return row.at_ns - sum(row.lengths)


def _since(before: Collection[StepFile], after: Collection[StepFile]) -> tuple[StepFile, ...]:
    """What was written in between, by file. The one of the last slot may since have come to share it with others."""
    files = _by_file(after)
    for at, use in _by_file(before).items():
        place = at if at in files else _SHARED
        if place in files:
            files[place] = _sum(files[place], use, -1)
    return tuple(use for use in files.values() if use.io_ns or use.gap_ns or use.bytes)


def _by_file(uses: Collection[StepFile]) -> dict[tuple[int, int], StepFile]:
    """Each once: a file that is written again after its slot was emptied may get another one before it."""
    files: dict[tuple[int, int], StepFile] = {}
    for use in uses:
        at = use.dev, use.ino
        files[at] = _sum(files[at], use) if at in files else use
    return files


def _sum(a: StepFile, b: StepFile, sign: int = 1) -> StepFile:
    return StepFile(
        a.dev,
        a.ino,
        a.io_ns + sign * b.io_ns,
        a.gap_ns + sign * b.gap_ns,
        a.bytes + sign * b.bytes,
        a.calls + sign * b.calls,
    )
