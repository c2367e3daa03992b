# SPDX-License-Identifier: Apache-2.0
"""What the kernel keeps of each thread, mapped: its level, where its ledger is, and the ledger."""

from __future__ import annotations

import ctypes
import mmap
from ctypes import c_uint32, sizeof

from trainprobe.bpf import abi
from trainprobe.bpf.maps import Map

IDS = 16
"""Thread ids of one line: their levels, a byte each, then their slots, two bytes each (struct threads)."""
LINE = 64


class Levels:
    """Level and slot by thread id: one of them can be set without touching its neighbours."""

    def __init__(self, descriptor: int, room: int) -> None:
        self._memory = mmap.mmap(descriptor, room // IDS * LINE)
        self._words = memoryview(self._memory).cast("H")
        self._room = room

    def __getitem__(self, tid: int) -> int:
        return self._memory[tid // IDS * LINE + tid % IDS] if 0 <= tid < self._room else 0

    def __setitem__(self, tid: int, level: int) -> None:
        if 0 <= tid < self._room:
            self._memory[tid // IDS * LINE + tid % IDS] = level

    def place(self, tid: int, slot: int) -> None:
        """The thread's ledger is there from now on; 0: it has none."""
        if 0 <= tid < self._room:
            self._words[(tid // IDS * LINE + IDS) // 2 + tid % IDS] = slot

    def clear(self) -> None:
        """Nobody is traced any longer."""
        self._memory[:] = bytes(len(self._memory))

    def close(self) -> None:
        self._words.release()
        self._memory.close()


class Ledgers:
    """The ledgers by thread id. What is read is a copy; the kernel may write meanwhile."""

    def __init__(
        self, lib: ctypes.CDLL, memory: int, slots: Map[c_uint32, c_uint32], free: int, levels: Levels
    ) -> None:
        """``memory``, ``free``: descriptors of the maps of ledgers and of slots that nobody has."""
        self._lib, self._slots, self._free, self._levels = lib, slots, free, levels
        self._memory = mmap.mmap(memory, (abi.LEDGERS + 1) * sizeof(abi.Ledger))

    def get(self, tid: int) -> abi.Ledger | None:
        slot = self._slots.get(c_uint32(tid))
        return self._read(slot.value) if slot else None

    def entries(self) -> list[tuple[int, abi.Ledger]]:
        """All; what comes and goes meanwhile may be missed or met twice."""
        return [(tid.value, self._read(slot.value)) for tid, slot in self._slots.entries()]

    def insert(self, tid: int, ledger: abi.Ledger) -> bool:
        """False where the thread has one already, or there is no room."""
        slot = c_uint32()
        if self._lib.bpf_lookup_and_delete(self._free, None, ctypes.byref(slot)) != 0:
            return False
        start = slot.value * sizeof(abi.Ledger)
        if not self._slots.insert(c_uint32(tid), slot):
            self._give_back(slot)
            return False
        self._memory[start : start + sizeof(abi.Ledger)] = bytes(ledger)
        self._levels.place(tid, slot.value)
        return True

    def delete(self, tid: int) -> None:
        self._levels.place(tid, 0)
        slot = self._slots.get(c_uint32(tid))
        if slot and self._slots.delete(c_uint32(tid)):  # whoever deleted it gives it back, and nobody else
            self._give_back(slot)

    def close(self) -> None:
        self._memory.close()

    def _read(self, slot: int) -> abi.Ledger:
        return abi.Ledger.from_buffer_copy(self._memory, slot * sizeof(abi.Ledger))

    def _give_back(self, slot: c_uint32) -> None:
        self._lib.bpf_update_elem(self._free, None, ctypes.byref(slot), 0)
