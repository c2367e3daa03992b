# SPDX-License-Identifier: Apache-2.0
"""Names of files: from what the process passed, or from the names that BPF walked, to what the process sees.

Nothing here touches the files themselves (a stat on a hung mount would hang us): only links and tables of /proc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from trainprobe.bpf.read.decode import NamedFile, RawFailure, RawLook
from trainprobe.bpf.read.names import Names
from trainprobe.derive.rate_limiter import RateLimiter
from trainprobe.model.cells import Leaf, ThreadState
from trainprobe.model.event import FileEvent, FileEventKind, FileLooked, ThreadSample
from trainprobe.model.text import end_of

MAX_PROCESSES = 8192  # also those whose end was lost; one that goes on is asked again
MAX_BYTES = 4 << 20
WALKS, WALKS_APART_NS = 64, 100_000_000
"""Tables of mounts that are read of one user for names of files whose descriptors are gone: so many at once, then one
each so long. He may have as many mounts as he likes."""
_AT_FDCWD = -100
_NOBODY = -1  # the process is gone
_DELETED = " (deleted)"
_ON_FILE = frozenset((Leaf.FILE_READ, Leaf.FILE_WRITE, Leaf.FILE_SYNC, Leaf.FILE_META, Leaf.READ_CPU))
_Kept = TypeVar("_Kept")
_OCTAL = re.compile(rb"\\([0-7]{3})")


class ProcessStat(Protocol):
    """What a process is called, and its flags (PF_*)."""

    @property
    def comm(self) -> str: ...
    @property
    def flags(self) -> int: ...


class ProcessFiles(Protocol):
    """What of /proc/PID may wait for the process, read with a deadline (``collect.procfs.Proc``). None and "": it is
    gone, or the read takes too long."""

    root: str
    helpers: Collection[int]  # processes of ours that read

    def command(self, pid: int, /) -> tuple[str, ...] | None: ...
    def link(self, pid: int, name: str, /) -> str: ...
    def links(self, pids: Iterable[int], name: str, /) -> dict[int, str]: ...
    def maps(self, pid: int, /) -> bytes | None: ...
    def read(self, pid: int, name: str, limit: int, /) -> bytes | None: ...
    def stats(self, pids: Iterable[int], /) -> Mapping[int, ProcessStat]: ...
    def threads(self, pid: int, limit: int, /) -> list[int]: ...
    def descendants(self, pid: int, /) -> Iterator[tuple[int, int]]: ...
    def file(self, pid: int, name: str, /) -> tuple[int, int, int] | None:
        """Device, number and length of a file that a link of the process leads to."""

    def files(self, pid: int, names: Iterable[str], /) -> list[tuple[int, int, int]]:
        """The same of many links, of those that can be read."""

    def is_silent(self, pid: int, /) -> bool:
        """Whether a read without an answer says nothing: the process cannot be read now."""

    def owner(self, pid: int, /) -> int:
        """The user who answers for a process. Raises OSError: there is none."""

    def apart(self) -> ProcessFiles:
        """The same for another thread."""


class Paths:
    """Remembers the present name of every written file, and which file a name meant."""

    def __init__(self, proc: ProcessFiles) -> None:
        self._proc = proc
        self._names = Names()
        self._directories: dict[int, str] = {}
        self._walks: dict[int, RateLimiter] = {}  # by user
        self._spaces: dict[int, int] = {}  # mount namespaces: of each container one; 0: not known

    def of(self, pid: int, dev: int, ino: int) -> str:
        """The last known name, "" where there is none."""
        return self._names.of((pid, dev, ino))

    def of_thread(self, sample: ThreadSample) -> str:
        """The file that a thread is blocked on, "" where there is none or it is not known."""
        if sample.run is not ThreadState.BLOCKED or not sample.ino:
            return ""
        if known := self.of(sample.pid, sample.dev, sample.ino):
            return known
        if sample.leaf in _ON_FILE and sample.fd >= 0:
            return self._opened(sample.pid, sample.fd)
        if sample.leaf is not Leaf.FAULT:
            return ""
        return _mapped(self._proc.maps(sample.pid) or b"", sample.dev, sample.ino)

    def of_failure(self, failed: RawFailure) -> str:
        """The file that a call failed on, "" where there is none or it is not known."""
        if failed.path:
            return failed.path.decode(errors="surrogateescape")
        event = failed.event
        known = self.of(event.pid, event.dev, event.ino)
        return known or (self._opened(event.pid, failed.fd) if event.ino else "")

    def of_look(self, look: RawLook) -> FileLooked:
        """With the path that was asked for, "" where it was a descriptor's."""
        return replace(look.event, path=self._absolute(look.event.pid, look.directory, look.path))

    def note_directory(self, pid: int) -> None:
        """Remember a process's working directory while it can be asked."""
        if directory := self._link(pid, "cwd"):
            _keep_latest(self._directories, pid, directory)

    def note_directories(self, pids: Iterable[int]) -> None:
        """The same of many, for little more than the price of one."""
        for pid, directory in self._proc.links(pids, "cwd").items():
            _keep_latest(self._directories, pid, end_of(directory))

    def note_process(self, pid: int) -> None:
        """The same of one that is watched from now on, and its mount namespace."""
        self.note_directory(pid)
        self.note_space(pid)

    def note_space(self, pid: int) -> None:
        """Remember the mount namespace of one that runs another program."""
        if space := self._asked_space(pid):
            _keep_latest(self._spaces, pid, space)

    def note_fork(self, pid: int, parent: int) -> None:
        """One that was forked has the mount namespace of its parent."""
        _keep_latest(self._spaces, pid, self._space(parent))

    def forget(self, pid: int) -> None:
        """It has ended. The totals of its files, which come now, need their names."""
        self._names.forget_ended(self._spaces)
        self._directories.pop(pid, None)
        self._spaces.pop(pid, None)

    def complete(self, event: FileEvent) -> FileEvent:
        """Give totals their name."""
        key = event.pid, event.dev, event.ino
        if event.kind is FileEventKind.PROGRESS:
            self._names.renew(key)
        return replace(event, path=self._names.of(key))

    def resolve(self, named: NamedFile) -> FileEvent:
        """Make the paths of an event absolute and follow renames."""
        event, space = named.event, self._space(named.event.pid)
        if event.kind is FileEventKind.OPENED:
            path = self._found(named) if named.parts else self._absolute(event.pid, named.directory, named.path)
            self._names.remember((event.pid, event.dev, event.ino), path, self._user(event.pid), space)
            return replace(event, path=path)
        path = self._absolute(event.pid, named.directory, named.path)
        new_path = self._absolute(event.pid, named.new_directory, named.new_path) if named.new_path else ""
        key = self._names.file(path, space)
        if key:
            event = replace(event, dev=key[1], ino=key[2])
        if event.errno == 0 and event.kind is FileEventKind.RENAMED:
            self._names.rename(path, new_path, space)
        elif event.errno == 0 and event.kind is FileEventKind.UNLINKED:
            self._names.forget(path, space)
        return replace(event, path=path, new_path=new_path)

    def _opened(self, pid: int, descriptor: int) -> str:
        return self._link(pid, f"fd/{descriptor}").removesuffix(_DELETED)

    def _link(self, pid: int, name: str) -> str:
        return end_of(self._proc.link(pid, name))

    def _space(self, pid: int) -> int:
        """A process's mount namespace: in two of them a path means two files. Asked for once."""
        if pid not in self._spaces:
            _keep_latest(self._spaces, pid, self._asked_space(pid))
        return self._spaces[pid]

    def _asked_space(self, pid: int) -> int:
        digits = self._proc.link(pid, "ns/mnt").removeprefix("mnt:[").removesuffix("]")
        return int(digits) if digits.isdecimal() else 0

    def _user(self, pid: int) -> int:
        try:
            return self._proc.owner(pid)
        except OSError:
            return _NOBODY

    def _absolute(self, pid: int, directory: int, raw: bytes) -> str:
        path = raw.decode(errors="surrogateescape")
        if path.startswith("/") or not path:
            return path
        if directory == _AT_FDCWD:
            self.note_directory(pid)
            base = self._directories.get(pid, "")
        else:
            base = self._link(pid, f"fd/{directory}")
        return end_of(os.path.normpath(f"{base}/{path}")) if base else path

    def _found(self, named: NamedFile) -> str:
        """A file that was opened before we watched: its descriptor's link, where it still is that file."""
        pid = named.event.pid
        link = self._proc.link(pid, f"fd/{named.fd}")
        last = named.parts[0].decode(errors="surrogateescape")  # the beginning of the name, where it is long
        if link.startswith("/") and os.path.basename(link.removesuffix(_DELETED)).startswith(last):
            return end_of(link.removesuffix(_DELETED))
        walks = self._walks.setdefault(self._user(pid), RateLimiter(WALKS, WALKS_APART_NS))
        if named.event.at_ns < walks.next_ns():
            return end_of(f"…/{last}")
        walks.count_one(named.event.at_ns)
        self._walks = {user: of for user, of in self._walks.items() if not of.is_full(named.event.at_ns)}
        inner = "/".join(part.decode(errors="surrogateescape") for part in reversed(named.parts))
        return end_of(f"{self._mount_point(pid, named.event.dev)}/{'…/' if named.deeper else ''}{inner}")

    def _mount_point(self, pid: int, dev: int) -> str:
        """Where the file system is mounted in the process's view, in ours when it has ended; "" for its root."""
        table = self._proc.read(pid, "mountinfo", MAX_BYTES)
        table = table or read_bounded(f"{self._proc.root}/self/mountinfo")
        for mount in mounts(table):
            if mount.dev == dev and mount.root == "/":
                return mount.point.rstrip("/")
        return ""


class MountPoint:
    """A line of mountinfo that matters here; dev in the kernel's form."""

    __slots__ = ("dev", "kind", "point", "root")

    def __init__(self, dev: int, root: str, point: str, kind: str) -> None:
        self.dev, self.root, self.point, self.kind = dev, root, point, kind


def mounts(mountinfo: bytes) -> list[MountPoint]:
    """Parse /proc/PID/mountinfo; lines that are not understood are left out."""
    found = []
    for line in mountinfo.split(b"\n"):
        fields, _, rest = line.partition(b" - ")
        words = fields.split(b" ")
        try:
            major, minor = words[2].split(b":")
            dev = int(major) << 20 | int(minor)
            kind = rest.split(b" ")[0].decode("ascii", "replace")
            found.append(MountPoint(dev, _unescape(words[3]), _unescape(words[4]), kind))
        except (IndexError, ValueError):
            continue
    return found


def _keep_latest(table: dict[int, _Kept], pid: int, value: _Kept) -> None:
    """As the latest of so many."""
    table.pop(pid, None)
    table[pid] = value
    if len(table) > MAX_PROCESSES:
        del table[next(iter(table))]


def _mapped(maps: bytes, dev: int, ino: int) -> str:
    """The mapped file with this number on this device; on any where none is: an overlay shows its own."""
    wanted, device = b" %d " % ino, b" %02x:%02x " % (dev >> 20, dev & 0xFFFFF)
    found = [line for line in maps.split(b"\n") if wanted in line and b"/" in line]
    best = next((line for line in found if device + wanted[1:] in line), found[0] if found else b"")
    return end_of(best[best.find(b"/") :].decode(errors="surrogateescape")) if best else ""


def _unescape(raw: bytes) -> str:
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), raw).decode(errors="surrogateescape")


def shared_memory_device(mountinfo: bytes) -> int | None:
    """Device of the tmpfs that is mounted last at /dev/shm; None: it is none."""
    lines = [line for line in mountinfo.split(b"\n") if b" /dev/shm " in line]  # of thousands
    found = [mount for mount in mounts(b"\n".join(lines)) if mount.point == "/dev/shm"][-1:]
    return next((mount.dev for mount in found if mount.kind == "tmpfs"), None)


def read_bounded(path: str, limit: int = MAX_BYTES) -> bytes:
    """The beginning of a file of /proc; b"" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""
