# SPDX-License-Identifier: Apache-2.0
"""Which files the processes of this host execute, by inode: what is no longer among them needs no marks."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator

from trainprobe.bpf.paths import Proc

MAX_MAPS_BYTES = 16 << 20
Inode = tuple[int, int]  # device and number, as stat tells them
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ (\d+) +(/.*)$", re.MULTILINE)
_LIKELY = re.compile(rb"(libtorch|python|libpython)")
_NONE_OF_OURS = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM)
"""It has ended, or is closed to us: then we never saw a library in it either."""


def files_executed(wanted: Collection[Inode], proc: Proc | None = None, root: str = "/proc") -> frozenset[Inode] | None:
    """Those of ``wanted`` that a process has mapped to execute, under whatever name; None: that cannot be told. A read
    that hangs is given up where ``proc`` does the reading."""
    numbers = {b"%d" % number for _, number in wanted}
    found: set[Inode] = set()
    for pid in _processes(root):
        try:
            text = read_maps(pid, root) if proc is None else proc.maps(int(pid)) or b""
        except OSError as error:
            if error.errno in _NONE_OF_OURS:
                continue
            return None
        if len(text) == MAX_MAPS_BYTES or (proc and not text and int(pid) in proc.hanging()):
            return None
        found.update(_inodes(f"{root}/{pid}/map_files", text, numbers))
    return frozenset(found.intersection(wanted))


def read_maps(pid: int | str, root: str = "/proc") -> bytes:
    """The maps of a process, up to MAX_MAPS_BYTES. Raises OSError."""
    with open(f"{root}/{pid}/maps", "rb") as file:
        return file.read(MAX_MAPS_BYTES)


def _processes(proc: str) -> Iterator[str]:
    return (name for name in os.listdir(proc) if name.isdecimal())


def _inodes(files: str, maps: bytes, numbers: Collection[bytes]) -> Iterator[Inode]:
    """The table of maps shows another number than stat for a file of some layered file systems: there the name tells
    which ones are worth a look."""
    for start, end, number, path in _LINE.findall(maps):
        if number not in numbers and not _LIKELY.match(os.path.basename(path)):
            continue
        try:
            status = os.stat(f"{files}/{int(start, 16):x}-{int(end, 16):x}")  # without the zeros of maps
        except OSError:
            continue  # unmapped meanwhile
        yield status.st_dev, status.st_ino
