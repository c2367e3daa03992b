"""`trainprobe` with a stand-in for the half that needs rights: ``python front.py run … -- CMD``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from trainprobe.cli import main
from trainprobe.runtime.session import privileges

PART = [sys.executable, str(Path(__file__).with_name("fake_part.py"))]
privileges.program = lambda: PART
privileges.missing = lambda _status=None: []


def forbidden(pid: int, number: int) -> NoReturn:
    raise PermissionError(1, "Operation not permitted")


def no_room(*_arguments: object, **_options: object) -> NoReturn:
    raise BlockingIOError(11, "Resource temporarily unavailable")


match os.environ.get("FAKE"):
    case "strange":  # the command is another user's
        os.kill = forbidden
    case "no part":
        subprocess.Popen = no_room  # type: ignore[assignment, misc]
    case "no child":
        os.fork = no_room
sys.exit(main())
