"""What this process may do, and how it gets the rest."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

SYS_ADMIN = 21
NEEDED = {
    "CAP_BPF": (39, "load eBPF programs"),
    "CAP_PERFMON": (38, "attach them to tracepoints and uprobes"),
    "CAP_SYS_PTRACE": (19, "look at processes of other users"),
    "CAP_DAC_READ_SEARCH": (2, "read tracefs"),
}
MARKS_REMEDY = "give it CAP_SYS_ADMIN, or name trainings in targets.include to have the rest of them"
COVERED_BY_SYS_ADMIN = frozenset({"CAP_BPF", "CAP_PERFMON"})


def missing(status: str | None = None) -> list[str]:
    """The capabilities that watching needs and this process lacks; ``status``: its /proc/self/status."""
    effective = _effective(status)
    admin = bool(effective >> SYS_ADMIN & 1)
    return [
        name
        for name, (bit, _purpose) in NEEDED.items()
        if not effective >> bit & 1 and not (admin and name in COVERED_BY_SYS_ADMIN)
    ]


def _effective(status: str | None) -> int:
    text = Path("/proc/self/status").read_text() if status is None else status
    return next((int(line.split()[1], 16) for line in text.splitlines() if line.startswith("CapEff:")), 0)


def marks_refused(status: str | None = None) -> str:
    """Why this process may not set uprobes, without which no step is seen; "" where it may.

    The kernel asks for CAP_SYS_ADMIN (perf_uprobe_event_init), with CAP_PERFMON too.
    """
    return "" if _effective(status) >> SYS_ADMIN & 1 else "the kernel sets uprobes for CAP_SYS_ADMIN only: no steps"


def program() -> list[str]:
    """How to start this program again: no folder of the caller's comes into its search path for modules."""
    script = Path(sys.argv[0])
    if script.name == "trainprobe" and script.is_absolute() and os.access(script, os.X_OK):
        return [str(script)]
    root = str(Path(__file__).resolve().parents[2])
    start = f"import sys; sys.path.insert(0, {root!r}); from trainprobe.cli import main; sys.exit(main())"
    return [sys.executable, "-I", "-c", start]


def with_sudo(command: Sequence[str]) -> list[str] | None:
    """The same command through sudo; None where there is no sudo."""
    sudo = shutil.which("sudo")
    prompt = "[sudo] password of %p, to load trainprobe's eBPF programs: "
    return [sudo, "-p", prompt, "--", *command] if sudo else None
