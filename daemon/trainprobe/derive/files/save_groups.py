"""Which files are one save: those of one directory tree that follow one another without a step between."""

from __future__ import annotations

import re
from dataclasses import field, replace

from trainprobe.derive.files.renames import Rename
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

AT_ONCE_NS = NS // 20
"""A file that is opened so soon after the last call on the one before belongs to the same save."""
PAUSE_NS = NS
"""So does one in the same step, up to this pause, or up to as long as the save has taken by then."""
LONG_NS = 60 * NS
"""So does one by a helper in the directory of one save, up to this pause."""
RECENT = 8
"""Saves that a file may still belong to."""
PATHS = 512
"""The first files of a save, and names, that are told apart: one that is written again begins with them."""
_OF_ONE_SAVE = re.compile(
    r".*/(?:(?:tmp-)?checkpoint-[0-9]+|global_step[0-9]+|iter_[0-9]+|[^/]*orbax-checkpoint-tmp[^/]*)(?=/)"
)
"""A directory that frameworks make anew for each save."""
_NUMBERS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of a save, as far as it tells which one. Times are CLOCK_MONOTONIC ns."""

    path: str
    start_ns: int
    end_ns: int
    by_driver: bool
    step: int | None  # the driver's, in which it was opened; None: not known
    renamed_ns: int  # when a directory that holds it got its name; 0: none did


@dataclass(slots=True)
class SaveGroup:
    """The files of one save. Times are CLOCK_MONOTONIC ns."""

    number: int  # in the run, from 1
    start_ns: int
    end_ns: int
    root: str  # the directory that holds its files
    own: str  # a directory that holds this save only; "": none is known
    step: int | None
    renamed_ns: int  # when its directory got its name; 0: it did not
    paths: frozenset[int]  # hashes of the first PATHS: short, however long they are
    names: frozenset[int]  # of the same without numbers


@dataclass(slots=True)
class SaveGroups:
    """A fold over files, about by their start: each belongs to one of the latest saves, or begins another one."""

    count: int = 0
    recent: list[SaveGroup] = field(default_factory=list)

    def copy(self) -> SaveGroups:
        return SaveGroups(self.count, [replace(group) for group in self.recent])

    def rename(self, rename: Rename, since_ns: int) -> bool:
        """The directory of the saves that were written to since then; whether there is one."""
        inside = [one for one in self.recent if one.end_ns > since_ns and rename.moves(f"{one.root}/")]
        for group in inside:
            moved = rename.moved(group.root)
            group.own = _own(f"{moved}/")
            group.root, group.renamed_ns = group.own or moved, rename.at_ns
        return bool(inside)

    def add(self, file: SavedFile) -> int:
        """The number of its save."""
        folder = file.path.rpartition("/")[0]
        own, name = _own(file.path), _without_numbers(file.path)
        for group in reversed(self.recent):
            root = _tree(group, folder, own)
            if root is not None and _belongs(file, group, own):
                group.root, group.own = root, group.own or own
                group.start_ns, group.end_ns = min(group.start_ns, file.start_ns), max(group.end_ns, file.end_ns)
                group.step = file.step if file.step is not None else group.step
                group.renamed_ns = group.renamed_ns or file.renamed_ns
                group.paths, group.names = _with(group.paths, file.path), _with(group.names, name)
                return group.number
        self.count += 1
        root, paths, names = own or folder, _with(frozenset(), file.path), _with(frozenset(), name)
        group = SaveGroup(self.count, file.start_ns, file.end_ns, root, own, file.step, file.renamed_ns, paths, names)
        self.recent = [*self.recent, group][-RECENT:]
        return group.number


def _own(path: str) -> str:
    """The directory of one save that holds a file; "" where none does."""
    found = _OF_ONE_SAVE.match(path)
    return found.group() if found else ""


def _tree(group: SaveGroup, folder: str, own: str) -> str | None:
    """The directory that holds the save and a further file of it; None: they are not in one tree."""
    root = group.root
    if folder == root or folder.startswith(f"{root}/"):
        return root
    if root.startswith(f"{folder}/"):
        return root if group.own else folder
    if own or group.own:
        return None
    parent, _, name = root.rpartition("/")
    beside, _, other = folder.rpartition("/")
    return parent if parent == beside and _without_numbers(name) != _without_numbers(other) else None


def _belongs(file: SavedFile, group: SaveGroup, own: str) -> bool:
    """Whether a file in the tree of a save is one of its files. ``own``: the directory of one save that holds it."""
    if file.renamed_ns and group.renamed_ns:
        return file.renamed_ns == group.renamed_ns
    known = file.step is not None and group.step is not None
    stepped = known and file.step != group.step
    if file.start_ns < group.start_ns - AT_ONCE_NS or (stepped and file.by_driver):
        return False
    pause_ns = file.start_ns - group.end_ns
    if pause_ns < AT_ONCE_NS:
        return True
    if own and own == group.own:
        return pause_ns < LONG_NS
    if known and not stepped:
        return pause_ns < max(PAUSE_NS, group.end_ns - group.start_ns) and hash(file.path) not in group.paths
    another = hash(_without_numbers(file.path)) not in group.names
    return pause_ns < PAUSE_NS and another and file.path.rpartition("/")[0] == group.root


def _with(hashes: frozenset[int], name: str) -> frozenset[int]:
    """Copies share them, so they are made anew."""
    own = hash(name)
    return hashes if own in hashes or len(hashes) >= PATHS else hashes | {own}


def _without_numbers(path: str) -> str:
    return _NUMBERS.sub("", path)
