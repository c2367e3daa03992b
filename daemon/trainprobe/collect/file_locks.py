"""Who holds a lock on a file: /proc/locks (proc_locks(5)). Waiters have lines of their own, marked with an arrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainprobe.collect.helper_program import FDS
from trainprobe.collect.lines import lines_of
from trainprobe.collect.procfs import Proc, read_file
from trainprobe.model.sample import HeldLock

SIZE = 1 << 16
HOLDERS = 16  # with more, names are not read but of those on a file that the process has open
LOOKED_UP = 4  # of these


def held_locks(proc: Proc, path: str = "/proc/locks") -> tuple[HeldLock, ...]:
    """The locks that processes of this host hold; of a network file system also those that this host was given."""
    found = list(parse((read_file(path, SIZE) or b"").decode("utf-8", "replace")))
    named = len(found) <= HOLDERS
    return tuple(
        HeldLock(dev, ino, pid, _name(proc, pid) if named else "", exclusive) for dev, ino, pid, exclusive in found
    )


def open_in(proc: Proc, pid: int, locks: Sequence[HeldLock]) -> Iterator[HeldLock]:
    """The locks; those that others hold alone on a file that the process has open too, with its path and their name.
    Anybody can hold any number on other files."""
    opened = _opened(proc, pid) if any(one.exclusive and one.pid not in (-1, pid) for one in locks) else ()
    left = LOOKED_UP
    for one in locks:
        if one.exclusive and one.pid not in (-1, pid) and (one.dev, one.ino) in opened and left:
            left -= 1
            device = os.makedev(one.dev >> 20, one.dev & 0xFFFFF)
            path = (proc.ask(pid, "opened", "fd", device, one.ino) or b"").decode("utf-8", "surrogateescape")
            one = replace(one, path=path, name=one.name or _name(proc, one.pid))
        yield one


def _opened(proc: Proc, pid: int) -> set[tuple[int, int]]:
    """Device as the kernel has it, and inode, of files that the process has open."""
    names = (proc.ask(pid, "names", "fd", FDS) or b"").decode("ascii", "replace").split("\0")
    found = proc.files(pid, [f"fd/{name}" for name in names if name])
    return {(os.major(device) << 20 | os.minor(device), ino) for device, ino, _ in found}


def parse(text: str) -> Iterator[tuple[int, int, int, bool]]:
    """(dev as the kernel has it, ino, pid, exclusive) of each holder. A lock of an open file description has no pid:
    -1."""
    for line in lines_of(text):
        words = line.split()
        if len(words) < 8 or words[1] == "->":
            continue
        major, minor, ino = [*words[5].split(":"), "", ""][:3]
        try:
            yield int(major, 16) << 20 | int(minor, 16), int(ino), int(words[4]), words[3] == "WRITE"
        except ValueError:
            continue


def _name(proc: Proc, pid: int) -> str:
    return (proc.read(pid, "comm", 64) or b"").decode("utf-8", "replace").strip() if pid > 0 else ""
