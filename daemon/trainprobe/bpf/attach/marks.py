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
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Protocol

from trainprobe.bpf.attach import symbols
from trainprobe.bpf.attach.executed_files import Inode, files_executed
from trainprobe.bpf.attach.library_readers import PASSING, LibraryRead, LibraryReaders, MarksAttached, not_opened
from trainprobe.bpf.attach.mapped_files import (
    MappedCode,
    executable_maps,
    file_of,
    open_mapping,
    sibling,
    through_descriptor,
)
from trainprobe.bpf.attach.mark_table import IN_CPU, IN_INTERPRETER, IN_INTERPRETER_BY_SYMBOL, IN_PYTHON, Mark
from trainprobe.bpf.attach.useless_files import UselessFiles
from trainprobe.bpf.attach.user_quota import UserQuota
from trainprobe.bpf.load.kernel_calls import UprobeRefused
from trainprobe.bpf.read.paths import ProcessFiles
from trainprobe.model.event import NOT_EXPORTED, NOT_READ, REFUSED, SEVERAL
from trainprobe.model.message import Message

INTERPRETERS, MAX_INTERPRETERS = 4, 512  # files of a process that may be its interpreter; that have marks
RELEASE_SECONDS, RELEASE_SOONEST_SECONDS = 600.0, 30.0
MAX_PROBES_PER_MARK = 8
NOBODY: Inode = (0, 0)


INTERPRETER = re.compile(rb"(lib)?python3(\.\d+)?t?(\.so[.\d]*)?$")


class Attach(Protocol):
    def __call__(
        self, program: int, path: str, offset: int, counter: int, pid: int | None, *, at_return: bool
    ) -> int: ...


"""(program, path, offset, offset of the counter or 0, pid or None for every process) -> descriptor. Raises
UprobeRefused."""


class Marks:
    """Remembers what is attached, by inode; a uprobe on an inode serves every process that maps it.

    A thread reads the file, one for each user at a time, and nobody waits for it.
    """

    def __init__(
        self, programs: Mapping[str, int], attach: Attach, proc: ProcessFiles, quota: UserQuota | None = None
    ) -> None:
        self._programs, self._attach = programs, attach
        self._quota = quota or UserQuota()
        self._proc = proc
        self._readers = LibraryReaders(self._inspect_file)
        self.refusal, self.hung = self._readers.refusal, self._readers.hung
        self._lock = threading.Lock()  # for all below
        self._busy: set[Inode] = set()
        self._done: dict[Inode, MarksAttached] = {}
        self._users: dict[Inode, int] = {}  # on whose account it was read
        self._useless: UselessFiles[MarksAttached] = UselessFiles()
        self._interpreters: dict[Inode, bool] = {}
        self._descriptors: defaultdict[Inode, list[int]] = defaultdict(list)  # by the file that the marks came with
        self._asked: set[Inode] = set()  # since the last look at who executes what began
        self._released = time.monotonic()
        self._closed = False

    def attach(self, pid: int, path: str, start: int, end: int) -> MarksAttached | None:
        """Attach to libtorch_cpu, mapped by the process at this place, and to the libtorch_python beside it.

        None: not yet, ask again. Raises OSError (one of PASSING) when nothing was found out: ask later, with the place
        as it is then.
        """
        try:
            uid = self._quota.owner(pid)
        except OSError as error:
            return not_opened(path, error)
        return self._readers.ask(pid, uid, path, start, end)

    def _inspect_file(self, one: LibraryRead, path: str) -> MarksAttached | None:
        descriptor = open_mapping(one.pid, one.start, one.end)
        try:
            return self._attach_once(os.fstat(descriptor), one, path, descriptor)
        finally:
            os.close(descriptor)

    def _attach_once(
        self, status: os.stat_result, one: LibraryRead, path: str, descriptor: int
    ) -> MarksAttached | None:
        key = status.st_dev, status.st_ino
        with self._lock:
            self._asked.add(key)
            full = bool(self._quota.refusal(one.uid))
        if full:
            self.release_unused(at_most_every=RELEASE_SOONEST_SECONDS)
        with self._lock:
            known = self._done.get(key) or self._useless.get(one.uid, status)
            if known or key in self._busy:
                return known
            if refusal := self._quota.refusal(one.uid):
                return MarksAttached({}, refusal, refused=True)
            self._busy.add(key)
        began = time.monotonic()
        attached: MarksAttached | None = MarksAttached({}, NOT_READ(path=path))
        try:
            attached = self._attach_both(key, one.pid, path, descriptor)
        except PASSING:
            attached = None
            raise
        finally:
            self._remember(status, one.uid, attached, time.monotonic() - began)
        return attached

    def _remember(self, status: os.stat_result, uid: int, attached: MarksAttached | None, seconds: float) -> None:
        """What came of reading a library. None: nothing was found out, and no mark of it stays."""
        key = status.st_dev, status.st_ino
        useful = attached is not None and any(attached.found.values())
        released: list[int] = []
        with self._lock:
            self._busy.discard(key)
            self._quota.took(uid, seconds, useful=useful)
            if attached is not None and useful:
                self._done[key], self._users[key] = attached, uid
            else:
                released = self._descriptors.pop(key, [])
            if attached is not None and not useful:
                self._useless.put(uid, status, attached)
        for descriptor in released:
            os.close(descriptor)

    def _attach_both(self, key: Inode, pid: int, path: str, descriptor: int) -> MarksAttached:
        found, reason = self._attach_library(partial(self._keep, key), descriptor, IN_CPU)
        place = sibling(pid, path, self._proc)
        found["set_grad"] = place is not None and any(self._attach_beside(pid, place, IN_PYTHON, key).values())
        if any(found.values()):
            found["collector"] = self._attach_interpreter(pid)
        return MarksAttached(found, reason)

    def _attach_beside(self, pid: int, place: MappedCode, marks: tuple[Mark, ...], owner: Inode) -> dict[str, bool]:
        """``attach_at``; what has no marks for good has none. Raises OSError (one of PASSING)."""
        try:
            return self.attach_at(pid, place, marks, owner)
        except PASSING:
            raise
        except OSError:
            return {}

    def attach_at(self, pid: int, place: MappedCode, marks: tuple[Mark, ...], owner: Inode = NOBODY) -> dict[str, bool]:
        """Put marks on a library that the process maps there: which were found. Takes its time. They are taken away
        with those of file ``owner``, without one at the end. Raises OSError."""
        descriptor = open_mapping(pid, place.start, place.end)
        try:
            return self._attach_library(partial(self._keep, owner), descriptor, marks)[0]
        finally:
            os.close(descriptor)

    def attach_for(self, pid: int, place: MappedCode, marks: tuple[Mark, ...]) -> list[int]:
        """Put marks on a library that the process maps there, for that process alone: their descriptors, the caller's
        to close. Takes its time."""
        made: list[int] = []
        try:
            descriptor = open_mapping(pid, place.start, place.end)
        except OSError:
            return made
        try:
            self._attach_library(made.append, descriptor, marks, pid)
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return made

    def _attach_interpreter(self, pid: int) -> bool:
        """Whether both ends of a collection are told, by any file of the interpreter: libpython, or python itself."""
        told = False
        places = executable_maps(pid, self._proc)
        likely = (place for place in places if INTERPRETER.fullmatch(os.path.basename(place.path)))
        for place in islice(likely, INTERPRETERS):
            try:
                key = file_of(pid, place, self._proc)
            except PermissionError:
                continue  # or it is not mapped any more
            if self._is_new(key):
                try:
                    told_both = _both_ends(self._attach_beside(pid, place, IN_INTERPRETER, key)) or _both_ends(
                        self._attach_beside(pid, place, IN_INTERPRETER_BY_SYMBOL, key)
                    )
                except OSError:
                    with self._lock:
                        del self._interpreters[key]
                    raise
                self._interpreters[key] = told_both
            told = told or self._interpreters.get(key, False)
        return told

    def _is_new(self, key: Inode) -> bool:
        """Whether an interpreter is to be given its marks, by who asks first."""
        with self._lock:
            self._asked.add(key)
            if key in self._interpreters or len(self._interpreters) >= MAX_INTERPRETERS:
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
        used = files_executed(held, self._proc)
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
            self._quota.gave_back(self._users.pop(key))
        return self._descriptors.pop(key, [])

    def _attach_library(
        self, keep: Callable[[int], None], descriptor: int, marks: tuple[Mark, ...], pid: int | None = None
    ) -> tuple[dict[str, bool], str | Message]:
        # By descriptor, from symbols to attaching: a process that maps another file there meanwhile would choose where
        # in that file, perhaps the C library, a breakpoint goes.
        mapping = through_descriptor(descriptor)
        wanted = [prefix for mark in marks for prefix in mark.prefixes]
        table = symbols.find_apart(mapping, [prefix.rstrip(b"\0") for prefix in wanted])
        if isinstance(table, symbols.Unreadable):
            return {mark.name: False for mark in marks}, table.reason
        found: dict[str, bool] = {}
        reasons: list[Message] = []
        for mark in marks:
            places = {(s.offset, s.counter) for prefix in mark.prefixes for s in _matching(table, prefix)}
            found[mark.name] = False
            for offset, counter in sorted(places)[:MAX_PROBES_PER_MARK]:
                if mark.anywhere:
                    offset += cheap_place(os.pread(descriptor, 16, offset))
                try:
                    program = self._programs[mark.program]
                    keep(self._attach(program, mapping, offset, counter, pid, at_return=mark.at_return))
                    found[mark.name] = True
                except UprobeRefused as error:
                    reasons.append(REFUSED(mark=mark.name, error=str(error)))
            if mark.required and not places:
                reasons.append(NOT_EXPORTED(mark=mark.name))
        return found, SEVERAL(reasons=reasons) if reasons else ""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        for descriptors in self._descriptors.values():
            for descriptor in descriptors:
                os.close(descriptor)
        self._descriptors.clear()


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


def _both_ends(found: Mapping[str, bool]) -> bool:
    return found.get("collector", False) and found.get("collector_end", False)
