"""`trainprobe` with a stand-in for the half that needs rights: ``python front.py run … -- CMD``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from trainprobe.cli import main
from trainprobe.runtime.session import privileges
from trainprobe.runtime.session.caller import Session

PART = [sys.executable, str(Path(__file__).with_name("fake_part.py"))]
privileges.program = lambda: PART
privileges.missing = lambda _status=None: []


def forbidden(pid: int, number: int) -> NoReturn:
    raise PermissionError(1, "Operation not permitted")


def no_room(*_arguments: object, **_options: object) -> NoReturn:
    raise BlockingIOError(11, "Resource temporarily unavailable")


def alarmed(session: Session, until_fd: int | None = None, watch: Callable[..., None] = Session.watch) -> None:
    """A timer that was set for us goes off when the command is up."""
    while not os.path.exists("up"):
        time.sleep(0.01)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    watch(session, until_fd)


match os.environ.get("FAKE"):
    case "strange":  # the command is another user's
        os.kill = forbidden
    case "alarm":
        Session.watch = alarmed  # type: ignore[assignment, method-assign]
    case "no part":
        subprocess.Popen = no_room  # type: ignore[assignment, misc]
    case "no child":
        os.fork = no_room
sys.exit(main())
