"""Which BPF programs the kernel holds. It runs those of a process that has ended for seconds more: it lets go of one
attachment after the other, and waits each time until nobody is in it."""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from benchmarks.bpf_floor import bpf
from benchmarks.programs import ProgramError

NEXT_PROGRAM = 11  # BPF_PROG_GET_NEXT_ID
GONE_SECONDS = 60.0


def loaded() -> frozenset[int]:
    """The ids of all programs. Empty where the kernel does not tell (without CAP_SYS_ADMIN)."""
    found, last = set[int](), 0
    with suppress(OSError):  # after the last one, too
        while True:
            _, told = bpf(NEXT_PROGRAM, struct.pack("=III", last, 0, 0))
            last = struct.unpack_from("=II", told)[1]
            found.add(last)
    return frozenset(found)


def until_gone(programs: Collection[int]) -> None:
    """Wait until the kernel holds none of these. Raises ProgramError."""
    deadline = time.monotonic() + GONE_SECONDS
    while left := loaded().intersection(programs):
        if time.monotonic() > deadline:
            raise ProgramError(f"the kernel still holds {len(left)} BPF programs of what has ended")
        time.sleep(0.1)


@contextmanager
def gone_afterwards() -> Iterator[None]:
    """What was loaded within has gone when this ends, so that who is timed next is bare again."""
    before = loaded()
    try:
        yield
    finally:
        until_gone(loaded() - before)
