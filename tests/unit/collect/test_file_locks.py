"""Who holds a lock on a file."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from trainprobe.collect.file_locks import held_locks, open_in, parse
from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import HeldLock

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


def locked_in(pid: int, path: Path) -> list[str]:
    """Paths of the locks of others that the process is said to wait for, of this file."""
    ino, proc = path.stat().st_ino, Proc()
    return [one.path for one in open_in(proc, pid, held_locks(proc)) if one.ino == ino and one.path]


def test_a_lock_that_a_process_was_given_with_its_descriptor_is_no_rivals(tmp_path: Path) -> None:
    """``flock gpu0.lock python train.py``: the lock is flock(1)'s by its number, and the training's as well."""
    path = tmp_path / "gpu0.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()]) as given:
            try:
                assert locked_in(given.pid, path) == []
            finally:
                given.kill()
        with path.open("r") as other, subprocess.Popen(["sleep", "60"], pass_fds=[other.fileno()]) as rival:
            try:
                assert locked_in(rival.pid, path) == [str(path)]
            finally:
                rival.kill()


def test_locks_of_others_on_other_files_hide_none(tmp_path: Path) -> None:
    with (tmp_path / "x.lock").open("w") as file:
        status = os.fstat(file.fileno())
        dev = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
        crowd = [HeldLock(1, 1_000_000 + number, 1, "", True) for number in range(200)]
        *others, found = open_in(Proc(), os.getpid(), [*crowd, HeldLock(dev, status.st_ino, os.getppid(), "", True)])
        assert found.path == file.name
    assert found.name == Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    assert others == crowd


def test_without_the_file_there_are_none(tmp_path: Path) -> None:
    assert held_locks(Proc(), str(tmp_path / "none")) == ()
