"""What this process may do, and how it gets the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainprobe.collect.procfs import KERNEL_THREAD, SMALL, parse_stat, read_file
from trainprobe.model.message import Message, template
from trainprobe.text.render import Speaker
from trainprobe.text.saying import word

CHOWN, SYS_ADMIN = 0, 21
INIT_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, the same on every kernel
PIDS_REMEDY = word("run it on the host, or in a container with --pid=host (Kubernetes: hostPID: true)")
NEEDED = {
    "CAP_BPF": (39, "load eBPF programs"),
    "CAP_PERFMON": (38, "attach them to tracepoints and uprobes"),
    "CAP_SYS_PTRACE": (19, "look at processes of other users"),
    "CAP_DAC_READ_SEARCH": (2, "read tracefs"),
}
MARKS_REFUSED = template("source.marks_refused", "the kernel sets uprobes for CAP_SYS_ADMIN only: no steps")
MARKS_REMEDY = template(
    "source.marks_remedy", "give it CAP_SYS_ADMIN, or name trainings in targets.include to have the rest of them"
)()
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


def missing_to_publish(gid: int, status: str | None = None) -> list[str]:
    """The capabilities that giving reports to group ``gid`` (-1: none) needs and this process lacks."""
    own = gid in (-1, os.getegid(), *os.getgroups())
    return [] if own or _effective(status) >> CHOWN & 1 else [f"CAP_CHOWN (gid {gid})"]


def _effective(status: str | None) -> int:
    text = Path("/proc/self/status").read_text() if status is None else status
    return next((int(line.split()[1], 16) for line in text.splitlines() if line.startswith("CapEff:")), 0)


def marks_refused(status: str | None = None) -> Message | None:
    """Why this process may not set uprobes, without which no step is seen; None where it may.

    The kernel asks for CAP_SYS_ADMIN (perf_uprobe_event_init), with CAP_PERFMON too.
    """
    return None if _effective(status) >> SYS_ADMIN & 1 else MARKS_REFUSED()


def pids_hidden(proc: str = "/proc") -> str:
    """Why no process can be watched although eBPF works; "" where all is well.

    eBPF knows processes by the numbers of the kernel's first pid namespace: /proc has to show these.
    """
    own = os.stat(f"{proc}/self/ns/pid").st_ino if os.path.exists(f"{proc}/self/ns/pid") else None
    thread = parse_stat((read_file(f"{proc}/2/stat", SMALL) or b"").decode("ascii", "replace"))  # kthreadd, first only
    if own == INIT_PID_NAMESPACE or (thread is not None and thread.flags & KERNEL_THREAD):
        return ""
    return word("/proc shows the pids of a container, and the kernel uses the host's")


def program() -> list[str]:
    """How to start this program again: no folder of the caller's comes into its search path for modules."""
    script = Path(sys.argv[0])
    if script.name == "trainprobe" and script.is_absolute() and os.access(script, os.X_OK):
        return [str(script)]
    root = str(Path(__file__).resolve().parents[3])
    start = f"import sys; sys.path.insert(0, {root!r}); from trainprobe.cli import main; sys.exit(main())"
    return [sys.executable, "-I", "-c", start]


def with_sudo(command: Sequence[str], language: str) -> list[str] | None:
    """The same command through sudo, which asks in that language; None where there is no sudo."""
    import shutil

    sudo = shutil.which("sudo")
    prompt = Speaker(language).say("[sudo] password of %p, to load trainprobe's eBPF programs: ")
    return [sudo, "-p", prompt, "--", *command] if sudo else None
