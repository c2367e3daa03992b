"""Starts a command that waits until it is watched. All else is as if its user had started it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainprobe.text.saying import SaidError, saying

NOT_FOUND, NOT_EXECUTABLE = 127, 126


class StartError(SaidError):
    """The command was not started; ``code`` is what a shell would say: 127 not found, 126 not executable."""

    def __init__(self, command: str, error: int) -> None:
        super().__init__(saying("{path}: {why}", path=command, why=saying(os.strerror(error))))
        self.code = NOT_FOUND if error in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE


class Launched:
    """The child. It runs nothing of the command before ``release``, and never does if we end before that."""

    def __init__(self, command: Sequence[str], prepare: Callable[[], None]) -> None:
        """``prepare``: called in the child, to give signals back."""
        self.command = list(command)
        hold, self._go = os.pipe()
        self._failed, failed = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            os.close(self._failed)
            _become(command, prepare, hold, failed)
        os.close(hold)
        os.close(failed)
        self.pidfd = os.pidfd_open(self.pid)

    def release(self) -> None:
        """Let it become the command. Raises StartError."""
        try:
            os.write(self._go, b"x")
        except BrokenPipeError:
            pass  # it was killed while it waited: its exit tells
        os.close(self._go)
        report = os.read(self._failed, 16)
        os.close(self._failed)
        if report:
            os.waitpid(self.pid, 0)
            raise StartError(self.command[0], int(report))

    def abandon(self) -> None:
        """Not to be started after all."""
        os.close(self._go)
        os.waitpid(self.pid, 0)

    def wait(self) -> int:
        """Its exit code as a shell has it: 128 + N for signal N."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code if code >= 0 else 128 - code


def original_environment() -> dict[bytes, bytes]:
    """The environment that we were started with: Python itself adds LC_CTYPE in the C locale (PEP 538). Without what
    has no name, which its execve refuses."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except PermissionError:  # an interpreter with capabilities of its own
        return dict(os.environb)
    return {name: value for name, equals, value in (entry.partition(b"=") for entry in entries) if name and equals}


def give_back(before: Mapping[signal.Signals, Any]) -> None:
    """Signal dispositions as they were before this interpreter and this program changed them; ``before``: those that
    the program did."""
    for number, disposition in {signal.SIGPIPE: signal.SIG_DFL, signal.SIGXFSZ: signal.SIG_DFL, **before}.items():
        signal.signal(number, disposition)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def refuse_early(name: str) -> None:
    """What can be seen without starting it: no need to load anything for a typing error. Raises StartError."""
    if shutil.which(name) is not None:
        return
    if os.sep not in name or not os.path.exists(name):
        raise StartError(name, errno.ENOENT)
    raise StartError(name, errno.EISDIR if os.path.isdir(name) else errno.EACCES)


def _become(command: Sequence[str], prepare: Callable[[], None], hold: int, failed: int) -> None:
    """The child's side: never returns."""
    try:
        environment = original_environment()
        prepare()
        if os.read(hold, 1):
            os.execvpe(command[0], list(command), environment)
    except OSError as error:
        os.write(failed, str(error.errno).encode())
    finally:
        os._exit(125)
