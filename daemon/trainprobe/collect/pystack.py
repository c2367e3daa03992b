"""One Python stack of a watched process, by py-spy in a child with a hard time limit. The loop never waits for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trainprobe.collect.source import Unavailable
from trainprobe.model.event import StackSeen
from trainprobe.model.moment import NS

LIMIT_NS = NS // 5
PAUSE_NS = 5 * NS
OUTPUT_LIMIT = 1 << 20
FRAMES_LIMIT = 64
NAME_LIMIT = 120


def find(configured: str = "") -> str | Unavailable:
    """The py-spy program: the configured path, else beside this interpreter, else on PATH."""
    remedy = "pip install py-spy, or set python_stack.path"
    if configured:
        if os.access(configured, os.X_OK) and Path(configured).is_file():
            return configured
        return Unavailable(f"python_stack.path: {configured} is not an executable file", remedy)
    beside = Path(sys.executable).with_name("py-spy")
    if os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which("py-spy") or Unavailable("py-spy is not installed: no Python stacks", remedy)


@dataclass(slots=True)
class _Running:
    child: subprocess.Popen[bytes]
    pid: int
    tid: int
    at_ns: int
    output: bytearray


class PyStack:
    """Takes stacks on request: one at a time, at most one in five seconds for a run.

    ``enabled`` False (privacy) answers every request with the reason. Call ``poll`` when ``fileno`` is readable or
    ``deadline_ns`` has come.
    """

    def __init__(self, enabled: bool = True, path: str = "") -> None:
        self._program: str | Unavailable = find(path) if enabled else Unavailable("switched off", "python_stack: on")
        self._running: _Running | None = None
        self._answer: StackSeen | None = None
        self._last_ns: dict[str, int] = {}

    def available(self) -> str | Unavailable:
        """The program's path, or why there are no stacks."""
        return self._program

    def start(self, pid: int, tid: int, now_ns: int, run: str = "") -> bool:
        """Ask for the stack of a thread. False: not now (one is under way, or this run's last is too recent)."""
        if self._running or self._answer or now_ns - self._last_ns.get(run, -PAUSE_NS) < PAUSE_NS:
            return False
        self._last_ns = {key: at for key, at in self._last_ns.items() if now_ns - at < PAUSE_NS}
        self._last_ns[run] = now_ns
        if isinstance(self._program, Unavailable):
            self._answer = StackSeen(now_ns, pid, tid, (), self._program.reason)
            return True
        command = [self._program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, cwd="/"
            )
        except OSError as error:
            self._answer = StackSeen(now_ns, pid, tid, (), f"py-spy cannot be run: {error.strerror}")
            return True
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        self._running = _Running(child, pid, tid, now_ns, bytearray())
        return True

    def fileno(self) -> int | None:
        """Readable when the child has written or ended; None: nothing runs."""
        running = self._running
        return running.child.stdout.fileno() if running and running.child.stdout else None

    def deadline_ns(self) -> int | None:
        """When the child that runs now will be killed."""
        return self._running.at_ns + LIMIT_NS if self._running else None

    def poll(self, now_ns: int) -> StackSeen | None:
        """The answer, once; None: none yet."""
        if answer := self._answer:
            self._answer = None
            return answer
        running = self._running
        if running is None:
            return None
        ended = self._drain(running)
        late = now_ns - running.at_ns >= LIMIT_NS
        large = len(running.output) > OUTPUT_LIMIT
        if not (ended or late or large):
            return None
        self._end(running)
        if large or (late and not ended):
            why = "its answer was too large" if large else f"it took longer than {LIMIT_NS // 1_000_000} ms"
            return StackSeen(running.at_ns, running.pid, running.tid, (), f"py-spy was stopped: {why}")
        return read_dump(bytes(running.output), running.at_ns, running.pid, running.tid)

    def close(self) -> None:
        """Leave no child behind."""
        if self._running:
            self._end(self._running)

    def _drain(self, running: _Running) -> bool:
        """Take what the child has written; True: it has closed its output."""
        assert running.child.stdout is not None
        fd = running.child.stdout.fileno()
        while len(running.output) <= OUTPUT_LIMIT:
            try:
                part = os.read(fd, 1 << 16)
            except BlockingIOError:
                return False
            if not part:
                return True
            running.output += part
        return False

    def _end(self, running: _Running) -> None:
        self._running = None
        running.child.kill()
        running.child.wait()
        if running.child.stdout:
            running.child.stdout.close()


def read_dump(data: bytes, at_ns: int, pid: int, tid: int) -> StackSeen:
    """py-spy's JSON -> the stack of one thread, outermost frame first."""
    try:
        threads = json.loads(data) if data else None
    except (ValueError, RecursionError):
        threads = None
    if not isinstance(threads, list):
        return StackSeen(at_ns, pid, tid, (), "py-spy could not read the process")
    threads = [thread for thread in threads if isinstance(thread, dict)]
    chosen = [thread for thread in threads if thread.get("os_thread_id") == tid]
    if not chosen and pid == tid:
        chosen = [thread for thread in threads if thread.get("thread_name") == "MainThread"] or threads[:1]
    if not chosen:
        return StackSeen(at_ns, pid, tid, (), "py-spy does not know the thread")
    frames = chosen[0].get("frames")
    texts = [_frame(frame) for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []
    return StackSeen(at_ns, pid, tid, tuple(reversed(texts[:FRAMES_LIMIT])), "" if texts else "no Python frame")


def _frame(frame: dict[str, object]) -> str:
    name, file, line = str(frame.get("name")), str(frame.get("filename")), frame.get("line")
    where = file.rpartition("/")[2][:NAME_LIMIT]
    return f"{name[:NAME_LIMIT]} ({where}:{line if isinstance(line, int) else 0})"
