"""Which processes an administrator wants watched, or never watched."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from trainprobe.config.schema import Matches

COMMAND_LIMIT = 4096  # characters of a command line that patterns see


def matches(rule: Matches, command: Sequence[str], uid: int | None, cgroups: Sequence[str]) -> bool:
    """Whether any entry of any key fits a process."""
    if uid is not None and uid in rule.uids:
        return True
    line = " ".join(command)[:COMMAND_LIMIT]
    if any(fnmatchcase(line, pattern) for pattern in rule.commands):
        return True
    return any(fnmatchcase(path, pattern) for pattern in rule.cgroups for path in cgroups)
