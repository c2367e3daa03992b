# SPDX-License-Identifier: Apache-2.0
"""Runs a function in a forked child, while the parent goes on."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


class ForkedTask:
    """A child at work. It dies with us."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        self._reading, writing = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._reading)
            _carry_out(work, writing)
        os.close(writing)

    def result(self) -> bytes:
        """What it made, once it has; b"" where it failed, which is told best by doing the same here."""
        with open(self._reading, "rb") as file:
            made = file.read()
        _, status = os.waitpid(self._child, 0)
        return made if status == 0 else b""


def _carry_out(work: Callable[[], bytes], writing: int) -> NoReturn:
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with open(writing, "wb") as file:
            file.write(work())
        status = 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        os._exit(status)
