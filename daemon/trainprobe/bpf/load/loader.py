# SPDX-License-Identifier: Apache-2.0
"""The parent's side of the start: it runs the compiler's child, and keeps the descriptors that it passes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

from trainprobe.bpf import errors
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load import fd_passing
from trainprobe.bpf.load.kernel_calls import KernelCalls, UprobeRefused
from trainprobe.bpf.load.maps import K, Map, V, library
from trainprobe.model.message import Message

START_LIMIT_S = 60.0


class Loaded:
    """What the compiler's child handed over: maps and events at once; marks, which it is still busy with, later."""

    def __init__(self, lot: fd_passing.DescriptorBatch, compiling: Compiling) -> None:
        self._compiling = compiling
        self.calls = KernelCalls()
        self._lock = threading.Lock()  # whoever wants a mark first may be a thread that looks at a library
        self.maps = lot.groups.get("map", {})
        self.attached = lot.groups.get("attached", {})
        self.missing = lot.missing
        self.programs = Programs(lot.groups.get("program", {}), self.await_marks)
        try:
            self.lib = library()
        except ProbesUnavailable:
            self.close()
            raise

    def map(self, name: str, key: type[K], value: type[V]) -> Map[K, V]:
        return Map(self.lib, self.calls, self.maps[name], key, value)

    def await_marks(self) -> None:
        """Returns when the marks are there; raises ProbesUnavailable."""
        with self._lock:
            self._take_marks(wait=True)

    def look_after(self) -> None:
        """Take the marks where they are ready. What went wrong with them is told to whoever wants one."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._take_marks(wait=False)
        except ProbesUnavailable:
            pass
        finally:
            self._lock.release()

    def _take_marks(self, *, wait: bool) -> None:
        lot = self._compiling.marks(wait=wait)
        if lot is not None:
            self.programs.add(lot.groups.get("program", {}))

    def close(self) -> None:
        self._compiling.give_up()  # whoever waits for its marks waits no longer
        _close_in_background(list(self.attached.values()))
        with self._lock:
            self._compiling.close()
            for descriptor in (*self.programs.take_descriptors(), *self.maps.values()):
                os.close(descriptor)
        self.attached.clear()
        self.maps.clear()


class Programs(Mapping[str, int]):
    """Descriptors by name. One that has not come is waited for; what is listed are those that have."""

    def __init__(self, there: dict[str, int], await_others: Callable[[], None]) -> None:
        self._there, self._await_others = there, await_others

    def __getitem__(self, name: str) -> int:
        """Raises UprobeRefused where it could not be made."""
        if name not in self._there:
            try:
                self._await_others()
            except ProbesUnavailable as error:
                raise UprobeRefused(str(error.reason).partition("\n")[0]) from error
        return self._there[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._there))

    def __len__(self) -> int:
        return len(self._there)

    def add(self, others: Mapping[str, int]) -> None:
        self._there = {**self._there, **others}

    def take_descriptors(self) -> list[int]:
        """All descriptors, for whoever closes them."""
        taken, self._there = self._there, {}
        return list(taken.values())


def _close_in_background(descriptors: list[int]) -> None:
    """The last close of a tracepoint waits for a grace period of 70 ms, 70 times: leave it to a process of its own.

    It holds nothing but these descriptors, and waits until ours are closed so that the last close is its own.
    """
    waiting, closed = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            _keep_only({waiting, *descriptors})
            os.read(waiting, 1)
        os._exit(0)
    os.close(waiting)
    os.waitpid(child, 0)
    for descriptor in descriptors:
        os.close(descriptor)
    os.close(closed)


def _keep_only(descriptors: set[int]) -> None:
    os.setsid()
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in descriptors:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                pass


class Compiling:
    """The compiler's child at work, for most of a second; meanwhile there is time for other things."""

    def __init__(self, *, auto: bool) -> None:
        self._complete = self._closed = False
        self._refused: ProbesUnavailable | None = None
        self._ours, theirs = fd_passing.channel()
        # -S: where its modules are is told by PYTHONPATH; what else site does takes a tenth of a start.
        command = [sys.executable, "-S", "-m", "trainprobe.bpf.compile.child", str(theirs.fileno())]
        command += ["--auto"] if auto else []
        with theirs:
            self._child = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",  # python -m looks for modules in the working directory first
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )

    def finish(self) -> Loaded:
        """Take over what it attached; raises ProbesUnavailable."""
        try:
            return Loaded(self._lot(), self)
        except BaseException:
            self.close()
            raise

    def marks(self, *, wait: bool) -> fd_passing.DescriptorBatch | None:
        """Take over the marks, once; None: they were taken, or without ``wait``, they are not ready. Raises
        ProbesUnavailable, each time."""
        if self._refused is not None:
            raise self._refused
        if self._closed or not (wait or select.select([self._ours], [], [], 0)[0]):
            return None
        try:
            lot = self._lot()
            self._complete = True
        except ProbesUnavailable as error:
            self._refused = error
            raise
        finally:
            self.close()
        return lot

    def _lot(self) -> fd_passing.DescriptorBatch:
        self._ours.settimeout(START_LIMIT_S)
        try:
            lot = fd_passing.receive(self._ours)
        except (fd_passing.ChildGone, TimeoutError, ConnectionResetError) as error:
            self._child.kill()
            said = _last_words(self._child)
            reason = errors.DIED(status=self._child.wait())
            raise ProbesUnavailable(_with_output(reason, said), errors.TRY_AGAIN()) from error
        except ProbesUnavailable as error:
            raise ProbesUnavailable(_with_output(error.reason, _last_words(self._child)), error.remedy) from error
        for note in lot.notes:
            print(f"trainprobe: {note}", file=sys.stderr, flush=True)
        return lot

    def give_up(self) -> None:
        """End it where it is still busy: nobody wants what it makes."""
        if not self._complete:
            self._child.kill()

    def close(self) -> None:
        """End it, and wait for that. Again does no harm."""
        self.give_up()
        self._closed = True
        self._ours.close()
        if self._child.stdout:
            self._child.stdout.close()
        self._child.wait()


def _with_output(reason: Message | str, output: str) -> Message | str:
    return errors.WITH_OUTPUT(reason=reason, output=output.strip()) if output.strip() else reason


def _last_words(child: subprocess.Popen[bytes]) -> str:
    return child.stdout.read(1 << 16).decode(errors="replace")[-4000:] if child.stdout else ""
