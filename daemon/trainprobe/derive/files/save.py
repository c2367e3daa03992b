"""One file's way to disk, and what remains of those that have left the list."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from trainprobe.derive.files.purpose import FileClass, FileKind, FileRules, classify
from trainprobe.derive.files.save_groups import SaveGroups
from trainprobe.model.dataclass import dataclass


@dataclass(slots=True, kw_only=True)
class _Made:
    """What was made of a save, until it changes (``Saves.changed``); only its kind while it is open."""

    kind: FileKind | None = field(default=None, compare=False)
    parts: tuple[int, ...] | None = field(default=None, compare=False)
    shown: Any = field(default=None, compare=False, repr=False)  # in reports


@dataclass(frozen=True, slots=True)
class FileSums:
    """Of several files of one save."""

    files: int
    bytes: int
    begin_ns: int
    largest: int  # bytes of the largest one, which the save is told by
    path: str  # of it

    def __add__(self, other: FileSums | None) -> FileSums:
        if other is None:
            return self
        begin_ns, main = min(self.begin_ns, other.begin_ns), other if other.largest > self.largest else self
        return FileSums(self.files + other.files, self.bytes + other.bytes, begin_ns, main.largest, main.path)


@dataclass(slots=True, kw_only=True)
class _Placed(_Made):
    """Where the file belongs."""

    step: int | None = None  # of the driver's, in which it was opened; None: not known
    renamed_ns: int = 0  # when a directory that holds it got its name; 0: none did
    was_checkpoint: bool = False  # before that, by the directory's name
    moves: int = 0  # how often one did
    grown_ns: int = 0  # when calls on it were reported last
    before: FileSums | None = None  # earlier files of the same save, which have left the list


@dataclass(slots=True)
class Save(_Placed):
    """One file's way to disk. Times are CLOCK_MONOTONIC ns, durations ns."""

    key: tuple[int, int, int]  # (pid, dev, ino)
    path: str
    start_ns: int
    tid: int
    end_ns: int | None = None  # None: still open
    bytes: int = 0
    calls: int = 0
    write_ns: int = 0
    sync_ns: int = 0
    meta_ns: int = 0
    rename_ns: int = 0
    gap_ns: int = 0
    ahead_ns: int = 0  # on the CPU directly before it was opened: serialising, judged when the step has ended
    inside_ns: int = 0  # the same between its calls, beyond `gap_ns`
    errno: int = 0
    created: bool = False
    append: bool = False
    early: bool = False  # opened before the training's first step
    unsafe: bool = False  # written over the only complete checkpoint, and not synced
    moving_to: str = ""  # rename said EXDEV: the copy that follows to this path is the same save

    @property
    def begin_ns(self) -> int:
        return self.start_ns - self.ahead_ns

    @property
    def first_ns(self) -> int:
        """When it was opened, or the first of those before it."""
        return self.start_ns if self.before is None else min(self.start_ns, self.before.begin_ns)

    @property
    def sums(self) -> FileSums:
        """Of it, and of those before it."""
        return FileSums(1, self.bytes, self.begin_ns, self.bytes, self.path) + self.before

    @property
    def outcome(self) -> str:
        """complete | error | unsafe | open."""
        if self.errno:
            return "error"
        return "open" if self.end_ns is None else "unsafe" if self.unsafe else "complete"

    def ns_by_operation(self) -> tuple[int, ...]:
        """Nanoseconds by CHECKPOINT_OPERATIONS; `other` is the rest of the time from its begin to the end. None ever
        falls: what is found in its step's end to be serialising between its calls stays in `other`."""
        if self.parts is None:
            parts = self.write_ns, self.sync_ns, self.rename_ns, self.gap_ns + self.ahead_ns
            spent = (self.end_ns or self.start_ns) - self.begin_ns
            self.parts = *parts, max(0, spent - sum(parts))
        return self.parts

    def blocked_ns(self, until_ns: int) -> int:
        """In its calls, and in serialising; ``until_ns``: its end, or now."""
        return min(self.called_ns, max(0, until_ns - self.begin_ns))

    @property
    def io_ns(self) -> int:
        """In its calls."""
        return self.write_ns + self.sync_ns + self.rename_ns + self.meta_ns

    @property
    def called_ns(self) -> int:
        """In them, and in serialising."""
        return self.io_ns + self.gap_ns + self.ahead_ns + self.inside_ns

    def kind_of(self, rules: FileRules) -> FileClass:
        return self.filed(rules).of

    def kind_in_training(self, rules: FileRules) -> FileClass:
        """What it would be if it had not been written before the first step."""
        return replace(self, early=False, kind=None).kind_of(rules)

    def filed(self, rules: FileRules) -> FileKind:
        """The same, with the kind of log."""
        if self.kind is None:
            created, append, early = self.created, self.append, self.early
            self.kind = (
                FileKind(FileClass.CHECKPOINT)
                if self.was_checkpoint
                else classify(self.path, self.bytes, created=created, append=append, early=early, rules=rules)
            )
        return self.kind


@dataclass(slots=True)
class Removal:
    """A checkpoint that was unlinked, which takes its blocks off the disk. Times are CLOCK_MONOTONIC ns."""

    path: str  # of its first file
    tid: int
    start_ns: int
    end_ns: int
    ns: int = 0  # in the calls

    def __post_init__(self) -> None:
        self.ns = self.ns or self.end_ns - self.start_ns


@dataclass(slots=True)
class SaveTotals:
    """Checkpoints that have left the list."""

    outcomes: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    ns: dict[str, int] = field(default_factory=dict)  # "operation/blocking"
    groups: SaveGroups = field(default_factory=SaveGroups)  # which files are one save
