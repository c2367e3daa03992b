"""Which save, by its number in the run, each checkpoint belongs to. Only the latest are numbered anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from operator import attrgetter

from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_groups import SavedFile, SaveGroups
from trainprobe.model.dataclass import dataclass

_started = attrgetter("start_ns")
ANEW = 8
"""Closed checkpoints, the latest, that may be numbered several times; up to twice as many are."""


@dataclass(slots=True)
class SaveNumbers:
    """The fold over a run's checkpoints, kept as it stood behind those that are settled."""

    settled: list[int] = field(default_factory=list)  # the numbers of the first checkpoints in the list
    until_ns: int = 0  # the start of the last of them
    groups: SaveGroups = field(default_factory=SaveGroups)  # as of then

    def changed(self, save: Save) -> None:
        """It is not what it was, or new."""
        if self.settled and save.start_ns <= self.until_ns:
            self.settled = []

    def begin_anew(self) -> None:
        """Of saves of which files have left the list, the directory has another name."""
        self.settled = []

    def forget_first(self) -> None:
        """The first in the list is among those now that have left it."""
        del self.settled[:1]

    def of(
        self,
        closed: Sequence[Save],
        being_written: Sequence[Save],
        gone: SaveGroups,
        file: Callable[[Save], SavedFile],
        stepped_ns: int | None,
    ) -> list[int]:
        """For each checkpoint, by start: the number of its save. ``closed``: by start; ``gone``: the fold over those
        that have left the list; ``stepped_ns``: of later ones the step may change."""
        open_ns = min((save.start_ns for save in being_written), default=None)
        if not self.settled:
            self.groups = gone.copy()
        elif open_ns is not None and open_ns <= self.until_ns:
            return _folded(gone.copy(), sorted([*closed, *being_written], key=_started), file)
        if len(closed) - len(self.settled) > 2 * ANEW:
            unsettled_ns = min((ns for ns in (open_ns, stepped_ns) if ns is not None), default=None)
            for save in closed[len(self.settled) : -ANEW]:
                if unsettled_ns is not None and save.start_ns >= unsettled_ns:
                    break
                self.settled.append(self.groups.add(file(save)))
                self.until_ns = save.start_ns
        rest = closed[len(self.settled) :]
        if being_written:
            rest = sorted([*rest, *being_written], key=_started)
        return [*self.settled, *_folded(self.groups.copy(), rest, file)]


def files_of_latest(numbered: Sequence[tuple[Save, int]]) -> list[Save]:
    """The files of the save that ended last, of which none is still written; without those that failed. ``numbered``:
    checkpoints with the numbers of their saves."""
    going_on = {number for save, number in numbered if save.end_ns is None}
    ended = [(save.end_ns, number) for save, number in numbered if save.end_ns is not None and number not in going_on]
    if not ended:
        return []
    _, latest = max(ended)
    return [save for save, number in numbered if number == latest and save.outcome != "error"]


def _folded(groups: SaveGroups, saves: Sequence[Save], file: Callable[[Save], SavedFile]) -> list[int]:
    return [groups.add(file(save)) for save in saves]
