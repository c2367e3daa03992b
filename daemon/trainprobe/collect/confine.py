"""Running a program that reads strangers' processes: as the process's own user, with one capability and no network.

By util-linux's tools (``unshare``, ``prlimit``, ``setpriv``), which every Debian and Ubuntu has: nothing of ours runs
between fork and exec. What a host forbids (a container without CAP_SYS_ADMIN) is left out.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

TRY_SECONDS = 1.0
_WHERE = ("/usr/bin", "/bin")
_LIMITS = ("--as=2147483648", "--cpu=2", "--nofile=256", "--core=0", "--fsize=0")
_CAPABILITY = "-all,+sys_ptrace"


def confinement() -> tuple[str, ...]:
    """The names of those tools that work here, outermost first; () for an ordinary user."""
    if os.geteuid() != 0:
        return ()
    for tools in (("unshare", "prlimit", "setpriv"), ("prlimit", "setpriv"), ("prlimit",)):
        command = confined(tools, 0, 0)
        if command and _works([*command, "/bin/true"]):
            return tools
    return ()


def confined(tools: Sequence[str], uid: int, gid: int) -> list[str]:
    """The words before the program that is to be run; [] when a tool is missing."""
    words: list[str] = []
    for tool in tools:
        path = next((f"{where}/{tool}" for where in _WHERE if os.access(f"{where}/{tool}", os.X_OK)), None)
        if path is None:
            return []
        words += [path, *_arguments(tool, uid, gid), "--"]
    return words


def _arguments(tool: str, uid: int, gid: int) -> list[str]:
    if tool == "unshare":
        return ["--net"]
    if tool == "prlimit":
        return list(_LIMITS)
    return [
        f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", f"--inh-caps={_CAPABILITY}",
        f"--ambient-caps={_CAPABILITY}", f"--bounding-set={_CAPABILITY}",
    ]  # fmt: skip


def _works(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TRY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
