# SPDX-License-Identifier: Apache-2.0
"""The kernel's ledgers of threads, by thread id.

They lie in an array. The last bits of a thread's id are its place there; where that is taken, the thread gets a spare
place, and the map ``ledger_spare`` names it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from ctypes import c_uint32, sizeof
from typing import overload

from trainprobe.bpf import abi
from trainprobe.bpf.load.loader import Loaded

TRIES = 16  # spare places that are asked for one that is free
MANY = 128  # ledgers to be read in the kernel's own memory
_STRIDE = -(-sizeof(abi.Ledger) // 8) * 8  # an array's entries begin at multiples of eight bytes
_TID, _TID_AT = struct.Struct("=I"), abi.Ledger.tid.offset


class Ledgers:
    """By thread id. While they are few they are read one by one: as long as they are mapped the places of all, 9 MB,
    count as our memory."""

    def __init__(self, loaded: Loaded) -> None:
        self._at = loaded.map("ledgers", c_uint32, abi.Ledger)
        self._owners = loaded.map("ledger_owners", c_uint32, c_uint32)
        self._spare = loaded.map("ledger_spare", c_uint32, c_uint32)
        self._descriptor = loaded.maps["ledgers"]
        self._next = 0

    def get(self, tid: int) -> abi.Ledger | None:
        """A copy; None: the thread has none."""
        place = self._place(tid)
        return None if place is None else self._at.get(c_uint32(place))

    def put(self, tid: int, ledger: abi.Ledger) -> bool:
        """In place of the one that the thread has, or as a new one; False: there is no room."""
        place = self._place(tid)
        if place is None:
            place = self._claim(tid)
        ledger.tid = tid  # by which the kernel's programs know it
        return place is not None and self._at.put(c_uint32(place), ledger)

    def insert(self, tid: int, ledger: abi.Ledger) -> bool:
        """False where the thread has one already, or there is no room."""
        return self._place(tid) is None and self.put(tid, ledger)

    def delete(self, tid: int) -> None:
        place = self._place(tid)
        if place is None:
            return
        self._at.put(c_uint32(place), abi.Ledger())
        self._spare.delete(c_uint32(tid))
        self._owners.delete(c_uint32(place))

    def entries(self) -> Sequence[tuple[int, abi.Ledger]]:
        """All of them, by thread id; what comes and goes meanwhile may be missed."""
        owners = [(tid.value, place.value) for place, tid in self._owners.entries()]
        if len(owners) >= MANY:
            with mmap.mmap(self._descriptor, abi.LEDGERS * _STRIDE, prot=mmap.PROT_READ) as memory:
                return ManyLedgers(memory[:], owners)
        found = [(tid, self._at.get(c_uint32(place))) for tid, place in owners]
        return [(tid, ledger) for tid, ledger in found if ledger is not None and ledger.tid == tid]

    def _place(self, tid: int) -> int | None:
        own = tid % abi.LEDGERS_BY_ID
        owner = self._owners.get(c_uint32(own))
        if owner is not None and owner.value == tid:
            return own
        spare = self._spare.get(c_uint32(tid))
        return None if spare is None else int(spare.value)

    def _claim(self, tid: int) -> int | None:
        own, spare = tid % abi.LEDGERS_BY_ID, abi.LEDGERS - abi.LEDGERS_BY_ID
        if self._owners.insert(c_uint32(own), c_uint32(tid)):
            return own
        if (owner := self._owners.get(c_uint32(own))) and owner.value == tid:
            return None  # it has been forked meanwhile, and the kernel has opened one
        for _ in range(TRIES):
            self._next = (self._next - 1) % spare  # downwards: the kernel counts upwards
            place = abi.LEDGERS_BY_ID + self._next
            if self._owners.insert(c_uint32(place), c_uint32(tid)):
                self._spare.put(c_uint32(tid), c_uint32(place))
                return place
        return None


class ManyLedgers(Sequence[tuple[int, abi.Ledger]]):
    """As they were at one time, each made where it is looked at: thousands of 2 KB at a time, strewn over the heap,
    would leave it in holes."""

    def __init__(self, data: bytes, owners: Iterable[tuple[int, int]]) -> None:
        """``data``: all places; ``owners``: thread ids with their places, where the ledger may be another's by now."""
        self._data = data
        self._found = [
            (tid, place) for tid, place in owners if _TID.unpack_from(data, place * _STRIDE + _TID_AT)[0] == tid
        ]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[tuple[int, abi.Ledger]]:
        return map(self._made, self._found)

    @overload
    def __getitem__(self, number: int) -> tuple[int, abi.Ledger]: ...
    @overload
    def __getitem__(self, number: slice) -> list[tuple[int, abi.Ledger]]: ...
    def __getitem__(self, number: int | slice) -> tuple[int, abi.Ledger] | list[tuple[int, abi.Ledger]]:
        return [*self][number] if isinstance(number, slice) else self._made(self._found[number])

    def _made(self, found: tuple[int, int]) -> tuple[int, abi.Ledger]:
        tid, place = found
        return tid, abi.Ledger.from_buffer_copy(self._data, place * _STRIDE)
