"""Who holds a lock on a file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from trainprobe.collect.file_locks import held_locks, parse
from trainprobe.collect.procfs import Proc

TEXT = """1: FLOCK  ADVISORY  WRITE 4711 fe:01:2172215 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4712 fe:01:2172215 0 EOF
2: POSIX  ADVISORY  READ  900 00:2d:17 128 128
3: OFDLCK ADVISORY  WRITE -1 08:02:5 0 EOF
4: LEASE  ACTIVE    READ  31 08:02:6 0 EOF
5: FLOCK  ADVISORY
6: FLOCK  ADVISORY  WRITE x 08:02:6 0 EOF
"""


def test_holders_are_read_and_waiters_are_not() -> None:
    assert list(parse(TEXT)) == [
        (0xFE << 20 | 1, 2172215, 4711, True),
        (0x2D, 17, 900, False),
        (8 << 20 | 2, 5, -1, True),
        (8 << 20 | 2, 6, 31, False),
    ]
    assert list(parse("")) == []


def test_our_own_lock_is_held_by_us(tmp_path: Path) -> None:
    with (tmp_path / "x.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ino = os.fstat(file.fileno()).st_ino
        (held,) = [one for one in held_locks(Proc()) if one.ino == ino]
    assert held.pid == os.getpid()
    assert held.name in ("", Path("/proc/self/comm").read_text().strip())


def test_without_the_file_there_are_none(tmp_path: Path) -> None:
    assert held_locks(Proc(), str(tmp_path / "none")) == ()
