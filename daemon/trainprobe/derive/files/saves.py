"""Checkpoints as they are written: open, bytes, fsync, rename, outcome; followed through temporary names and moves."""

from __future__ import annotations

import errno as errors
from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import field, replace
from operator import attrgetter

from trainprobe.derive.files.logs import Logs, LogUse
from trainprobe.derive.files.purpose import LARGE, FileClass, FileRules, classify, is_restored
from trainprobe.derive.files.renames import MOVES, Rename, Renames
from trainprobe.derive.files.save import Removal, Save, SaveTotals
from trainprobe.derive.files.save_groups import SavedFile
from trainprobe.derive.files.save_numbers import SaveNumbers
from trainprobe.derive.files.save_steps import SaveSteps
from trainprobe.derive.memo import Memo
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import FileEvent, FileEventKind
from trainprobe.model.moment import NS
from trainprobe.model.vocabulary import CHECKPOINT_OPERATIONS

FOLLOW = 60 * NS
"""A rename (or a copy after EXDEV) this long after the close still belongs to the save."""
REOPEN = 5 * NS
"""A file opened again so soon, and not emptied, is the same save (torch.save(path), then open and fsync)."""
NEXT_REMOVAL_NS = NS // 100
KEEP, OTHERS = 512, 64
"""Closed files; so many that are no checkpoints, of which each may become one by a rename, make room for none."""
OPEN = 512
"""Open files that are followed at a time: each turn looks at them all. Others count when they are closed."""
NAMES = 2048
_TOTALS = frozenset((FileEventKind.PROGRESS, FileEventKind.CLOSED))


@dataclass(slots=True)
class Saves:
    """All files that the processes of one rank write; the checkpoints among them make the report's list."""

    rules: FileRules = field(default_factory=FileRules)
    open: dict[tuple[int, int, int], Save] = field(default_factory=dict)
    closed: list[Save] = field(default_factory=list)
    steps_ns: int | None = 0  # when the training began to step; None: it does not yet
    drivers: set[int] = field(default_factory=set)  # tids: their saves block
    gone: SaveTotals = field(default_factory=SaveTotals)
    logs: Logs = field(default_factory=Logs)
    names: dict[tuple[int, int], FileEvent] = field(default_factory=dict)
    full_ns: int = -NS  # when none of the open ones could make room
    carried: dict[tuple[int, int, int], Save] = field(default_factory=dict)  # what was written before a move
    removals: deque[Removal] = field(default_factory=lambda: deque(maxlen=64))
    renames: Renames = field(default_factory=Renames)
    steps: SaveSteps = field(default_factory=SaveSteps)
    numbered: SaveNumbers = field(default_factory=SaveNumbers)
    memo: Memo = field(default_factory=Memo)  # what is made of closed ones

    def changed(self, saves: Iterable[Save]) -> None:
        """Closed ones are not what they were."""
        self.memo.clear()
        for save in saves:
            save.kind = save.parts = save.shown = None
            self.numbered.changed(save)

    def begin_steps(self, at_ns: int) -> None:
        """The training steps since then, if it is not known already; what was written since may be checkpoints."""
        if self.steps_ns is not None:
            return
        self.steps_ns = at_ns
        late = [save for save in (*self.open.values(), *self.closed) if save.start_ns >= at_ns]
        self.changed(late)
        for save in late:
            save.early = False
            if save.end_ns is not None and save.kind_of(self.rules) == FileClass.CHECKPOINT:
                self.logs.forget(save.path)

    def drives(self, tid: int) -> None:
        """The saves of a thread block the training."""
        if tid not in self.drivers:
            self.drivers.add(tid)
            self.changed(self.closed)

    def add_event(self, event: FileEvent) -> None:
        event = self.renames.with_new_path(event)
        key = (event.pid, event.dev, event.ino)
        self._note(key, event)
        if event.kind == FileEventKind.OPENED:
            self._opened(key, event)
        elif event.kind in _TOTALS:
            if key not in self.open and is_empty(event):
                return
            save = self.open.get(key) or self._opened(key, event)
            self._totals(save, event)
            if event.kind == FileEventKind.CLOSED:
                self._end_save(save, event.at_ns)
        elif event.kind == FileEventKind.RENAMED:
            self._renamed(event)
        elif not event.errno and self._is_checkpoint(event):
            self._removed(Removal(event.path, event.tid, event.opened_ns or event.at_ns, event.at_ns))

    def _is_checkpoint(self, event: FileEvent) -> bool:
        """Whether a removed file was one: by its name alone where it is of an earlier run, or where thousands were
        written since; of the latest saves' directories any that may be one."""
        if (event.dev, event.ino) in self.names:
            return self.class_of(event.dev, event.ino, 0)[0] == FileClass.CHECKPOINT
        if is_restored(event.path, self.rules):
            return True
        may = classify(event.path, LARGE, created=True, append=False, rules=self.rules).of == FileClass.CHECKPOINT
        return may and any(event.path.startswith(f"{one.root}/") for one in self.gone.groups.recent)

    def _removed(self, removal: Removal) -> None:
        """Files that are removed one right after the other are one removal: a checkpoint may be thousands."""
        last = self.removals[-1] if self.removals else None
        if last is not None and last.tid == removal.tid and removal.start_ns - last.end_ns < NEXT_REMOVAL_NS:
            last.end_ns, last.ns = removal.end_ns, last.ns + removal.ns
        else:
            self.removals.append(removal)

    def _note(self, key: tuple[int, int, int], event: FileEvent) -> None:
        """Remember what an inode is called now, and whether it was begun anew."""
        before = self.names.get(key[1:])
        if not event.path and before is not None and event.pid == before.pid and event.kind in _TOTALS:
            event = replace(event, path=before.path)
        if not event.ino or not event.path or event.kind == FileEventKind.UNLINKED:
            return
        if before is not None and event.kind == FileEventKind.CLOSED and event.at_ns < before.at_ns and is_empty(event):
            return  # told late, and somebody used the file since
        self.names.pop(key[1:], None)
        known = before is not None and event.kind != FileEventKind.OPENED
        if event.kind == FileEventKind.RENAMED and event.errno in (0, errors.EXDEV):  # what it is called, or will be
            event = replace(event, path=event.new_path)
        if before is not None and known:
            was = event.created or before.created, event.append or before.append, max(event.bytes, before.bytes)
            if was != (event.created, event.append, event.bytes):
                event = replace(event, created=was[0], append=was[1], bytes=was[2])
        self.names[key[1:]] = event
        if len(self.names) > NAMES:
            self.names.pop(next(iter(self.names)))

    def touched(self, pid: int, start_ns: int, end_ns: int, asked: Container[str] = ()) -> list[FileEvent]:
        """The latest event of each file that a process wrote, or opened to write, in an interval; at any time and by
        anyone of those that it ``asked`` for."""
        names = self.names.values()
        return [e for e in names if (e.pid == pid and start_ns <= e.at_ns < end_ns) or e.path in asked]

    def _opened(self, key: tuple[int, int, int], event: FileEvent) -> Save:
        start = event.opened_ns or event.at_ns
        save = Save(key, event.path, start, event.tid, created=event.created, append=event.append)
        save.early = self._early(start)
        if key not in self.open and len(self.open) >= OPEN:
            if event.at_ns - self.full_ns < NS:
                return save
            other = next((one for one in self.open.values() if _can_go(one, self, event.at_ns)), None)
            if other is None:
                self.full_ns = event.at_ns
                return save
            self._end_save(other, _told_ns(other))
        again = self._opened_again(key, event)
        if again is not None:
            return again
        moved = next((s for s in reversed(self.closed) if s.moving_to and s.moving_to == event.path), None)
        if moved is not None:
            self.closed.remove(moved)
            self.changed([moved])
            save.start_ns, save.tid, save.created = moved.start_ns, moved.tid, True
            save.rename_ns = moved.rename_ns
            self.carried[key] = moved
        self.open[key] = save
        self.steps.add(save)
        return save

    def _opened_again(self, key: tuple[int, int, int], event: FileEvent) -> Save | None:
        if event.created and (event.kind == FileEventKind.OPENED or event.bytes):  # else it was synced behind its close
            return None
        for save in reversed(self.closed[-8:]):
            if save.key == key and save.end_ns is not None and event.at_ns - save.end_ns < REOPEN:
                self.closed.remove(save)
                self.changed([save])
                self.carried[key] = replace(save)
                save.end_ns = None
                self.open[key] = save
                return save
        return None

    def _totals(self, save: Save, event: FileEvent) -> None:
        before, was = self.carried.get(save.key), (save.path, save.bytes >= LARGE, save.created, save.append)
        save.path = event.path or save.path
        if not save.renamed_ns:
            save.renamed_ns = self.renames.at_ns(save.path, save.start_ns)
        save.created = save.created or event.created
        save.append = save.append or event.append
        reopened = before is not None and not before.moving_to
        save.grown_ns = event.at_ns if event.calls else save.grown_ns
        save.bytes = event.bytes + (before.bytes if before is not None and reopened else 0)
        save.calls = event.calls + (before.calls if before else 0)
        save.write_ns = event.write_ns + (before.write_ns if before else 0)
        save.sync_ns = event.sync_ns + (before.sync_ns if before else 0)
        save.meta_ns = event.meta_ns + (before.meta_ns if before else 0)
        save.gap_ns = event.gap_ns + (before.gap_ns if before else 0)
        save.errno = save.errno or event.errno
        if was != (save.path, save.bytes >= LARGE, save.created, save.append):
            save.kind = None

    def _end_save(self, save: Save, end_ns: int) -> None:
        save.end_ns = end_ns
        self.open.pop(save.key, None)
        self.carried.pop(save.key, None)
        if save.bytes == 0 and not save.errno:
            return
        kind = save.filed(self.rules)
        if kind.of == FileClass.LOG:
            self.logs.add(save, kind.log)
            if not save.early or save.kind_in_training(self.rules) == FileClass.LOG:
                return
        self.closed.append(save)
        self.changed([save])
        if len(self.closed) > KEEP and kind.of != FileClass.CHECKPOINT:
            self._forget_others()
        while len(self.closed) > KEEP:
            earliest = min(self.closed, key=_started)  # the close of a small file is reported late
            self.closed.remove(earliest)
            self._forget(earliest)

    def _forget_others(self) -> None:
        """Half of the files that are no checkpoints, where those are many."""
        others = [one for one in self.closed if one.kind_of(self.rules) != FileClass.CHECKPOINT]
        if len(others) > OTHERS:
            old = set(map(id, others[: len(others) // 2]))
            self.closed = [one for one in self.closed if id(one) not in old]

    def _forget(self, save: Save) -> None:
        if save.kind_of(self.rules) != FileClass.CHECKPOINT:
            return
        self.gone.outcomes[save.outcome] = self.gone.outcomes.get(save.outcome, 0) + 1
        self.gone.bytes += save.bytes
        for key, ns in self.seconds_by(save).items():
            self.gone.ns[key] = self.gone.ns.get(key, 0) + ns
        number = self.gone.groups.add(_saved_file(save, self))
        self.numbered.forget_first()
        other = next((one for one in self.closed if one.kind_of(self.rules) == FileClass.CHECKPOINT), None)
        if other is not None and self.gone.groups.copy().add(_saved_file(other, self)) == number:
            other.before = save.sums + other.before

    def seconds_by(self, save: Save) -> dict[str, int]:
        """Nanoseconds of a save by "operation/blocking"."""
        blocking = "true" if save.tid in self.drivers else "false"
        parts = zip(CHECKPOINT_OPERATIONS, save.ns_by_operation())
        return {f"{operation}/{blocking}": ns for operation, ns in parts}

    def _renamed(self, event: FileEvent) -> None:
        named = [s for s in (*self.open.values(), *reversed(self.closed)) if s.path.startswith(event.path)]
        near = [s for s in named if s.end_ns is None or event.at_ns - s.end_ns < FOLLOW]
        save = next((s for s in near if s.path == event.path), None)
        if save is None:
            self._directory_renamed(event, near)
            return
        self.changed([save])
        save.rename_ns += event.meta_ns
        if event.errno == errors.EXDEV:
            save.moving_to = event.new_path
        elif event.errno:
            save.errno = save.errno or event.errno
        else:
            save.path = event.new_path
            if save.end_ns is not None:
                save.end_ns = max(save.end_ns, event.at_ns)

    def _directory_renamed(self, event: FileEvent, near: Sequence[Save]) -> None:
        if event.errno or not event.path:
            return
        rename = Rename(event.path.rstrip("/"), event.new_path.rstrip("/"), event.at_ns)
        inside = [save for save in near if save.moves < MOVES and rename.moves(save.path)]
        gone = self.gone.groups.rename(rename, event.at_ns - FOLLOW)
        if not inside and not gone:
            return
        self.renames.add(rename)
        if gone:
            self.numbered.begin_anew()
        for save in inside:
            save.was_checkpoint = save.kind_of(self.rules) == FileClass.CHECKPOINT
        self.changed(inside)
        for save in inside:
            save.path = rename.moved(save.path)
            save.renamed_ns, save.moves = rename.at_ns, save.moves + 1

    def checkpoints(self) -> list[Save]:
        """Checkpoints closed and open, by start."""
        closed, being = self.closed_checkpoints(), _being_written(self)
        return sorted([*closed, *being], key=_started) if being else closed[:]

    def numbers(self) -> list[int]:
        """For each of ``checkpoints``: the number, in the run, of the save that the file belongs to."""
        return _numbers(self) if _being_written(self) else self.memo.get(_numbers, self)

    def closed_checkpoints(self) -> list[Save]:
        """By start. It is not to be changed."""
        return self.memo.get(_checkpoints, self.closed, self.rules)

    def being_written(self, start_ns: int, end_ns: int) -> list[Save]:
        """Checkpoints that were being written in an interval."""
        return [s for s in self.checkpoints() if s.begin_ns < end_ns and not _is_over(s, self, start_ns)]

    def removed(self, start_ns: int, end_ns: int) -> list[Removal]:
        return [removal for removal in self.removals if start_ns < removal.end_ns <= end_ns]

    def class_of(self, dev: int, ino: int, size: int) -> tuple[FileClass, str]:
        """Class and path of the file behind an inode, by its latest event (an unknown one: other)."""
        event = self.names.get((dev, ino))
        if event is None:
            return FileClass.OTHER, ""
        open_save = self.open.get((event.pid, dev, ino))
        path = open_save.path if open_save else event.path
        size = max(size, event.bytes, open_save.bytes if open_save else 0)
        early = open_save.early if open_save else self._early(event.opened_ns or event.at_ns)
        return classify(path, size, created=event.created, append=event.append, early=early, rules=self.rules).of, path

    def _early(self, start_ns: int) -> bool:
        return self.steps_ns is None or start_ns < self.steps_ns

    def all_logs(self) -> list[LogUse]:
        """Logs of the run that have names, those still open included."""
        kinds = ((save, save.filed(self.rules)) for save in self.open.values())
        return self.logs.all((save, kind.log) for save, kind in kinds if kind.of == FileClass.LOG)


_started = attrgetter("start_ns")


def is_empty(event: FileEvent) -> bool:
    """Whether nothing was done to the file, so that one that is not known need not be."""
    return not (event.calls or event.bytes or event.write_ns or event.sync_ns or event.errno)


def _told_ns(save: Save) -> int:
    return max(save.start_ns, save.grown_ns)


def _can_go(save: Save, saves: Saves, at_ns: int) -> bool:
    """Whether an open one makes room for another: nothing was written to it, or its close was lost."""
    written = save.calls + save.write_ns + save.sync_ns or save.key in saves.carried
    return not written or at_ns - _told_ns(save) > FOLLOW


def _being_written(saves: Saves) -> list[Save]:
    return [save for save in saves.open.values() if save.kind_of(saves.rules) == FileClass.CHECKPOINT]


def _numbers(saves: Saves) -> list[int]:
    return saves.numbered.of(
        saves.closed_checkpoints(),
        _being_written(saves),
        saves.gone.groups,
        lambda save: _saved_file(save, saves),
        saves.steps.next[0] if saves.steps.next is not None else None,
    )


def _saved_file(save: Save, saves: Saves) -> SavedFile:
    end_ns = save.end_ns if save.end_ns is not None else save.begin_ns + save.called_ns
    step = saves.steps.step_of(save)
    return SavedFile(save.path, save.start_ns, end_ns, save.tid in saves.drivers, step, save.renamed_ns)


def _is_over(save: Save, saves: Saves, at_ns: int) -> bool:
    """Whether nothing was written to it any more. The close of a small file is reported late: before, its directory may
    get its name, and its driver make steps or write the next file."""
    if save.end_ns is not None:
        return save.end_ns <= at_ns
    if save.renamed_ns:
        return save.renamed_ns <= at_ns
    if save.tid not in saves.drivers or max(save.start_ns, save.grown_ns) >= at_ns:
        return False
    return save.step is not None or any(
        other.tid == save.tid and save.start_ns < other.start_ns < at_ns for other in saves.checkpoints()
    )


def _checkpoints(closed: Iterable[Save], rules: FileRules) -> list[Save]:
    return sorted([save for save in closed if save.kind_of(rules) is FileClass.CHECKPOINT], key=_started)
