"""The caller's handle of the root half of `run` and `attach` (``cli.observe``): a child that speaks JSON lines."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence

from trainprobe.runtime.session import line_protocol
from trainprobe.runtime.session.probe_protocol import Order, child, encode

PATIENCE_SECONDS = 10.0


class ProbePart:
    """Started at once; ``messages`` when ``fileno`` is readable."""

    def __init__(self, command: Sequence[str], order: Order, *, own_session: bool) -> None:
        """``own_session``: out of reach of the terminal's signals. Not so under sudo, which may ask for a password."""
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=own_session, cwd="/"
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._in, self._out = self._child.stdin, self._child.stdout
        self._reader = line_protocol.LineReader(self._out.fileno())
        self._send(encode(order))

    def fileno(self) -> int:
        return self._reader.fd

    def messages(self) -> list[bytes]:
        return self._reader.read()

    @property
    def ended(self) -> bool:
        return self._reader.ended

    def child(self, pid: int) -> None:
        """The command of the order has a process, which waits."""
        self._send(child(pid))

    def end(self, last: bytes) -> None:
        """Ask for the report (``probe_protocol.end``); it ends by itself after that."""
        self._send(last)

    def close(self) -> None:
        """Its input ends, and so does it. Below sudo it is root's and may not be killed: then it is left to its end."""
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        self._out.close()
        try:
            self._child.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(PermissionError):
                self._child.kill()

    def _send(self, line: bytes) -> None:
        try:
            line_protocol.write(self._in.fileno(), line)
        except OSError:
            pass  # it is gone, which its silence tells
