# SPDX-License-Identifier: Apache-2.0
"""The files that a program opened before its first step, from the kernel's record, which is read once."""

from __future__ import annotations

from ctypes import c_uint32

from trainprobe.bpf import abi
from trainprobe.bpf.load.loader import Loaded
from trainprobe.bpf.read.paths import ProcessFiles
from trainprobe.derive.python.frameworks import LOOPS
from trainprobe.model.event import OpenedFile, OpenedKind, OpenedSpan, StartSeen

ROOM_NS = 60_000_000_000
"""There is room again after so long at most."""
_NOBODY = c_uint32(0)
_KINDS = {kind.value: OpenedKind[kind.name] for kind in abi.StartKind}


class Starts:
    """The records of processes that have not stepped yet."""

    def __init__(self, loaded: Loaded, proc: ProcessFiles) -> None:
        self._records = loaded.map("starts", c_uint32, abi.Start)
        self._proc = proc
        self._taken: set[int] = set()
        self._looked_ns = 0

    def take_record(self, pid: int, at_ns: int) -> StartSeen | None:
        """The record of a process, once; from then on the kernel looks at nothing more."""
        if pid in self._taken:
            return None
        self._taken.add(pid)
        record = self._records.get(c_uint32(pid))
        if record is None:
            return None
        self._records.delete(c_uint32(pid))
        folder = self._proc.link(pid, "cwd")
        spans = tuple(
            OpenedSpan(_KINDS[span.kind], span.begin, span.end, span.opens)
            for span in record.spans[: min(record.spans_used, abi.START_SPANS)]
            if span.kind in _KINDS
        )
        files = tuple(
            OpenedFile(_absolute(file.path, folder), file.opened, file.last, file.bytes)
            for file in record.files[: min(record.files_used, abi.START_FILES)]
        )
        loops = tuple(name for place, name in enumerate(LOOPS) if record.loops >> place & 1)
        return StartSeen(at_ns, pid, record.began, spans, files, loops)

    def make_room(self, now_ns: int) -> None:
        """Where the table is full, leave a quarter to programs that start. Of those that never step the oldest go."""
        if now_ns - self._looked_ns < ROOM_NS:
            return
        self._looked_ns = now_ns
        if self._records.insert(_NOBODY, abi.Start()):
            self._records.delete(_NOBODY)
            return
        records = sorted((record.began, key.value) for key, record in self._records.entries())
        for _, pid in records[: abi.STARTS // 4]:
            self._records.delete(c_uint32(pid))

    def forget(self, pid: int) -> None:
        """The process has ended, or runs another program: its record comes next."""
        self._taken.discard(pid)


def _absolute(path: bytes, folder: str) -> str:
    """As ``end_of`` makes it, where there is the end alone."""
    text = path.decode(errors="surrogateescape")
    if len(path) == abi.START_PATH_SIZE - 1:
        return f"…/{text.partition('/')[2] or text}"
    return text if text.startswith("/") or not folder else f"{folder}/{text}"
