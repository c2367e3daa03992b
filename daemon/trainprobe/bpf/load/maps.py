# SPDX-License-Identifier: Apache-2.0
"""Maps and the ring buffer by descriptor, through libbpf, which BCC brings along."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from ctypes import Structure, byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any, Generic, TypeVar, cast

from trainprobe.bpf import errors
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load.kernel_calls import KernelCalls

LIBRARIES = ("libbpf.so.1", "libbpf.so.0", "libbcc_bpf.so.0")
"""The last is BCC's own: libbpf is a part of it where BCC was built so. It needs 2 MB of C++ besides."""
BATCH = 64
MAX_ITEMS = 1 << 16
DRAINED = 1 << 20  # bytes at a time: as many as the ring has (core.bpf.c), so all that it held as the drain began
K = TypeVar("K", bound="c_uint32 | Structure")
V = TypeVar("V", bound="ctypes._SimpleCData[int] | Structure")
_ANY, _NOEXIST, _EXIST = 0, 1, 2
_RING_CALLBACK = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


def library() -> ctypes.CDLL:
    """libbpf, its functions declared; raises ProbesUnavailable."""
    lib = _first_of(LIBRARIES)
    lib.bpf_map_update_elem.argtypes = [c_int, c_void_p, c_void_p, c_uint64]
    lib.bpf_map_lookup_elem.argtypes = [c_int, c_void_p, c_void_p]
    lib.bpf_map_delete_elem.argtypes = [c_int, c_void_p]
    lib.bpf_map_lookup_and_delete_elem.argtypes = [c_int, c_void_p, c_void_p]
    lib.ring_buffer__new.restype = c_void_p
    lib.ring_buffer__new.argtypes = [c_int, _RING_CALLBACK, c_void_p, c_void_p]
    lib.ring_buffer__consume.argtypes = [c_void_p]
    lib.ring_buffer__free.argtypes = [c_void_p]
    lib.ring_buffer__free.restype = None
    return lib


def _first_of(names: Sequence[str]) -> ctypes.CDLL:
    refused = []
    for name in names:
        try:
            return ctypes.CDLL(name, use_errno=True)
        except OSError as error:
            refused.append(str(error))
    raise ProbesUnavailable(errors.NO_LIBRARY(error=refused[0]), errors.APT_BCC)


class Map(Generic[K, V]):
    """A hash or array map. Values are copies: what the kernel changes later is not seen."""

    def __init__(self, lib: ctypes.CDLL, calls: KernelCalls, descriptor: int, key: type[K], value: type[V]) -> None:
        self._lib, self._calls = lib, calls
        self.descriptor, self._key, self._value = descriptor, key, value
        self._room: tuple[ctypes.Array[Any], ctypes.Array[Any]] | None = None

    def get(self, key: K) -> V | None:
        value = self._value()
        return value if self._lib.bpf_map_lookup_elem(self.descriptor, byref(key), byref(value)) == 0 else None

    def put(self, key: K, value: V) -> bool:
        return bool(self._lib.bpf_map_update_elem(self.descriptor, byref(key), byref(value), _ANY) == 0)

    def insert(self, key: K, value: V) -> bool:
        """False where the key is there already (or the map is full)."""
        return bool(self._lib.bpf_map_update_elem(self.descriptor, byref(key), byref(value), _NOEXIST) == 0)

    def replace(self, key: K, value: V) -> bool:
        """False where the key is not there (any more)."""
        return bool(self._lib.bpf_map_update_elem(self.descriptor, byref(key), byref(value), _EXIST) == 0)

    def delete(self, key: K) -> bool:
        return bool(self._lib.bpf_map_delete_elem(self.descriptor, byref(key)) == 0)

    def pop(self, key: K) -> V | None:
        """Read and delete at once, so that nothing added in between is lost (Linux 5.14; else nearly at once)."""
        value = self._value()
        if self._lib.bpf_map_lookup_and_delete_elem(self.descriptor, byref(key), byref(value)) == 0:
            return value
        found = self.get(key)
        return found if found is not None and self.delete(key) else None

    def entries(self) -> list[tuple[K, V]]:
        """All entries, read in batches; what comes and goes meanwhile may be missed or met twice."""
        keys, values = self._batch()
        position, start = c_uint64(), None
        found: list[tuple[K, V]] = []
        while len(found) < MAX_ITEMS:
            taken, error = self._calls.lookup_batch(self.descriptor, start, position, keys, values)
            found += [
                (
                    cast(K, self._key.from_buffer_copy(keys, index * sizeof(self._key))),
                    cast(V, self._value.from_buffer_copy(values, index * sizeof(self._value))),
                )
                for index in range(taken)
            ]
            if error:
                break
            start = position
        return found

    def _batch(self) -> tuple[ctypes.Array[Any], ctypes.Array[Any]]:
        """Room for one, kept from the first time on: of ledgers it is 100 KB that would be cleared each time."""
        if self._room is None:
            self._room = (self._key * BATCH)(), (self._value * BATCH)()
        return self._room


class Levels:
    """The byte per thread id, mapped: a single byte can be set without touching its neighbours."""

    def __init__(self, descriptor: int, room: int) -> None:
        self._memory = mmap.mmap(descriptor, room)
        self._room = room

    def __getitem__(self, tid: int) -> int:
        return self._memory[tid] if 0 <= tid < self._room else 0

    def __setitem__(self, tid: int, level: int) -> None:
        if 0 <= tid < self._room:
            self._memory[tid] = level

    def clear(self) -> None:
        """Nobody is traced any longer."""
        self._memory[:] = bytes(len(self._memory))

    def close(self) -> None:
        self._memory.close()


class Ring:
    """The ring buffer; messages are copied out, nothing is decoded here: a ctypes callback swallows exceptions."""

    def __init__(self, lib: ctypes.CDLL, descriptor: int) -> None:
        self._lib, self.descriptor = lib, descriptor
        self._messages: list[bytes] = []
        self._room = 0
        string_at = ctypes.string_at

        def receive(_context: int, data: int, size: int) -> int:
            self._messages.append(string_at(data, size))
            self._room -= size
            return 0 if self._room > 0 else -1  # libbpf goes on as long as programs do; the rest wakes us again

        self._callback = _RING_CALLBACK(receive)
        address = lib.ring_buffer__new(descriptor, self._callback, None, None)
        if not address:
            raise ProbesUnavailable(errors.NO_RING(), errors.SEE_MEMORY())
        self._ring = c_void_p(address)

    def drain(self) -> list[bytes]:
        self._room = DRAINED
        self._lib.ring_buffer__consume(self._ring)
        taken, self._messages = self._messages, []
        return taken

    def close(self) -> None:
        self._lib.ring_buffer__free(self._ring)
