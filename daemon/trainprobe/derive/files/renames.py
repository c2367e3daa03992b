"""Directories that got another name while their files were written: what is reported later may have the old one."""

from __future__ import annotations

from dataclasses import field, replace

from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import FileEvent
from trainprobe.model.text import end_of

KEEP = 8
MOVES = 8
"""So often a file's directory is followed: one that is renamed to and fro for ever is not."""


@dataclass(frozen=True, slots=True)
class Rename:
    path: str
    new_path: str
    at_ns: int

    def moves(self, path: str) -> bool:
        return path.startswith(f"{self.path}/")

    def moved(self, path: str) -> str:
        """The new path of a file in the directory."""
        return end_of(self.new_path + path[len(self.path) :])


@dataclass(slots=True)
class Renames:
    """Of directories with files of the run, the latest."""

    latest: list[Rename] = field(default_factory=list)

    def add(self, rename: Rename) -> None:
        self.latest = [*self.latest, rename][-KEEP:]

    def with_new_path(self, event: FileEvent) -> FileEvent:
        """The event of a file whose directory was renamed since it was opened."""
        opened_ns = event.opened_ns or event.at_ns
        for rename in reversed(self.latest):
            if opened_ns < rename.at_ns and rename.moves(event.path):
                return replace(event, path=rename.moved(event.path))
        return event

    def at_ns(self, path: str, opened_ns: int) -> int:
        """When the directory of a file got its name, after the file was opened; 0: it did not."""
        later = (one.at_ns for one in self.latest if opened_ns < one.at_ns and path.startswith(f"{one.new_path}/"))
        return next(later, 0)
