"""One Python stack of a watched process, by py-spy in a child with a hard time limit. The loop never waits for it: a
child that reads memory which a file system does not deliver outlives SIGKILL, and is reaped when it ends.

py-spy parses what the process holds, so it runs as the process's user with CAP_SYS_PTRACE alone (``confine``).
Measured: 9 ms for a dump, 14 ms confined.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from trainprobe.collect.confine import confined, confinement
from trainprobe.collect.procfs import Proc, Status
from trainprobe.collect.python_files import PackageVersions, PythonFile
from trainprobe.collect.source import Failed, Unavailable
from trainprobe.derive.python.frameworks import NAMES, is_own
from trainprobe.derive.rate_limiter import RateLimiter
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import PythonThread, StackSeen
from trainprobe.model.message import template
from trainprobe.model.moment import NS

LIMIT_NS = NS // 5
LONGEST_LIMIT_NS = 4 * LIMIT_NS  # where the processors are busy: doubled with each stack that did not come in time
PAUSE_NS = 5 * NS
ENDING_SECONDS = 0.005  # of waiting for a killed child, which an ordinary one does not need
HUNG_NS = NS  # after SIGKILL
FORGOTTEN_NS = 60 * NS  # an owner's place among those who wait
TOGETHER = 3  # stacks of a run that may come sooner one after the other: several stalls in a row
OUTPUT_LIMIT = 1 << 20
FRAMES_LIMIT = THREADS_LIMIT = 64
NAME_LIMIT = 120
INSTALL = (
    "python3 -m venv /opt/py-spy && /opt/py-spy/bin/pip install py-spy && ln -s /opt/py-spy/bin/py-spy /usr/local/bin/"
)

INSTALL_OR_NAME = template("source.install_or_name", "{install}; or name one: python_stack.path")
NOT_EXECUTABLE = template("source.not_executable", "python_stack.path: {path} is not an executable file")
NOT_INSTALLED = template("source.not_installed", "py-spy is not installed: no Python stacks")
SWITCHED_OFF = template("source.switched_off", "Python stacks are switched off")
OTHERS = template("source.others", " (and {number} more)")
HANGS = template(
    "source.stack_hangs",
    "py-spy (process {child}) cannot be killed while it reads process {pid}{others}: no Python stacks of user {user}"
    " until it ends",
)
HANGS_REMEDY = template(
    "source.stack_hangs_remedy",
    "end process {pid}, or abort the file system that does not answer"
    " (FUSE: echo 1 > /sys/fs/fuse/connections/NUMBER/abort)",
)


def _off() -> Unavailable:
    return Unavailable(SWITCHED_OFF(), "python_stack.enabled: true")


def find(configured: str = "") -> str | Unavailable:
    """The py-spy program: the configured path, else beside this interpreter, else on PATH."""
    remedy = INSTALL_OR_NAME(install=INSTALL)
    if configured:
        if os.access(configured, os.X_OK) and Path(configured).is_file():
            return configured
        return Unavailable(NOT_EXECUTABLE(path=configured), remedy)
    beside = Path(sys.executable).with_name("py-spy")
    if os.access(beside, os.X_OK):
        return str(beside)
    for directory in os.get_exec_path():
        path = Path(directory, "py-spy")
        if os.access(path, os.X_OK) and path.is_file():
            return str(path)
    return Unavailable(NOT_INSTALLED(), remedy)


@dataclass(slots=True)
class _Running:
    child: subprocess.Popen[bytes]
    uid: int  # who answers for the process that is read
    pid: int
    tid: int
    own_tid: int  # what the process calls its thread: another number in a pid namespace
    run: str
    at_ns: int
    limit_ns: int
    output: bytearray
    killed_ns: int = 0


UNREAD = "py-spy could not read the process"


class PyStack:
    """Takes stacks on request: one at a time, one in five seconds for a run in the mean, three in a row at most.

    ``enabled`` False (privacy) answers every request with the reason. Call ``poll`` when ``fileno`` is readable and
    each tick: it ends a child that takes too long.
    """

    def __init__(self, enabled: bool = True, path: str = "", proc: Proc | None = None) -> None:
        self._program: str | Unavailable = find(path) if enabled else _off()
        self._proc = proc or Proc()
        self._tools = () if isinstance(self._program, Unavailable) else confinement()
        self._versions = PackageVersions(self._proc)
        self._running: _Running | None = None
        self._killed: dict[int, _Running] = {}  # by uid; not reaped yet
        self._proc.pool.elsewhere = lambda: list(self._killed)
        self._answer: StackSeen | None = None
        self._allowances: dict[str, RateLimiter] = {}  # by run
        self._unread: set[str] = set()  # runs whose latest one could not be read
        self._limits_ns: dict[str, int] = {}  # by run, where it is not LIMIT_NS
        self._taken_ns: dict[int | None, int] = {}  # by owner: when his latest was begun
        self.cpu_seconds = 0.0
        """Of the children that have ended."""

    def switch_off(self) -> None:
        """As with ``enabled`` False from now on."""
        self.close()
        self._program, self._answer = _off(), None

    def in_turn(self, threads: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """(pid, tid) as they come, but the owner who has waited longest first: one with many late trainings delays
        nobody's. None while a stack is under way."""
        if self._running or self._answer:
            return ()
        if len(threads) < 2:
            return threads
        return sorted(threads, key=lambda one: self._taken_ns.get(self._owner(self._proc.status(one[0])), 0))

    def _owner(self, status: Status | None) -> int | None:
        return self._proc.owners.of(status.uid) if status is not None and status.uid is not None else None

    def start(self, pid: int, tid: int, now_ns: int, run: str = "") -> bool:
        """Ask for the stack of a thread. False: not now (one is under way, this run's last is too recent, or a child
        that read another process of the same user has not ended)."""
        allowance = self._allowances.get(run) or RateLimiter(TOGETHER, PAUSE_NS)
        self._reap()
        if self._running or self._answer or now_ns < allowance.next_ns():
            return False
        status = self._proc.status(pid)
        owner = self._owner(status)
        if not self._proc.pool.has_room(pid) or owner in self._killed:
            return False
        self._taken_ns = {key: at for key, at in self._taken_ns.items() if now_ns - at < FORGOTTEN_NS} | {owner: now_ns}
        self._allowances = {key: one for key, one in self._allowances.items() if not one.is_full(now_ns)}
        self._allowances[run] = allowance
        self._unread &= self._allowances.keys()
        self._limits_ns = {key: limit for key, limit in self._limits_ns.items() if key in self._allowances}
        allowance.count_one(now_ns)
        if isinstance(self._program, Unavailable):
            self._answer = StackSeen(now_ns, pid, tid, (), str(self._program.reason))
            return True
        try:
            if owner is None or status is None or status.uid is None or status.gid is None:
                raise ProcessLookupError(0, "the process is gone")
            child = self._spawn(self._program, pid, status.uid, status.gid)
        except OSError as error:
            self._answer = StackSeen(now_ns, pid, tid, (), f"py-spy cannot be run: {error.strerror}")
            return True
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        thread = self._proc.status(pid, tid) if status.container_pid != pid else None
        own_tid = (thread.container_pid if thread else None) or tid
        limit_ns = self._limits_ns.get(run, LIMIT_NS)
        self._running = _Running(child, owner, pid, tid, own_tid, run, now_ns, limit_ns, bytearray())
        return True

    def _spawn(self, program: str, pid: int, uid: int, gid: int) -> subprocess.Popen[bytes]:
        """The child. Through an open descriptor: the user may have no way to where the program lies."""
        fd = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
        try:
            prefix = confined(self._tools, uid, gid)
            seen_as = f"/proc/self/fd/{fd}" if prefix else program
            return subprocess.Popen(
                [*prefix, seen_as, "dump", "--nonblocking", "--json", "--pid", str(pid)],
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

    def poll(self, now_ns: int) -> StackSeen | None:
        """The answer, once; None: none yet."""
        self._reap()
        if answer := self._answer:
            self._answer = None
            return answer
        running = self._running
        if running is None:
            return None
        ended = self._drain(running)
        late = now_ns - running.at_ns >= running.limit_ns
        large = len(running.output) > OUTPUT_LIMIT
        if not (ended or late or large):
            return None
        self._end(running, now_ns)
        if large:
            return self._none(running, "its answer was too large")
        if late and not ended:
            self._limits_ns[running.run] = min(2 * running.limit_ns, LONGEST_LIMIT_NS)
            return self._none(running, f"it took longer than {running.limit_ns // 1_000_000} ms", late=True)
        if now_ns - running.at_ns < LIMIT_NS:
            self._limits_ns.pop(running.run, None)
        versions = partial(self._versions.of, running.pid)
        seen = read_dump(bytes(running.output), running.at_ns, running.pid, running.tid, running.own_tid, versions)
        if seen.reason == UNREAD and running.run not in self._unread:  # its stack changed meanwhile: once more
            self._unread.add(running.run)
            self._allowances[running.run].give_back()
        elif seen.frames:
            self._unread.discard(running.run)
        return seen

    @staticmethod
    def _none(running: _Running, why: str, *, late: bool = False) -> StackSeen:
        return StackSeen(running.at_ns, running.pid, running.tid, (), f"py-spy was stopped: {why}", late=late)

    def trouble(self, now_ns: int) -> Failed | Unavailable | None:
        """Why some or all processes have no stacks: a child that does not end though it was killed, no program."""
        hung = [one for one in self._killed.values() if now_ns - one.killed_ns >= HUNG_NS]
        if not hung:
            return self._program if isinstance(self._program, Unavailable) else None
        first = hung[0]
        others = OTHERS(number=len(hung) - 1) if hung[1:] else None
        return Failed(
            HANGS(child=first.child.pid, pid=first.pid, others=others, user=first.uid), HANGS_REMEDY(pid=first.pid)
        )

    def close(self) -> None:
        """Leave no child behind that can be killed."""
        if self._running:
            self._end(self._running, 0)

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

    def _end(self, running: _Running, now_ns: int) -> None:
        self._running = None
        if running.child.stdout:
            running.child.stdout.close()
        with self._counted():
            running.child.kill()
            try:
                running.child.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                running.killed_ns = now_ns
                self._killed[running.uid] = running

    def _reap(self) -> None:
        """Without waiting (WNOHANG)."""
        if self._killed:
            with self._counted():
                self._killed = {uid: one for uid, one in self._killed.items() if one.child.poll() is None}

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Adds the CPU time of the children that are waited for within."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        yield
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_seconds += after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def read_dump(
    data: bytes, at_ns: int, pid: int, tid: int, own_tid: int = 0, version: Callable[[str, str], str] = lambda *_: ""
) -> StackSeen:
    """py-spy's JSON -> the stack of one thread (``own_tid``: its number in its namespace), outermost frame first.

    ``version``: of a package in a directory of packages; "": not known.
    """
    try:
        threads = json.loads(data) if data else None
    except (ValueError, RecursionError):
        threads = None
    if not isinstance(threads, list):
        return StackSeen(at_ns, pid, tid, (), UNREAD)
    threads = [thread for thread in threads if isinstance(thread, dict)]
    chosen = [thread for thread in threads if thread.get("os_thread_id") == (own_tid or tid)]
    if not chosen and pid == tid:
        chosen = [thread for thread in threads if thread.get("thread_name") == "MainThread"] or threads[:1]
    if not chosen:
        return StackSeen(at_ns, pid, tid, (), "py-spy does not know the thread")
    texts = _frames(chosen[0])
    others = [(thread.get("os_thread_id"), _frames(thread)) for thread in threads if thread is not chosen[0]]
    known = tuple(
        PythonThread(number, frames[0], "" if is_own(frames[0]) else next(filter(is_own, frames[:FRAMES_LIMIT]), ""))
        for number, frames in others
        if isinstance(number, int) and frames
    )
    return StackSeen(
        at_ns,
        pid,
        tid,
        tuple(reversed(texts[:FRAMES_LIMIT])),
        "" if texts else "no Python frame",
        known[:THREADS_LIMIT],
        versions={name: found for name, place in _packages(chosen[0]).items() if (found := version(name, place))},
        running=chosen[0].get("active") is True,
    )


def _frames(thread: dict[str, object]) -> list[str]:
    """Innermost first, as py-spy tells them."""
    return [_frame(frame) for frame in _dumped(thread)]


def _dumped(thread: dict[str, object]) -> list[dict[str, object]]:
    frames = thread.get("frames")
    return [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []


def _file(frame: dict[str, object]) -> PythonFile:
    return PythonFile.of(str(frame.get("filename")))


def _frame(frame: dict[str, object]) -> str:
    name, place, line = str(frame.get("name")), _file(frame), frame.get("line")
    package = f"{place.package[:NAME_LIMIT]}/" if place.package else ""
    return f"{name[:NAME_LIMIT]} ({package}{place.name[:NAME_LIMIT]}:{line if isinstance(line, int) else 0})"


def _packages(thread: dict[str, object]) -> dict[str, str]:
    """The frameworks on a stack, each with the directory that its package lies in."""
    files = (_file(frame) for frame in _dumped(thread)[:FRAMES_LIMIT])
    return {file.package: file.directory for file in files if file.package in NAMES and file.directory}
