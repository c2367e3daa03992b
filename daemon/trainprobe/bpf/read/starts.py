# SPDX-License-Identifier: Apache-2.0
"""The files that a program opened before its first step, from the kernel's record, which is read once."""

from __future__ import annotations

from ctypes import c_uint32

from trainprobe.bpf import abi
from trainprobe.bpf.load.loader import Loaded
from trainprobe.bpf.read.paths import ProcessFiles
from trainprobe.derive.python.frameworks import LOOPS
from trainprobe.model.event import OpenedFile, OpenedKind, OpenedSpan, StartSeen

_KINDS = {kind.value: OpenedKind[kind.name] for kind in abi.StartKind}


class Starts:
    """The records of processes that have not stepped yet."""

    def __init__(self, loaded: Loaded, proc: ProcessFiles) -> None:
        self._records = loaded.map("starts", c_uint32, abi.Start)
        self._proc = proc
        self._taken: set[int] = set()

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

    def forget(self, pid: int) -> None:
        """The process has ended, or runs another program: its record comes next."""
        self._taken.discard(pid)


def _absolute(path: bytes, folder: str) -> str:
    text = path.decode(errors="surrogateescape")
    return text if text.startswith("/") or not folder else f"{folder}/{text}"
