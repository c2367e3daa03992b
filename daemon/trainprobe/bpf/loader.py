# SPDX-License-Identifier: Apache-2.0
"""The parent's side of the hand-over: run the compiler's child, hold what it attached, let go of it."""

from __future__ import annotations

import os
import subprocess
import sys

from trainprobe.bpf import handover
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.maps import K, Map, V, library

START_LIMIT_S = 60.0


class Loaded:
    """What the compiler's child handed over."""

    def __init__(self, groups: dict[str, dict[str, int]], missing: list[str]) -> None:
        self.maps = groups.get("map", {})
        self.programs = groups.get("program", {})
        self.attached = groups.get("attached", {})
        self.missing = missing
        try:
            self.lib = library()
        except ProbesUnavailable:
            self.close()
            raise

    def map(self, name: str, key: type[K], value: type[V]) -> Map[K, V]:
        return Map(self.lib, self.maps[name], key, value)

    def attach_raw(self, program: str, event: str) -> int:
        """Attach a raw tracepoint; returns its descriptor, negative where the kernel has no such event."""
        return int(self.lib.bpf_attach_raw_tracepoint(self.programs[program], event.encode()))

    def close(self) -> None:
        """Let go of everything."""
        _close_in_background(list(self.attached.values()))
        for group in (self.programs, self.maps):
            for descriptor in group.values():
                os.close(descriptor)
        for table in (self.attached, self.programs, self.maps):
            table.clear()


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
        self._heard = False
        self._ours, theirs = handover.channel()
        command = [sys.executable, "-m", "trainprobe.bpf.compile", str(theirs.fileno())] + (["--auto"] if auto else [])
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
        self._heard = True
        self._ours.settimeout(START_LIMIT_S)
        try:
            return Loaded(*handover.receive(self._ours))
        except (handover.ChildGone, TimeoutError, ConnectionResetError) as error:
            self._child.kill()
            said = _last_words(self._child)
            reason = f"the probes' compiler died with status {self._child.wait()}: {said}".rstrip(": ")
            raise ProbesUnavailable(reason, "try again; see dmesg") from error
        except ProbesUnavailable as error:
            said = _last_words(self._child)
            raise ProbesUnavailable(f"{error.reason}\n{said}".strip(), error.remedy) from error
        finally:
            self.close()

    def close(self) -> None:
        """Wait for its end, and end it where nobody wants what it makes. Again does no harm."""
        if not self._heard:
            self._child.kill()
        self._ours.close()
        if self._child.stdout:
            self._child.stdout.close()
        self._child.wait()


def load(*, auto: bool) -> Loaded:
    """Run the compiler's child and take over what it attached; raises ProbesUnavailable."""
    return Compiling(auto=auto).finish()


def _last_words(child: subprocess.Popen[bytes]) -> str:
    return child.stdout.read(1 << 16).decode(errors="replace")[-4000:] if child.stdout else ""
