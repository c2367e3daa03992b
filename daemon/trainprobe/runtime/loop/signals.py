"""Signals as something to read: blocked, and told apart by who sent them (signalfd).

A Python handler cannot say whether the terminal sent SIGINT to the whole process group or a person sent it to us
alone; the first must not be passed on to the command, the second must.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterable

from trainprobe.model.dataclass import dataclass

_SIZE = 128  # struct signalfd_siginfo
_HEAD = struct.Struct("=Iii")  # ssi_signo, ssi_errno, ssi_code
_SIGSET_BYTES = 128
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC  # SFD_* are the O_* flags


@dataclass(frozen=True, slots=True)
class Received:
    """A signal that was taken, and what sent it."""

    number: int
    by_process: bool  # kill(2) and the like; False: the kernel, which means the terminal


class Signals:
    """Takes over the named signals until ``close``. Those that are ignored (nohup) stay ignored."""

    def __init__(self, numbers: Iterable[int]) -> None:
        taken = {number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN}
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        self._fd = _signalfd(taken)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[Received]:
        """Those that arrived since the last call."""
        try:
            data = os.read(self._fd, 16 * _SIZE)
        except BlockingIOError:
            return []
        heads = (_HEAD.unpack_from(data, offset) for offset in range(0, len(data), _SIZE))
        return [Received(number, code <= 0) for number, _errno, code in heads]

    def close(self) -> None:
        os.close(self._fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)


def _signalfd(numbers: Iterable[int]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    for number in numbers:
        libc.sigaddset(mask, number)
    fd: int = libc.signalfd(-1, mask, _NONBLOCK_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return fd
