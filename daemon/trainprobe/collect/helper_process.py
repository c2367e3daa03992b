"""A helper's process (``helper_program``), from the daemon's side. Nothing here waits without a limit."""

from __future__ import annotations

import array
import contextlib
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainprobe.collect.helper_program import AT_ONCE, DESCRIPTOR, FRAME, LENGTH

MEMORY_LIMIT = 512 << 20
ENDING_SECONDS = 0.005  # of waiting for a killed one: an ordinary one does not need so much
WORKING_SECONDS = 1.0  # for one read, or before it begins: where the processors are busy
NOT_BEGUN = -1
SLICE_SECONDS = 0.05  # between looks whether it gets on
DESCRIPTORS = 64  # handed over with one answer
NO_PRIVILEGES = 127  # setpriv could not
_SETPRIV = "/usr/bin/setpriv"
_CAPABILITIES = "-all,+dac_read_search,+sys_ptrace,+perfmon,+cap_40"
"""cap_40: CAP_CHECKPOINT_RESTORE, which opens /proc/PID/map_files."""
running: set[int] = set()
"""Those of ours that have not been given up: each is a Python that has just begun, and no training."""
_START = "import sys; sys.path.insert(0, {place!r}); from trainprobe.collect.helper_program import main; main()"


class Unanswered(Exception):
    """``at``: the number of the read that it is at, NOT_BEGUN before the first."""

    def __init__(self, at: int = NOT_BEGUN) -> None:
        super().__init__(at)
        self.at = at


class Late(Unanswered):
    """It does not answer."""


class Ended(Unanswered):
    """It has ended, and nothing was answered."""


class Helper:
    """Answers one request after the other. It keeps capabilities for reading, and no others, where that can be had."""

    confined = os.geteuid() == 0 and os.access(_SETPRIV, os.X_OK)

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        self._progress = os.memfd_create("progress")
        start = _START.format(place=str(Path(__file__).parents[2]))
        command = [sys.executable, "-I", "-S", "-c", start, str(theirs.fileno()), str(self._progress)]
        words = [_SETPRIV, f"--bounding-set={_CAPABILITIES}", "--inh-caps=-all", "--no-new-privs", "--"]
        try:
            self._child: subprocess.Popen[bytes] | None = subprocess.Popen(
                [*words, *command] if Helper.confined else command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                pass_fds=(theirs.fileno(), self._progress),
            )
            self.pid = self._child.pid
            running.add(self.pid)
            resource.prlimit(self.pid, resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
            resource.prlimit(self.pid, resource.RLIMIT_CORE, (0, 0))
        except OSError:  # no process can be started now: as if it had ended
            self._child, self.pid = None, 0
        finally:
            theirs.close()
        self._channel.setblocking(False)
        self._data = bytearray()
        self._descriptors: array.array[int] = array.array("i")
        self._asked = 0
        self.stood_at = NOT_BEGUN
        """The read of the latest request that it was last seen to wait in; NOT_BEGUN: none took long."""

    def ask(self, reads: Sequence[tuple[bytes, bytes, int, int]]) -> None:
        """Operations of ``helper_program``, with a path and two numbers each. Raises Ended."""
        self._data.clear()
        self._asked = len(reads)
        os.pwrite(self._progress, LENGTH.pack(NOT_BEGUN), 0)
        body = b"\0".join([b"%s\0%s\0%d\0%d" % read for read in reads])
        message = memoryview(FRAME.pack(len(body)) + body)
        poller = select.poll()
        poller.register(self._channel, select.POLLOUT)
        while message:
            try:
                message = message[self._channel.send(message) :]
            except BlockingIOError:
                if not poller.poll(1000):
                    raise Ended from None
            except OSError:
                raise Ended from None

    def wait(self, limit: Callable[[int], float]) -> list[bytes | int | None]:
        """The answers. Raises Late where one read waits for longer than ``limit``, which is asked for with its number,
        or works for longer than WORKING_SECONDS; Ended where there is nobody to answer."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        at, since = NOT_BEGUN, time.monotonic()
        self.stood_at = NOT_BEGUN
        while not self._complete():
            if poller.poll(SLICE_SECONDS * 1000):
                self._receive()
                continue
            seconds = time.monotonic() - since
            if (now_at := self._at()) != at:
                at, since = now_at, time.monotonic()
            elif seconds >= WORKING_SECONDS:
                raise Late(at)
            elif at != NOT_BEGUN and not self._works():
                self.stood_at = at
                if seconds >= limit(at):
                    raise Late(at)
        return self._answers()

    def answered(self) -> bool:
        """Whether all is answered; the answers are thrown away."""
        with contextlib.suppress(BlockingIOError, Ended):
            while not self._complete():
                self._receive()
        if not self._complete():
            return False
        for answer in self._answers():
            if isinstance(answer, int):
                os.close(answer)
        return True

    def _at(self) -> int:
        (number,) = LENGTH.unpack(os.pread(self._progress, LENGTH.size, 0))
        return max(NOT_BEGUN, min(int(number), self._asked - 1))

    def _works(self) -> bool:
        """Whether it is on a processor or wants to be: it waits for nobody."""
        return self._fields()[:1] == [b"R"]

    def _fields(self) -> list[bytes]:
        """Of its own stat, from the state on: it is no stranger."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                return file.read(4096).rpartition(b")")[2].split()
        except OSError:
            return []

    def _complete(self) -> bool:
        data = self._data
        return len(data) >= FRAME.size and len(data) - FRAME.size >= FRAME.unpack_from(data)[0]

    def _receive(self) -> None:
        try:
            room = socket.CMSG_SPACE(4 * DESCRIPTORS)
            part, handed, _, _ = self._channel.recvmsg(AT_ONCE, room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            raise
        except OSError:
            raise Ended(self._at()) from None
        for level, kind, data in handed:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.frombytes(data[: len(data) - len(data) % 4])
        if not part:
            raise Ended(self._at())
        self._data += part

    def _answers(self) -> list[bytes | int | None]:
        data, handed = bytes(self._data), iter(self._descriptors)
        self._data, self._descriptors = bytearray(), array.array("i")
        at, found = FRAME.size, []
        while at < len(data):
            (length,) = LENGTH.unpack_from(data, at)
            at += LENGTH.size
            special = next(handed, None) if length == DESCRIPTOR else None
            found.append(data[at : at + length] if length >= 0 else special)
            at += max(0, length)
        return found

    def ended(self) -> bool:
        """Without waiting (WNOHANG)."""
        if self._child is not None and self._child.poll() == NO_PRIVILEGES:
            Helper.confined = False
        return self._child is None or self._child.returncode is not None

    def kill(self) -> bool:
        """Whether that ended it."""
        if self._child is None:
            return True
        self._child.kill()
        try:
            self._child.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        self.close()
        return True

    def seconds(self) -> float:
        return sum(map(int, self._fields()[11:13])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """It ends by itself once it has nobody to answer."""
        running.discard(self.pid)
        self._channel.close()
        if self._progress >= 0:
            os.close(self._progress)
            self._progress = -1
