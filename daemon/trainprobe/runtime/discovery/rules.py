"""Which processes an administrator wants watched, or never watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from fnmatch import fnmatchcase

from trainprobe.config.schema import Matches
from trainprobe.model.dataclass import dataclass

COMMAND_LIMIT = 4096  # characters of a command line that patterns see


@dataclass(frozen=True, slots=True)
class TargetRules:
    """``include``: a run from when it is seen, stepping or not. ``exclude``: never, and it wins."""

    include: Matches = field(default_factory=Matches)
    exclude: Matches = field(default_factory=Matches)

    @property
    def includes(self) -> bool:
        return bool(self.include.commands or self.include.uids or self.include.cgroups)

    @property
    def excludes(self) -> bool:
        return bool(self.exclude.commands or self.exclude.uids or self.exclude.cgroups)


def matches(rule: Matches, command: Sequence[str], uid: int | None, cgroups: Sequence[str]) -> bool:
    """Whether any entry of any key fits a process."""
    if uid is not None and uid in rule.uids:
        return True
    line = " ".join(command)[:COMMAND_LIMIT]
    if any(fnmatchcase(line, pattern) for pattern in rule.commands):
        return True
    return any(fnmatchcase(path, pattern) for pattern in rule.cgroups for path in cgroups)
