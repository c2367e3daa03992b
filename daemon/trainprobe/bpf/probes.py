# SPDX-License-Identifier: Apache-2.0
"""All of the kernel programs, for the rest of the daemon: watch processes, drain events, read ledgers."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from ctypes import c_uint8, c_uint32, c_uint64
from dataclasses import replace
from operator import attrgetter

from trainprobe.bpf import abi
from trainprobe.bpf.attach import syscalls
from trainprobe.bpf.attach.attachments import Attachments
from trainprobe.bpf.attach.cuda import Cuda
from trainprobe.bpf.attach.gpu_clocks import GpuClocks
from trainprobe.bpf.attach.library_readers import MarksAttached
from trainprobe.bpf.attach.marks import Marks
from trainprobe.bpf.attach.user_quota import UserQuota
from trainprobe.bpf.attach.watching import Watching
from trainprobe.bpf.compile import kernel_types
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load.loader import Compiling, Loaded
from trainprobe.bpf.load.maps import Levels, Ring
from trainprobe.bpf.read import decode
from trainprobe.bpf.read.batched_rows import BatchedRows
from trainprobe.bpf.read.decode import Candidate, NamedFile, RawFailure, RawLook, Site
from trainprobe.bpf.read.ledgers import Ledgers
from trainprobe.bpf.read.open_files import OpenFiles
from trainprobe.bpf.read.paths import Paths, ProcessFiles, read_bounded
from trainprobe.bpf.read.starts import Starts
from trainprobe.bpf.read.step_deadlines import Alarms
from trainprobe.model.cells import RowKind
from trainprobe.model.event import (
    Event,
    FileEvent,
    HostStoodStill,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    ThreadSample,
)
from trainprobe.model.message import Message
from trainprobe.model.sample import BlockIoSample
from trainprobe.model.step_deadline import Armed, DriverProgress

__all__ = ["Candidate", "MarksAttached", "Probes", "ProbesUnavailable"]

CROWDED = 1536  # ledgers of the 2048 and more that there is room for
_FIRST = frozenset((RowKind.DRIVER, RowKind.GPU, RowKind.RHYTHM))
"""Rows that a driver's first step may begin with."""
_LIVES = (ProcessEventKind.FORK, ProcessEventKind.EXEC)


class Probes:
    """Programs attached to the kernel, and what they tell. One thread; nothing here waits, except start()."""

    def __init__(self, loaded: Loaded, proc: ProcessFiles) -> None:
        self._loaded = loaded
        self._calls = loaded.calls
        self._levels = Levels(loaded.maps["levels"], kernel_types.tid_room())
        self._ring = Ring(loaded.lib, loaded.maps["ring"])
        self._ledgers = Ledgers(loaded)
        self._requests = loaded.map("requests", abi.RequestKey, abi.RequestUse)
        self._lost_counts = loaded.map("lost", c_uint32, c_uint64)
        apart = proc.apart()
        self._marks = Marks(loaded.programs, self._calls.attach_uprobe, apart, UserQuota(owner=proc.owner))
        self.hung = self._marks.hung
        sites = loaded.map("gpu_sites", abi.GpuSite, c_uint8)
        beats = loaded.map("gpu_beats", abi.GpuCaller, abi.GpuBeat)
        clocks = GpuClocks(beats, loaded.map("gpu_clocks", c_uint32, abi.GpuCaller), self._marks.attach_for)
        self._cuda = Cuda(self._marks.attach_at, self._calls.attach_uprobe, loaded.programs, sites, clocks, apart)
        self._alarms = Alarms(loaded)
        self._held = BatchedRows(loaded)
        self._paths = Paths(proc)
        self._starts = Starts(loaded, proc)
        self._files = OpenFiles(loaded, self._ledgers, self._paths)
        self._call_names = {**syscalls.names(os.uname().machine), abi.CALL_GPU_ALLOCATE: "cudaMalloc"}
        self._watching = Watching(loaded, self._levels, self._ledgers, self._paths, proc)
        self._attachments = Attachments(loaded, self._watching.processes, self._ledgers, self._levels, proc.helpers)
        self._malformed = 0
        self._closed = False

    @classmethod
    def start(cls, proc: ProcessFiles, *, auto: bool, begun: Compiling | None = None) -> Probes:
        """Compile, load and attach; with ``auto`` also tell what unwatched processes do. ``begun``: that is under way
        already. Raises ProbesUnavailable."""
        return cls((begun or Compiling(auto=auto)).finish(), proc)

    def await_marks(self) -> None:
        """Start() returns before the programs of uprobes are loaded; this when they are. Raises ProbesUnavailable."""
        self._loaded.await_marks()

    # ---- watching ----

    def watch(self, pid: int, descendants: int = 1 << 31) -> None:
        """This process, its threads and so many descendants, from now on; again does no harm. Raises OSError."""
        self._attachments.resume()
        self._watching.watch(pid, descendants)

    def unwatch(self, pid: int) -> None:
        """Stop watching this process; its children stay watched."""
        self._watching.unwatch(pid)
        self._files.forget(pid)

    def attach_marks(self, pid: int, path: str, start: int, end: int) -> MarksAttached | None:
        """Attach the step marks to the libtorch that the process maps from start to end; None: not yet, ask again.

        Raises OSError; where it is one of PASSING, ask again with the library's mapping as it is then.
        """
        attached = self._marks.attach(pid, path, start, end)
        if attached is not None:
            if any(attached.found.values()):
                self._cuda.take_clock(pid)
            self._cuda.attach_marks(pid)
        return attached

    def refusal(self) -> str | Message:
        """Whose threads had more than their part of the ledgers of late, or whose libraries wait; "" nobody's."""
        return self._watching.refusal() or self._marks.refusal()

    def clock_by_gpu(self, pid: int) -> None:
        """Nothing else marks the steps of this process: its calls of CUDA shall. Again, as it loads libraries."""
        self._cuda.give_clock(pid)

    def fault_tracing(self, on: bool) -> None:
        """Trace every page fault: dear, and needed only where swap comes back without waiting (zram)."""
        self._attachments.trace_faults(on)

    def look_tracing(self, on: bool) -> None:
        """Tell which files drivers ask for (``FileLooked``): of use while one sleeps and should not."""
        self._attachments.trace_looks(on)

    # ---- what happened ----

    def fileno(self) -> int:
        """Readable when something rare happened: a driver's first mark, the life of a process."""
        return self._ring.descriptor

    def drain(self) -> list[Event | Candidate]:
        """Everything told since the last call, in time order."""
        events: list[Event | Candidate] = []
        self._attachments.look_after()
        self._held.read()
        told = [one for raw in self._ring.drain() if (one := self._decoded(raw)) is not None]
        born = (one.pid for one in told if isinstance(one, ProcessEvent) and one.kind in _LIVES)
        self._paths.note_directories(born)  # in one request: a user can fork thousands in a second
        for one in told:
            events += self._finish(one)
        events += self._held.rest()
        events += self._files.take_late()
        events.sort(key=attrgetter("at_ns"))
        return events

    def _decoded(self, raw: bytes) -> decode.Decoded | None:
        try:
            return decode.message(raw)
        except decode.Malformed:
            self._malformed += 1
            return None

    def _finish(self, told: decode.Decoded) -> list[Event | Candidate]:
        if isinstance(told, MarkRow):  # most are
            if told.kind is RowKind.DRIVER and self._watching.driver_found(told.pid):
                self._cuda.attach_marks(told.pid)  # by now it has loaded what it trains with
            news = self._held.news_of(told) if told.lengths else told
            start = self._starts.take_record(told.pid, told.at_ns) if told.kind in _FIRST else None
            return [one for one in (news, start) if one is not None]
        if isinstance(told, NamedFile):
            self._files.opened(told.event)
            return [self._paths.resolve(told)]
        if isinstance(told, FileEvent):
            return [self._paths.complete(told)]
        if isinstance(told, ProcessEvent):
            return self._lived(told)
        if isinstance(told, RawLook):
            looked = self._paths.of_look(told)
            return [looked] if looked.path else []
        if isinstance(told, Site):
            self._cuda.arm(told.pid, told.address)
            return []
        if isinstance(told, HostStoodStill):
            return [told]
        if isinstance(told, RawFailure):
            return [replace(told.event, call=self._call_names.get(told.number, ""), path=self._paths.of_failure(told))]
        self._attachments.started(told.pid)
        return [told]

    def _lived(self, event: ProcessEvent) -> list[Event | Candidate]:
        if event.kind is ProcessEventKind.EXEC:
            self._paths.note_space(event.pid)
            self._starts.forget(event.pid)
            self._cuda.forget(event.pid)
            command = self._watching.proc.command(event.pid) or ()
            self._watching.executed(event.pid, event.comm, command)
            return [replace(event, command=command)]
        if event.kind is ProcessEventKind.FORK:
            self._paths.note_fork(event.pid, event.ppid)
        if event.kind is not ProcessEventKind.EXIT:
            return [event]
        return [*self.ended(event.pid, event.at_ns), event]

    def ended(self, pid: int, at_ns: int) -> list[FileEvent]:
        """Forget a process, also one whose end the ring lost; the totals of its files."""
        self._paths.forget(pid)
        self._watching.forget(pid)
        self._starts.forget(pid)
        self._cuda.forget(pid)
        return self._files.end_of(pid, at_ns)

    # ---- what is ----

    def threads(self, pids: Collection[int] | None = None) -> list[ThreadSample]:
        """What the watched threads with a ledger do now: of these processes, or of all."""
        found = []
        ledgers = self._files.take_ledgers()
        if len(ledgers) >= CROWDED:
            self._watching.make_room(ledgers)
        for tid, ledger in ledgers:
            level = self._levels[tid]
            if (pids is not None and ledger.tgid not in pids) or not level or (pids is None and level & abi.QUIET):
                continue
            try:
                sample = decode.thread_sample(ledger, level, time.monotonic_ns(), self._call_names)
            except decode.Malformed:
                self._malformed += 1
                continue
            path = self._paths.of_thread(sample)
            found.append(replace(sample, path=path) if path else sample)
        return found

    def progress(self, tid: int) -> DriverProgress | None:
        """How far a driver is: one look-up, no decoding."""
        ledger = self._ledgers.get(tid)
        return DriverProgress(ledger.steps, ledger.backwards, ledger.step_at) if ledger else None

    def alarm(self, steps: Collection[Armed], *, ended: bool, together: bool) -> bool:
        """Wake whoever waits on ``fileno`` when one of these drivers is late, in this step or in any later one
        (``ended``: also where it was late for so short a time that it is over). ``together``: their steps in time may
        be told together, by the second. In place of those asked for before; False: it cannot be done, and is not."""
        limits = {one.tid: one.limit_ns - one.began_ns for one in steps}
        kept = self._alarms.set(limits, ended=ended, together=together)
        self._held.allow(limits if kept and together else ())
        return kept

    def open_files(self) -> list[FileEvent]:
        """Files open for writing now, calls in flight included. Also lets go of files closed long ago: what was still
        to be said about them comes with the next drain()."""
        self._loaded.look_after()
        self._marks.look_after()
        self._cuda.look_after(time.monotonic_ns())
        self._starts.make_room(time.monotonic_ns())
        return self._files.read(time.monotonic_ns())

    def block_io(self) -> tuple[BlockIoSample, ...]:
        """What the host's block devices did, and how long it took them."""
        return tuple(
            BlockIoSample(key.dev, abi.OPERATIONS[key.operation], use.ns, tuple(use.count))
            for key, use in self._requests.entries()
        )

    # ---- about ourselves ----

    def lost(self) -> dict[str, int]:
        """Messages and ledgers lost since the start, by probe."""
        found = {key.value: count.value for key, count in self._lost_counts.entries()}
        counts = {probe.name.lower(): found.get(probe, 0) for probe in abi.Lost}
        return {**counts, "ledger": counts["ledger"] + self._watching.refused, "malformed": self._malformed}

    def missing(self) -> list[str]:
        """Events that this kernel does not have."""
        return self._loaded.missing

    def cost(self) -> tuple[float | None, dict[str, int]]:
        """Seconds spent in BPF and runs by program; None and {} while kernel.bpf_stats_enabled is 0."""
        if read_bounded("/proc/sys/kernel/bpf_stats_enabled", 16).strip() in (b"", b"0"):
            return None, {}
        statistics = {name: self._calls.run_statistics(fd) for name, fd in self._loaded.programs.items()}
        return sum(ns for ns, _ in statistics.values()) / 1e9, {name: runs for name, (_, runs) in statistics.items()}

    def close(self) -> None:
        """Detach everything; nothing stays behind. Again does no harm."""
        if self._closed:
            return
        self._closed = True
        self._marks.close()
        self._cuda.close()
        self._attachments.close()
        self._watching.stop()
        self._ring.close()
        self._levels.close()
        self._loaded.close()
