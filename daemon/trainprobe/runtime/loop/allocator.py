"""What the C library keeps of memory that was freed: for a process that lives for months, as little as it can."""

from __future__ import annotations

import ctypes

MMAP_BYTES = 128 << 10
"""Blocks of this size go back to the kernel when they are freed. Left alone, glibc raises it to the largest one seen,
and the texts of big reports come to lie between small blocks that stay."""
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


def limit_arenas() -> None:
    """One heap for all threads: each of ours would else have one of its own, and keep it. To be called before there
    are threads; without effect where the C library is not glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)


def give_back() -> None:
    """Return free pages between those in use; takes a millisecond."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
