"""One Python stack of a watched process, by py-spy in a child with a hard time limit. The loop never waits for it.

py-spy parses what the process holds, so it runs as the process's user with CAP_SYS_PTRACE alone (``confine``).
Measured: 9 ms for a dump, 14 ms confined.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trainprobe.collect.confine import confined, confinement
from trainprobe.collect.procfs import Proc
from trainprobe.collect.source import Unavailable
from trainprobe.derive.allowance import Allowance
from trainprobe.model.event import PythonThread, StackSeen
from trainprobe.model.moment import NS

LIMIT_NS = NS // 5
PAUSE_NS = 5 * NS
TOGETHER = 3  # stacks of a run that may come sooner one after the other: several stalls in a row
OUTPUT_LIMIT = 1 << 20
FRAMES_LIMIT = THREADS_LIMIT = 64
NAME_LIMIT = 120
INSTALL = (
    "python3 -m venv /opt/py-spy && /opt/py-spy/bin/pip install py-spy && ln -s /opt/py-spy/bin/py-spy /usr/local/bin/"
)


def find(configured: str = "") -> str | Unavailable:
    """The py-spy program: the configured path, else beside this interpreter, else on PATH."""
    remedy = f"{INSTALL}; or name one: python_stack.path"
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
    own_tid: int  # what the process calls its thread: another number in a pid namespace
    at_ns: int
    output: bytearray


class PyStack:
    """Takes stacks on request: one at a time, one in five seconds for a run in the mean, three in a row at most.

    ``enabled`` False (privacy) answers every request with the reason. Call ``poll`` when ``fileno`` is readable or
    ``deadline_ns`` has come.
    """

    def __init__(self, enabled: bool = True, path: str = "", proc: Proc | None = None) -> None:
        off = Unavailable("Python stacks are switched off", "python_stack.enabled: true")
        self._program: str | Unavailable = find(path) if enabled else off
        self._proc = proc or Proc()
        self._tools = () if isinstance(self._program, Unavailable) else confinement()
        self._running: _Running | None = None
        self._answer: StackSeen | None = None
        self._allowances: dict[str, Allowance] = {}  # by run

    def available(self) -> str | Unavailable:
        """The program's path, or why there are no stacks."""
        return self._program

    def start(self, pid: int, tid: int, now_ns: int, run: str = "") -> bool:
        """Ask for the stack of a thread. False: not now (one is under way, or this run's last is too recent)."""
        allowance = self._allowances.get(run) or Allowance(TOGETHER, PAUSE_NS)
        if self._running or self._answer or now_ns < allowance.next_ns():
            return False
        self._allowances = {key: one for key, one in self._allowances.items() if not one.is_full(now_ns)}
        self._allowances[run] = allowance
        allowance.take(now_ns)
        if isinstance(self._program, Unavailable):
            self._answer = StackSeen(now_ns, pid, tid, (), self._program.reason)
            return True
        try:
            child = self._spawn(self._program, pid)
        except OSError as error:
            self._answer = StackSeen(now_ns, pid, tid, (), f"py-spy cannot be run: {error.strerror}")
            return True
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        own_tid = self._proc.container_tid(pid, tid) or tid
        self._running = _Running(child, pid, tid, own_tid, now_ns, bytearray())
        return True

    def _spawn(self, program: str, pid: int) -> subprocess.Popen[bytes]:
        """The child. Through an open descriptor: the user may have no way to where the program lies."""
        status = self._proc.status(pid)
        if status is None or status.uid is None or status.gid is None:
            raise ProcessLookupError(0, "the process is gone")
        fd = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
        try:
            prefix = confined(self._tools, status.uid, status.gid)
            command = [
                f"/proc/self/fd/{fd}" if prefix else program,
                "dump",
                "--nonblocking",
                "--json",
                "--pid",
                str(pid),
            ]
            return subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                pass_fds=(fd,),
            )
        finally:
            os.close(fd)

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
        return read_dump(bytes(running.output), running.at_ns, running.pid, running.tid, running.own_tid)

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


def read_dump(data: bytes, at_ns: int, pid: int, tid: int, own_tid: int = 0) -> StackSeen:
    """py-spy's JSON -> the stack of one thread (``own_tid``: its number in its namespace), outermost frame first."""
    try:
        threads = json.loads(data) if data else None
    except (ValueError, RecursionError):
        threads = None
    if not isinstance(threads, list):
        return StackSeen(at_ns, pid, tid, (), "py-spy could not read the process")
    threads = [thread for thread in threads if isinstance(thread, dict)]
    chosen = [thread for thread in threads if thread.get("os_thread_id") == (own_tid or tid)]
    if not chosen and pid == tid:
        chosen = [thread for thread in threads if thread.get("thread_name") == "MainThread"] or threads[:1]
    if not chosen:
        return StackSeen(at_ns, pid, tid, (), "py-spy does not know the thread")
    texts = _frames(chosen[0])
    others = [(thread.get("os_thread_id"), _frames(thread)[:1]) for thread in threads if thread is not chosen[0]]
    known = tuple(PythonThread(number, inner[0]) for number, inner in others if isinstance(number, int) and inner)
    return StackSeen(
        at_ns,
        pid,
        tid,
        tuple(reversed(texts[:FRAMES_LIMIT])),
        "" if texts else "no Python frame",
        known[:THREADS_LIMIT],
    )


def _frames(thread: dict[str, object]) -> list[str]:
    """Innermost first, as py-spy tells them."""
    frames = thread.get("frames")
    return [_frame(frame) for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []


def _frame(frame: dict[str, object]) -> str:
    name, file, line = str(frame.get("name")), str(frame.get("filename")), frame.get("line")
    where = file.rpartition("/")[2][:NAME_LIMIT]
    return f"{name[:NAME_LIMIT]} ({where}:{line if isinstance(line, int) else 0})"
