# SPDX-License-Identifier: Apache-2.0
"""The inodes that processes of this host map to execute. A file that is not among them needs no marks."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator

from trainprobe.bpf.read.paths import ProcessFiles
from trainprobe.model.vocabulary import MAPS_LIMIT

Inode = tuple[int, int]  # device and number, as stat tells them
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ (\d+) +(/.*)$", re.MULTILINE)
_LIKELY = re.compile(rb"(libtorch|python|libpython)")


def files_executed(wanted: Collection[Inode], proc: ProcessFiles) -> frozenset[Inode] | None:
    """Those of ``wanted`` that a process has mapped to execute, under whatever name; None: that cannot be told."""
    numbers = {b"%d" % number for _, number in wanted}
    found: set[Inode] = set()
    for pid in _processes(proc.root):
        text = proc.maps(pid)
        if text is None and not proc.is_silent(pid):
            continue  # it has ended, or is closed to us: then we never saw a library in it either
        if text is None or len(text) == MAPS_LIMIT:
            return None
        found.update(file[:2] for file in proc.files(pid, _map_files(text, numbers)))  # some may be unmapped meanwhile
    return frozenset(found.intersection(wanted))


def _processes(root: str) -> Iterator[int]:
    return (int(name) for name in os.listdir(root) if name.isdecimal())


def _map_files(maps: bytes, numbers: Collection[bytes]) -> Iterator[str]:
    """The table of maps shows another number than stat for a file of some layered file systems: there the name tells
    which ones are worth a look."""
    for start, end, number, path in _LINE.findall(maps):
        if number in numbers or _LIKELY.match(os.path.basename(path)):
            yield f"map_files/{int(start, 16):x}-{int(end, 16):x}"  # without the zeros of maps
