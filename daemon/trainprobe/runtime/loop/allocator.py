"""What is kept of memory that was freed: for a process that lives for months, as little as it can."""

from __future__ import annotations

import ctypes
import gc
import os

MMAP_BYTES = 128 << 10
"""Blocks of this size go back to the kernel when they are freed. Left alone, glibc raises it to the largest one seen,
and the texts of big reports come to lie between small blocks that stay."""
TOP_BYTES = 1 << 20
"""Free at the heap's end until it is given back at once: what a report takes and frees needs no system calls."""
GROWN_BYTES = 1 << 20
"""More than after the last time: else there is not enough to be given back."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_RAW, _MEM, _OBJ = range(3)  # PyMemAllocatorDomain, cpython/pymem.h


class _Allocator(ctypes.Structure):
    """``PyMemAllocatorEx``: an allocator of CPython's, by domain."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


def limit_arenas() -> None:
    """One heap for all threads, and for small blocks, too. Each thread of ours would else have one of its own, and
    keep it. To be called before there are threads; without effect where the C library is not glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, TOP_BYTES)
        _leave_arenas()


def _leave_arenas() -> None:
    """Take small blocks from the C library from now on. Python's own arenas of a mebibyte stay as long as one block in
    them, and after a peak that is nearly all of them; of the C library's heap each free page can be given back.

    Blocks that lie in arenas end there: Python's allocator passes on whatever is not its own, as it does with those of
    more than 512 bytes, which were the C library's all along (Objects/obmalloc.c)."""
    python = ctypes.pythonapi
    name = getattr(python, "_PyMem_GetCurrentAllocatorName", None)
    if name is None:
        return
    name.restype = ctypes.c_char_p
    if name() != b"pymalloc":  # another one was asked for (PYTHONMALLOC, tracemalloc)
        return
    libc, own = _Allocator(), _Allocator()
    python.PyMem_GetAllocator(_RAW, ctypes.byref(libc))
    for domain in (_MEM, _OBJ):
        python.PyMem_GetAllocator(domain, ctypes.byref(own))
        own.malloc, own.calloc = libc.malloc, libc.calloc
        python.PyMem_SetAllocator(domain, ctypes.byref(own))


class Heap:
    """Of this process: what was freed in it, and is still its own."""

    def __init__(self) -> None:
        self._needed = 0

    def give_back(self) -> None:
        """Return free pages between those in use, where there may be some; takes some milliseconds.

        Only a full collection lets go of the dead tuples that CPython keeps to use again, after a peak two thousand of
        each length up to twenty, strewn over the heap (Objects/tupleobject.c)."""
        if _resident_bytes() < self._needed + GROWN_BYTES:
            return
        gc.collect()
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)
        self._needed = _resident_bytes()


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
