# SPDX-License-Identifier: Apache-2.0
"""The kernel side as the rest of the program sees it: watch processes, drain events, read ledgers."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from ctypes import c_uint8, c_uint32, c_uint64
from dataclasses import replace

from trainprobe.bpf import abi, decode, kernel_types, seed
from trainprobe.bpf.decode import Candidate, NamedFile
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.loader import Kernel, Levels, Loaded, Ring, load
from trainprobe.bpf.marks import Marks, MarksAttached
from trainprobe.bpf.paths import Paths, shared_memory_devices
from trainprobe.model.cells import Leaf
from trainprobe.model.event import (
    Event,
    FileEvent,
    FileEventKind,
    Level,
    ProcessEvent,
    ProcessEventKind,
    RunState,
    ThreadSample,
)

__all__ = ["Candidate", "MarksAttached", "Probes", "ProbesUnavailable"]

SETTLED_NS = 2_000_000_000  # a closed file's last small totals are told after this
FORGOTTEN_NS = 10_000_000_000  # and its entry is dropped after this
MAX_COMMAND_BYTES = 1 << 16
_ON_FILE = frozenset((Leaf.FILE_READ, Leaf.FILE_WRITE, Leaf.FILE_SYNC, Leaf.FILE_META, Leaf.READ_CPU))


class Probes:
    """Programs attached to the kernel, and what they tell. One thread; nothing here waits, except start()."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._kernel = Kernel()
        self._levels = Levels(loaded.maps["levels"], kernel_types.tid_room())
        self._ring = Ring(loaded.lib, loaded.maps["ring"])
        self._processes = loaded.map("processes", c_uint32, abi.Process)
        self._ledgers = loaded.map("ledgers", c_uint32, abi.Ledger)
        self._files = loaded.map("files", abi.FileKey, abi.FileUse)
        self._pool_owner = loaded.map("pool_owner", c_uint32, c_uint32)
        self._pool_target = loaded.map("pool_target", c_uint32, c_uint32)
        self._lost_counts = loaded.map("lost", c_uint32, c_uint64)
        self._skipped = loaded.map("skipped_devices", c_uint32, c_uint8)
        self._marks = Marks(loaded.programs, self._kernel.attach_uprobe)
        self._paths = Paths()
        self._late: list[Event] = []
        self._faults: int | None = None
        self._malformed = 0
        self._next_pool = 0
        self._closed = False
        self._skip_shared_memory()

    @classmethod
    def start(cls, *, auto: bool) -> Probes:
        """Compile, load and attach; with ``auto`` also tell what unwatched processes do. Raises ProbesUnavailable."""
        return cls(load(auto=auto))

    # ---- watching ----

    def watch(self, pid: int) -> None:
        """This process, its threads and all its descendants, from now on; again does no harm."""
        self._skip_devices(_read(f"/proc/{pid}/mountinfo"))
        self._open_process(pid, parent=0)
        self._open_thread(pid, pid, Level.FULL, pool=0)
        for parent, child in seed.descendants(pid):
            self._open_process(child, parent)
            self._open_thread(child, child, Level.COARSE, self._pool(parent))

    def unwatch(self, pid: int) -> None:
        """Stop watching this process; its children stay watched."""
        for tid in [*seed.threads(pid), pid]:
            self._levels[tid] = 0
            self._ledgers.delete(c_uint32(tid))
        self._drop_process(pid)

    def attach_marks(self, pid: int, path: str, start: int, end: int) -> MarksAttached:
        """Attach the step marks to the libtorch that the process maps from start to end."""
        return self._marks.attach(pid, path, start, end)

    def fault_tracing(self, on: bool) -> None:
        """Trace every page fault: dear, and needed only where swap comes back without waiting (zram)."""
        if on and self._faults is None:
            descriptor = self._loaded.attach_raw("on_page_fault", "page_fault_user")
            self._faults = descriptor if descriptor >= 0 else None
        elif not on and self._faults is not None:
            os.close(self._faults)
            self._faults = None

    # ---- what happened ----

    def fileno(self) -> int:
        """Readable when something rare happened: a driver's first mark, the life of a process."""
        return self._ring.descriptor

    def drain(self) -> list[Event | Candidate]:
        """Everything told since the last call, in time order."""
        events: list[Event | Candidate] = []
        for raw in self._ring.drain():
            try:
                events += self._finish(decode.message(raw))
            except decode.Malformed:
                self._malformed += 1
        events += self._late
        self._late = []
        events.sort(key=lambda event: event.at_ns)
        return events

    def _finish(self, told: decode.Decoded) -> list[Event | Candidate]:
        if isinstance(told, NamedFile):
            return [self._paths.resolve(told)]
        if isinstance(told, FileEvent):
            return [self._paths.complete(told)]
        if isinstance(told, ProcessEvent):
            return self._lived(told)
        return [told]

    def _lived(self, event: ProcessEvent) -> list[Event | Candidate]:
        if event.kind is ProcessEventKind.EXEC:
            self._paths.met(event.pid)
            return [replace(event, command=_command(event.pid))]
        if event.kind is ProcessEventKind.FORK:
            self._paths.met(event.pid)
        if event.kind is not ProcessEventKind.EXIT:
            return [event]
        left: list[Event | Candidate] = [
            self._closed_file(key, use, event.at_ns)
            for key, use in self._files.items()
            if key.tgid == event.pid and self._files.delete(key) and (use.calls or use.descriptors > 0)
        ]
        self._paths.forget(event.pid)
        return [*left, event]

    # ---- what is ----

    def threads(self, pids: Collection[int] | None = None) -> list[ThreadSample]:
        """What the watched threads with a ledger do now: of these processes, or of all."""
        found = []
        for key, ledger in self._ledgers.items():
            level = self._levels[key.value]
            if (pids is not None and ledger.tgid not in pids) or not level or (pids is None and level & abi.QUIET):
                continue
            try:
                sample = decode.thread_sample(ledger, level, time.monotonic_ns())
            except decode.Malformed:
                self._malformed += 1
                continue
            path = self._path_of(sample)
            found.append(replace(sample, path=path) if path else sample)
        return found

    def _path_of(self, sample: ThreadSample) -> str:
        if sample.run is not RunState.BLOCKED or not sample.ino:
            return ""
        if known := self._paths.of(sample.pid, sample.dev, sample.ino):
            return known
        if sample.leaf in _ON_FILE and sample.fd >= 0:
            try:
                return os.readlink(f"/proc/{sample.pid}/fd/{sample.fd}").removesuffix(" (deleted)")
            except OSError:
                return ""
        return _mapped(sample.pid, sample.ino) if sample.leaf is Leaf.FAULT else ""

    def open_files(self) -> list[FileEvent]:
        """Files open for writing now, calls in flight included. Also lets go of files closed long ago: what was still
        to be said about them comes with the next drain()."""
        found = []
        now = time.monotonic_ns()
        for key, use in self._files.items():
            if use.descriptors > 0:
                event = decode.file_event(FileEventKind.PROGRESS, now, key, use, use.tid)
                found.append(self._paths.complete(_with_flight(event, use, now)))
                continue
            quiet_ns = now - use.told
            settled = quiet_ns > (SETTLED_NS if use.calls else FORGOTTEN_NS)
            if settled and (last := self._files.take(key)) and last.calls:
                self._late.append(self._closed_file(key, last, now))
        return found

    def _closed_file(self, key: abi.FileKey, use: abi.FileUse, at_ns: int) -> FileEvent:
        return self._paths.complete(decode.file_event(FileEventKind.CLOSED, at_ns, key, use, use.tid))

    # ---- about ourselves ----

    def lost(self) -> dict[str, int]:
        """Messages and ledgers lost since the start, by probe."""
        counts = {probe.name.lower(): self._lost_counts.get(c_uint32(probe)) for probe in abi.Lost}
        return {**{name: count.value if count else 0 for name, count in counts.items()}, "malformed": self._malformed}

    def missing(self) -> list[str]:
        """Events that this kernel does not have."""
        return self._loaded.missing

    def cost(self) -> tuple[float | None, dict[str, int]]:
        """Seconds spent in BPF and runs by program; None and {} while kernel.bpf_stats_enabled is 0."""
        if _read("/proc/sys/kernel/bpf_stats_enabled").strip() in (b"", b"0"):
            return None, {}
        statistics = {name: self._kernel.run_statistics(fd) for name, fd in self._loaded.programs.items()}
        return sum(ns for ns, _ in statistics.values()) / 1e9, {name: runs for name, (_, runs) in statistics.items()}

    def close(self) -> None:
        """Detach everything; nothing stays behind. Again does no harm."""
        if self._closed:
            return
        self._closed = True
        self.fault_tracing(False)
        self._marks.close()
        self._ring.close()
        self._levels.close()
        self._loaded.close()

    # ---- opening by hand what a fork opens in the kernel ----

    def _open_process(self, pid: int, parent: int) -> None:
        key = c_uint32(pid)
        if not self._processes.insert(key, abi.Process(parent=parent)):
            known = self._processes.get(key)
            if known and known.tentative:
                known.tentative = 0
                self._processes.put(key, known)
        self._paths.met(pid)
        for tid in seed.threads(pid):
            if not self._levels[tid]:
                self._levels[tid] = Level.WRITER

    def _open_thread(self, pid: int, tid: int, level: Level, pool: int) -> None:
        now_doing = seed.doing(pid, tid)
        if now_doing is None:
            return
        now = time.monotonic_ns()
        ledger = abi.Ledger(
            at=now, opened=now, since=now, tid=tid, tgid=pid, pool=pool, run=now_doing.run, leaf=now_doing.leaf,
            why=now_doing.leaf, wait_leaf=now_doing.leaf, call=-1, blocked_call=now_doing.call, blocked_fd=now_doing.fd,
        )  # fmt: skip
        self._ledgers.insert(c_uint32(tid), ledger)  # one that is there already is kept
        self._levels[tid] = max(level, self._levels[tid] & ~abi.QUIET)

    def _pool(self, pid: int) -> int:
        """The pool that a process's children add their time up in."""
        process = self._processes.get(c_uint32(pid))
        if process is None or process.pool:
            return int(process.pool) if process else 0
        for _ in range(16):
            self._next_pool = (self._next_pool - 1) % (abi.POOLS - 1)  # downwards: the kernel counts upwards
            slot = c_uint32(self._next_pool + 1)
            if self._pool_owner.insert(slot, c_uint32(pid)):
                process.pool = slot.value
                self._processes.put(c_uint32(pid), process)
                return slot.value
        return 0

    def _drop_process(self, pid: int) -> None:
        process = self._processes.get(c_uint32(pid))
        if process and process.pool:
            self._pool_owner.delete(c_uint32(process.pool))
        self._processes.delete(c_uint32(pid))
        self._paths.forget(pid)

    def _skip_shared_memory(self) -> None:
        self._skip_devices(_read("/proc/self/mountinfo"))
        descriptor = os.memfd_create("trainprobe")
        device = os.fstat(descriptor).st_dev
        os.close(descriptor)
        self._skipped.put(c_uint32(os.major(device) << 20 | os.minor(device)), c_uint8(1))

    def _skip_devices(self, mountinfo: bytes) -> None:
        for device in shared_memory_devices(mountinfo):
            self._skipped.put(c_uint32(device), c_uint8(1))


def _with_flight(event: FileEvent, use: abi.FileUse, now: int) -> FileEvent:
    """Add the call that is in flight: a hung write has no end to tell of."""
    if not use.busy_since or now <= use.busy_since:
        return event
    spent = now - use.busy_since
    if use.busy_kind == abi.Call.SYNC:
        return replace(event, sync_ns=event.sync_ns + spent)
    return replace(event, write_ns=event.write_ns + spent)


def _command(pid: int) -> tuple[str, ...]:
    raw = _read(f"/proc/{pid}/cmdline", MAX_COMMAND_BYTES)
    return tuple(part.decode(errors="surrogateescape") for part in raw.rstrip(b"\0").split(b"\0")) if raw else ()


def _mapped(pid: int, ino: int) -> str:
    """The path of a mapped file by its inode."""
    wanted = b" %d " % ino
    for line in _read(f"/proc/{pid}/maps").split(b"\n"):
        if wanted in line and (at := line.find(b"/")) > 0:
            return line[at:].decode(errors="surrogateescape")
    return ""


def _read(path: str, limit: int = 4 << 20) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""
