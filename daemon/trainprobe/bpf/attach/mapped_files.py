# SPDX-License-Identifier: Apache-2.0
"""Files that a process maps to execute: their addresses, and the file itself by /proc/PID/map_files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from trainprobe.bpf.read.paths import ProcessFiles

_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) [0-9a-f]+:[0-9a-f]+ \d+ +(/.*)$", re.MULTILINE)


class MappedCode(NamedTuple):
    """Where a process maps code of a file: its addresses, where in the file they begin, and the file's name."""

    start: int
    end: int
    offset: int
    path: bytes


def executable_maps(pid: int, proc: ProcessFiles) -> Iterator[MappedCode]:
    """Code of files that the process maps. Raises ProcessLookupError when it is gone, BlockingIOError when its maps
    cannot be read now, PermissionError when they may not be read."""
    text = proc.maps(pid)
    if text is None:
        raise not_read(pid, proc)
    for start, end, offset, path in _LINE.findall(text):
        yield MappedCode(int(start, 16), int(end, 16), int(offset, 16), path)


def not_read(pid: int, proc: ProcessFiles) -> OSError:
    """Why a read of a process has no answer."""
    if proc.is_silent(pid):
        return BlockingIOError(errno.EAGAIN, "it cannot be read now")
    if os.path.exists(f"{proc.root}/{pid}"):
        return PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


def file_of(pid: int, place: MappedCode, proc: ProcessFiles) -> tuple[int, int]:
    """Device and number of the file that the process maps there. Raises OSError as ``executable_maps`` does."""
    found = proc.file(pid, f"map_files/{place.start:x}-{place.end:x}")
    if found is None:
        raise not_read(pid, proc)
    return found[:2]


def open_mapping(pid: int, start: int, end: int) -> int:
    """A descriptor of the very file that the process maps there. Raises OSError."""
    return os.open(f"/proc/{pid}/map_files/{start:x}-{end:x}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def through_descriptor(descriptor: int) -> str:
    """A path of an open file that nobody can exchange meanwhile."""
    return f"/proc/{os.readlink('/proc/self')}/fd/{descriptor}"  # our number in this /proc


def sibling(pid: int, path: str, proc: ProcessFiles) -> MappedCode | None:
    """Where libtorch_python of the same directory is mapped. Raises OSError as ``executable_maps`` does."""
    directory = os.path.dirname(os.fsencode(path))
    for place in executable_maps(pid, proc):
        name = os.path.basename(place.path)
        if os.path.dirname(place.path) == directory and name.startswith(b"libtorch_python.so"):
            return place
    return None
