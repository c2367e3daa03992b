# SPDX-License-Identifier: Apache-2.0
"""The files that watched processes write, as the kernel's programs count them, calls in flight included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from ctypes import c_uint32
from dataclasses import replace
from itertools import chain

from trainprobe.bpf import abi
from trainprobe.bpf.load.loader import Loaded
from trainprobe.bpf.read import decode
from trainprobe.bpf.read.ledgers import Ledgers
from trainprobe.bpf.read.paths import Paths
from trainprobe.model.event import FileEvent, FileEventKind

SETTLED_NS = 2_000_000_000  # a closed file's last small totals are reported after this
FORGOTTEN_NS = 10_000_000_000  # and its entry is dropped after this
_File = tuple[int, int, int]  # process, device, inode
_WRITING = frozenset((abi.Call.WRITE, abi.Call.SYNC, abi.Call.SUBMIT))


class OpenFiles:
    def __init__(self, loaded: Loaded, ledgers: Ledgers, paths: Paths) -> None:
        self._files = loaded.map("files", abi.FileKey, abi.FileUse)
        self._calls = loaded.map("calls", c_uint32, abi.CallRecord)  # of threads without a ledger
        self._ledgers = ledgers
        self._paths = paths
        self._just_read: Sequence[tuple[int, abi.Ledger]] = ()
        self._late: list[FileEvent] = []
        self._of: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)  # by process: device, inode
        self._ended: set[int] = set()  # processes, since the last ``read``

    def opened(self, event: FileEvent) -> None:
        """There is an entry, or was a moment ago."""
        if event.kind is FileEventKind.OPENED:
            self._of[event.pid].add((event.dev, event.ino))

    def read(self, now: int) -> list[FileEvent]:
        """Files open for writing at ``now``. Entries of files closed long ago are dropped (``take_late``): of those to
        which nothing was written, the end may not have been told either."""
        found = []
        flights: dict[_File, abi.CallRecord] | None = None
        entries = self._files.entries()
        self._of.clear()
        for key, use in entries:
            if key.tgid in self._ended:  # that it was opened was lost
                self._late += self._taken(key, now)
                continue
            self._of[key.tgid].add((key.dev, key.ino))
            if use.descriptors > 0:
                flights = self._flights() if flights is None else flights
                event = decode.file_event(FileEventKind.PROGRESS, now, key, use, use.tid)
                call = flights.get((key.tgid, key.dev, key.ino))
                found.append(self._paths.complete(_with_flight(event, call, now) if call else event))
                continue
            quiet_ns = now - use.told
            settled = quiet_ns > (SETTLED_NS if use.calls else FORGOTTEN_NS)
            if settled and (last := self._files.pop(key)) and (last.calls or last.opened >= last.told):
                self._late.append(self._closed(key, last, now))
        self._ended.clear()
        return found

    def take_late(self) -> list[FileEvent]:
        """The last totals of files that ``read`` dropped."""
        late, self._late = self._late, []
        return late

    def take_ledgers(self) -> Sequence[tuple[int, abi.Ledger]]:
        """All ledgers: those that ``read`` has just read for the calls in flight, if it did."""
        ledgers, self._just_read = self._just_read or self._ledgers.entries(), ()
        return ledgers

    def end_of(self, pid: int, at_ns: int) -> list[FileEvent]:
        """The process has ended: the totals of its files, whose entries are dropped. Short lives are many: the map is
        not searched for each."""
        self._ended.add(pid)
        files = sorted(self._of.pop(pid, ()))
        return [event for dev, ino in files for event in self._taken(abi.FileKey(tgid=pid, dev=dev, ino=ino), at_ns)]

    def forget(self, pid: int) -> None:
        """The process is watched no longer: who watches it again counts its descriptors anew."""
        for dev, ino in self._of.pop(pid, ()):
            self._files.delete(abi.FileKey(tgid=pid, dev=dev, ino=ino))

    def _taken(self, key: abi.FileKey, at_ns: int) -> list[FileEvent]:
        """The totals of an ended process's file, where it has any; its entry is dropped."""
        use = self._files.pop(key)
        return [self._closed(key, use, at_ns)] if use is not None and (use.calls or use.descriptors > 0) else []

    def _flights(self) -> dict[_File, abi.CallRecord]:
        """The write-class calls in flight, of each file the one that has lasted longest."""
        self._just_read = self._ledgers.entries()
        calls = chain((ledger.flying for _, ledger in self._just_read), (call for _, call in self._calls.entries()))
        flying = [call for call in calls if call.number and call.key.ino and call.kind in _WRITING]
        flying.sort(key=lambda call: -call.at)
        return {(call.key.tgid, call.key.dev, call.key.ino): call for call in flying}

    def _closed(self, key: abi.FileKey, use: abi.FileUse, at_ns: int) -> FileEvent:
        return self._paths.complete(decode.file_event(FileEventKind.CLOSED, use.closed or at_ns, key, use, use.tid))


def _with_flight(event: FileEvent, call: abi.CallRecord, now: int) -> FileEvent:
    """Add the call that is in flight: a hung write has no end event."""
    spent = max(0, now - call.at)
    if call.kind == abi.Call.SYNC:
        return replace(event, sync_ns=event.sync_ns + spent)
    return replace(event, write_ns=event.write_ns + spent)
