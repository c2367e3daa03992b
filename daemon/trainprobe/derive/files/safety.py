"""Whether a crash would lose everything: intervals in which a run that had saved had no complete checkpoint."""

from __future__ import annotations

from dataclasses import field

from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.files.save import Save
from trainprobe.derive.files.saves import Saves, is_empty
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import FileEvent, FileEventKind
from trainprobe.model.moment import NS

KEEP = 256
LEAST = NS // 100
"""Shorter gaps are not reported: a crash in one is unlikely."""
_RECENT = 8  # closed saves among which the one that an event is about is looked for


@dataclass(slots=True)
class Gaps:
    """The sum of the gaps. Times in ns."""

    count: int = 0
    longest_ns: int = 0
    at_ns: int = 0  # the end of the last one
    path: str = ""
    in_place: bool = False  # the last one came by writing over the checkpoint; else by deleting it
    synced: bool = False  # the save that ended the last one was synced

    def add(self, ns: int, at_ns: int, path: str, *, in_place: bool, synced: bool) -> None:
        self.count += 1
        self.longest_ns = max(self.longest_ns, ns)
        self.at_ns, self.path, self.in_place, self.synced = at_ns, path, in_place, synced


@dataclass(slots=True)
class Safety:
    """Follows which complete checkpoints there are. Feed it behind ``Saves``, with the same events."""

    gaps: Gaps = field(default_factory=Gaps)
    since_ns: int | None = None  # no complete checkpoint exists since then
    path: str = ""  # that was lost last
    in_place: bool = False
    _complete: dict[str, None] = field(default_factory=dict)  # paths, the oldest first

    def add_event(self, event: FileEvent, saves: Saves) -> None:
        if event.kind == FileEventKind.OPENED and event.created:
            self._lost(event, in_place=True)
        elif event.kind == FileEventKind.UNLINKED and not event.errno:
            self._lost(event, in_place=False)
        elif event.kind == FileEventKind.RENAMED and not event.errno:
            self._complete.pop(event.path, None)
            self._gained(_save(saves, event.new_path), saves, event.at_ns)
        elif event.kind == FileEventKind.CLOSED and not is_empty(event):
            self._gained(_save(saves, event.path), saves, event.at_ns)

    def _lost(self, event: FileEvent, *, in_place: bool) -> None:
        if event.path in self._complete:
            del self._complete[event.path]
            if not self._complete:
                self.since_ns, self.path, self.in_place = event.at_ns, event.path, in_place

    def _gained(self, save: Save | None, saves: Saves, at_ns: int) -> None:
        if save is None or save.errno or save.early or save.kind_of(saves.rules) != FileClass.CHECKPOINT:
            return  # what was written before the first step keeps no progress
        self._complete[save.path] = None
        if len(self._complete) > KEEP:
            del self._complete[next(iter(self._complete))]
        since, self.since_ns = self.since_ns, None
        if save.unsafe and save.sync_ns and save.path == self.gaps.path:  # synced behind its close
            save.unsafe, self.gaps.synced = False, True
            saves.changed([save])
        if since is None or at_ns - since < LEAST:
            return
        synced = save.sync_ns > 0
        save.unsafe = self.in_place and not synced
        saves.changed([save])
        self.gaps.add(at_ns - since, at_ns, self.path, in_place=self.in_place, synced=synced)


def _save(saves: Saves, path: str) -> Save | None:
    return next((s for s in reversed(saves.closed[-_RECENT:]) if s.path == path), None)
