# SPDX-License-Identifier: Apache-2.0
"""Uprobes on the libtorch of a process and on its interpreter: which functions, and attaching them through the very
mapping that runs.

Names are matched by the beginning of their mangled form: the two std::string ABIs mangle arguments differently, and
internal functions carry an ``L`` where the compiler made them static.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from trainprobe.bpf import symbols
from trainprobe.bpf.executed import MAX_MAPS_BYTES, Inode, files_executed
from trainprobe.bpf.kernel_calls import UprobeRefused
from trainprobe.bpf.rations import ROOT, Rations

MAX_LIBRARIES = 64
MAX_LOOKS, LOOKS_OF_ROOT = 16, 4  # libraries that are read at a time
RELEASE_SECONDS, RELEASE_SOONEST_SECONDS = 600.0, 30.0
MAX_PROBES_PER_MARK = 8
NOBODY: Inode = (0, 0)
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) [0-9a-f]+:[0-9a-f]+ \d+ +(/.*)$", re.MULTILINE)


class Place(NamedTuple):
    """Where a process maps code of a file: its addresses, where in the file they begin, and the file's name."""

    start: int
    end: int
    offset: int
    path: bytes


@dataclass(frozen=True)
class Mark:
    name: str
    program: str
    prefixes: tuple[bytes, ...]
    required: bool = False  # without it there are no steps
    anywhere: bool = False  # no argument is read, so it may sit behind the first instructions


IN_CPU = (
    Mark("backward", "on_backward", (b"_ZN5torch8autograd6Engine7executeE",), required=True),
    Mark("graph_task", "on_graph_task", (b"_ZN5torch8autograd6Engine23execute_with_graph_taskE",)),
    Mark(
        "backward_end",
        "on_backward_end",
        (b"_ZN5torch8autograd9GraphTask41mark_as_completed_and_run_post_processingE",),
    ),
    Mark("record", "on_record", (b"_ZN5torch8autograd8profiler25record_function_enter_newE",), required=True),
    Mark(
        "record_end",
        "on_record_end",
        (
            b"_ZN5torch8autograd8profilerL24record_function_exit_newE",
            b"_ZN5torch8autograd8profiler24record_function_exit_newE",
        ),
        anywhere=True,
    ),
)
IN_PYTHON = (
    Mark("set_grad", "on_set_grad", (b"_ZN5torch8autogradL16set_grad_enabledEP7_objectS2_S2_",)),
    Mark("set_grad_single", "on_set_grad_single", (b"_ZN5torch8autogradL16set_grad_enabledEP7_objectS2_\0",)),
)

IN_INTERPRETER = (
    Mark("collector", "on_collector", (b"usdt:python:gc__start",)),
    Mark("collector_end", "on_collector_end", (b"usdt:python:gc__done",)),
)
"""CPython's own probes, which Debian, Ubuntu, Fedora and Red Hat build in."""
_INTERPRETER = re.compile(rb"(lib)?python3(\.\d+)?t?(\.so[.\d]*)?$")
Attach = Callable[[int, str, int, int, "int | None"], int]
"""(program, path, offset, offset of the counter or 0, pid or None for every process) -> descriptor. Raises
UprobeRefused."""


@dataclass(frozen=True)
class MarksAttached:
    """Marks of one libtorch: which were found, and why not all of them ("" when nothing required is missing)."""

    dev: int
    ino: int
    found: dict[str, bool] = field(default_factory=dict)
    reason: str = ""


@dataclass
class _Look:
    """A library on its way: opened, read and given its marks by a thread. ``attached`` None: another one is at it."""

    pid: int
    uid: int
    done: bool = False
    attached: MarksAttached | None = None


class Marks:
    """Remembers what is attached, by inode; a uprobe on an inode serves every process that maps it.

    The file is somebody else's: it may lie on a disk that hangs, or take its reader ten seconds. So a thread looks at
    it, one for each user at a time, and nobody waits for it.
    """

    def __init__(self, programs: Mapping[str, int], attach: Attach, rations: Rations | None = None) -> None:
        self._programs, self._attach = programs, attach
        self._rations = rations or Rations()
        self._looks: dict[str, _Look] = {}  # by path
        self._lock = threading.Lock()  # for all below
        self._busy: set[Inode] = set()
        self._done: dict[Inode, MarksAttached] = {}
        self._users: dict[Inode, int] = {}  # on whose account it was read
        self._interpreters: dict[Inode, bool] = {}
        self._descriptors: defaultdict[Inode, list[int]] = defaultdict(list)  # by the file that the marks came with
        self._asked: set[Inode] = set()  # since the last look at who executes what began
        self._released = time.monotonic()
        self._closed = False

    def attach(self, pid: int, path: str, start: int, end: int) -> MarksAttached | None:
        """Attach to libtorch_cpu, mapped by the process at this place, and to the libtorch_python beside it.

        None: not yet, ask again.
        """
        look = self._looks.get(path)
        if look is not None and not look.done:
            return None
        if look is not None:
            del self._looks[path]
            if look.pid == pid and look.attached is not None:
                return look.attached
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
        except OSError as error:
            return _not_opened(path, error)
        self._looks = {at: other for at, other in self._looks.items() if not other.done}
        users = Counter(other.uid for other in self._looks.values())
        if users[uid] < (LOOKS_OF_ROOT if uid == ROOT else 1) and len(self._looks) < MAX_LOOKS:
            look = self._looks[path] = _Look(pid, uid)
            name = "library-reader"
            threading.Thread(target=self._see, args=(look, path, start, end), name=name, daemon=True).start()
        return None

    def _see(self, look: _Look, path: str, start: int, end: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the loop's
        try:
            descriptor = open_mapping(look.pid, start, end)
            try:
                status = os.fstat(descriptor)
                look.attached = self._attach_once((status.st_dev, status.st_ino), look, path, descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            look.attached = _not_opened(path, error)
        finally:
            look.done = True

    def _attach_once(self, key: Inode, look: _Look, path: str, descriptor: int) -> MarksAttached | None:
        with self._lock:
            self._asked.add(key)
            full = len(self._done) >= MAX_LIBRARIES or bool(self._rations.refusal(look.uid))
        if full:
            self.release_unused(at_most_every=RELEASE_SOONEST_SECONDS)
        with self._lock:
            if (known := self._done.get(key)) or key in self._busy:
                return known
            if refusal := self._rations.refusal(look.uid):
                return MarksAttached(*key, {}, refusal)
            if len(self._done) >= MAX_LIBRARIES:
                return MarksAttached(*key, {}, f"more than {MAX_LIBRARIES} different libtorch files")
            self._busy.add(key)
        began = time.monotonic()
        attached = MarksAttached(*key, {}, f"{path}: cannot be read")
        try:
            attached = self._attach_both(key, look.pid, path, descriptor)
        finally:
            with self._lock:
                self._busy.discard(key)
                self._done[key], self._users[key] = attached, look.uid
                self._rations.took(look.uid, time.monotonic() - began, useful=any(attached.found.values()))
        return attached

    def _attach_both(self, key: Inode, pid: int, path: str, descriptor: int) -> MarksAttached:
        found, reason = self._attach_library(partial(self._keep, key), descriptor, IN_CPU)
        place = _sibling(pid, path)
        beside = self.attach_at(pid, place, IN_PYTHON, key) if place is not None else {}
        found["set_grad"] = any(beside.values())
        if any(found.values()):
            found["collector"] = self._attach_interpreter(pid)
        return MarksAttached(*key, found, reason)

    def attach_at(self, pid: int, place: Place, marks: tuple[Mark, ...], owner: Inode = NOBODY) -> dict[str, bool]:
        """Put marks on a library that the process maps there: which were found. Takes its time. They are taken away
        with those of file ``owner``, without one at the end."""
        try:
            descriptor = open_mapping(pid, place.start, place.end)
        except OSError:
            return {}
        try:
            return self._attach_library(partial(self._keep, owner), descriptor, marks)[0]
        finally:
            os.close(descriptor)

    def attach_for(self, pid: int, place: Place, marks: tuple[Mark, ...]) -> list[int]:
        """Put marks on a library that the process maps there, for that process alone: their descriptors, the caller's
        to close. Takes its time."""
        made: list[int] = []
        try:
            descriptor = open_mapping(pid, place.start, place.end)
        except OSError:
            return made
        try:
            self._attach_library(made.append, descriptor, marks, pid)
        finally:
            os.close(descriptor)
        return made

    def _attach_interpreter(self, pid: int) -> bool:
        """Whether both ends of a collection are told, by any file of the interpreter: libpython, or python itself."""
        told = False
        for place in list(executable_maps(pid)):
            if not _INTERPRETER.fullmatch(os.path.basename(place.path)):
                continue
            try:
                status = os.stat(f"/proc/{pid}/map_files/{place.start:x}-{place.end:x}")
            except OSError:
                continue
            key = (status.st_dev, status.st_ino)
            if self._is_new(key):
                ends = self.attach_at(pid, place, IN_INTERPRETER, key)
                self._interpreters[key] = len(ends) == len(IN_INTERPRETER) and all(ends.values())
            told = told or self._interpreters.get(key, False)
        return told

    def _is_new(self, key: Inode) -> bool:
        """Whether an interpreter is to be given its marks, by who asks first."""
        with self._lock:
            self._asked.add(key)
            if key in self._interpreters or len(self._interpreters) >= MAX_LIBRARIES:
                return False
            self._interpreters[key] = False
            return True

    def _keep(self, owner: Inode, descriptor: int) -> None:
        with self._lock:
            self._descriptors[owner].append(descriptor)
            if self._closed:
                self._let_go()

    def look_after(self) -> None:
        """Now and then, beside the loop: ``release_unused``."""
        with self._lock:
            due = bool(self._done) and not self._closed and time.monotonic() - self._released >= RELEASE_SECONDS
        if due:
            threading.Thread(target=self._release, name="library-reader", daemon=True).start()

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.release_unused(at_most_every=RELEASE_SECONDS)

    def release_unused(self, *, at_most_every: float = 0.0) -> None:
        """Take the marks from files that no process executes any more: each container brings files of its own, and a
        mark holds its file, deleted or not, on the disk. Reads the maps of all processes."""
        with self._lock:
            if self._closed or time.monotonic() - self._released < at_most_every:
                return
            self._released = time.monotonic()
            self._asked.clear()
            held = {*self._done, *self._interpreters}
        used = files_executed(held)
        if used is None:
            return
        with self._lock:
            # What was asked for meanwhile may be executed by a process that we did not see.
            gone = held - used - self._asked - self._busy
            released = [descriptor for key in gone for descriptor in self._forget(key)]
        for descriptor in released:
            os.close(descriptor)

    def _forget(self, key: Inode) -> list[int]:
        self._interpreters.pop(key, None)
        if self._done.pop(key, None) is not None:
            self._rations.gave_back(self._users.pop(key))
        return self._descriptors.pop(key, [])

    def _attach_library(
        self, keep: Callable[[int], None], descriptor: int, marks: tuple[Mark, ...], pid: int | None = None
    ) -> tuple[dict[str, bool], str]:
        # By descriptor, from symbols to attaching: a process that maps another file there meanwhile would choose where
        # in that file, perhaps the C library, a breakpoint goes.
        mapping = through_descriptor(descriptor)
        wanted = [prefix for mark in marks for prefix in mark.prefixes]
        table = symbols.find_apart(mapping, [prefix.rstrip(b"\0") for prefix in wanted])
        if isinstance(table, symbols.Unreadable):
            return {mark.name: False for mark in marks}, table.reason
        found: dict[str, bool] = {}
        reasons = []
        for mark in marks:
            places = {(s.offset, s.counter) for prefix in mark.prefixes for s in _matching(table, prefix)}
            found[mark.name] = False
            for offset, counter in sorted(places)[:MAX_PROBES_PER_MARK]:
                if mark.anywhere:
                    offset += cheap_place(os.pread(descriptor, 16, offset))
                try:
                    keep(self._attach(self._programs[mark.program], mapping, offset, counter, pid))
                    found[mark.name] = True
                except UprobeRefused as error:
                    reasons.append(f"{mark.name}: {error}")
            if mark.required and not places:
                reasons.append(f"{mark.name}: the library does not export it")
        return found, "; ".join(reasons)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        for descriptors in self._descriptors.values():
            for descriptor in descriptors:
                os.close(descriptor)
        self._descriptors.clear()


def _not_opened(path: str, error: OSError) -> MarksAttached:
    return MarksAttached(0, 0, {}, f"{path}: the mapping cannot be opened: {error.strerror}")


def cheap_place(code: bytes) -> int:
    """How far behind a function's first instruction a probe costs 1 us and not 10.

    The kernel emulates a push or a jump, and single-steps what it cannot emulate. record_function_exit_new begins, as
    compilers for x86-64 write it, with ``mov (%rdi),%rdi; add $n,%rdi; jmp``.
    """
    steps = code[:3] == b"\x48\x8b\x3f" and code[3:6] == b"\x48\x83\xc7" and code[7:8] == b"\xe9"
    return 7 if steps else 0


def _matching(table: symbols.Found, prefix: bytes) -> list[symbols.Symbol]:
    """Symbols for a prefix; one that ends with NUL must be the whole name."""
    name = prefix.rstrip(b"\0").decode()
    rows = table.get(name, [])
    return [symbol for symbol in rows if symbol.name == name] if prefix.endswith(b"\0") else rows


def executable_maps(pid: int) -> Iterator[Place]:
    """Code of files that the process maps."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            text = file.read(MAX_MAPS_BYTES)
    except OSError:
        return
    for start, end, offset, path in _LINE.findall(text):
        yield Place(int(start, 16), int(end, 16), int(offset, 16), path)


def open_mapping(pid: int, start: int, end: int) -> int:
    """A descriptor of the very file that the process maps there. Raises OSError."""
    return os.open(f"/proc/{pid}/map_files/{start:x}-{end:x}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def through_descriptor(descriptor: int) -> str:
    """A path of an open file that nobody can exchange meanwhile."""
    return f"/proc/{os.readlink('/proc/self')}/fd/{descriptor}"  # our number in this /proc


def _sibling(pid: int, path: str) -> Place | None:
    """Where libtorch_python of the same directory is mapped."""
    directory = os.path.dirname(os.fsencode(path))
    for place in executable_maps(pid):
        name = os.path.basename(place.path)
        if os.path.dirname(place.path) == directory and name.startswith(b"libtorch_python.so"):
            return place
    return None
