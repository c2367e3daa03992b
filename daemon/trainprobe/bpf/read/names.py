# SPDX-License-Identifier: Apache-2.0
"""Which name a written file has, and which file a name means. A renamed folder takes its files along at once."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict

from trainprobe.model.text import LONGEST_PATH

MAX_NAMES = 16384
"""Of the host. Beyond, the name that was given or found open longest ago goes, of the user who has most."""
MOVES = 8
"""So often a folder is followed before another file is opened in it: who renames thousands to and fro pays for it."""

Key = tuple[int, int, int]  # pid, dev, ino


class _Folder:
    __slots__ = ("files", "moves", "path")

    def __init__(self, path: str) -> None:
        self.path, self.files, self.moves = path, dict[str, Key](), 0


class Names:
    """A file that was deleted, or whose name another one has got, is known by its last name, but no name means it."""

    def __init__(self) -> None:
        self._places: dict[Key, tuple[_Folder, str, int]] = {}  # folder, name in it, user
        self._users: dict[int, OrderedDict[Key, None]] = {}  # the last one given or found open comes last
        self._folders: dict[str, _Folder] = {}  # those in which a name means a file
        self._order: list[str] = []  # their paths

    def __len__(self) -> int:
        return len(self._places)

    def of(self, key: Key) -> str:
        """The last known name, "" where there is none."""
        place = self._places.get(key)
        return f"{place[0].path}{place[1]}" if place else ""

    def file(self, path: str) -> Key | None:
        """The file that a name means."""
        folder, name = _split(path)
        found = self._folders.get(folder)
        return found.files.get(name) if found else None

    def remember(self, key: Key, path: str, user: int) -> None:
        """A file of the user has this name now."""
        self._drop(key)
        at, name = _split(path)
        folder = self._folders.get(at)
        if folder is None:
            folder = self._folders[at] = _Folder(at)
            self._order.insert(bisect_left(self._order, at), at)
        folder.files[name], folder.moves = key, 0
        self._places[key] = folder, name, user
        self._users.setdefault(user, OrderedDict())[key] = None
        if len(self._places) > MAX_NAMES:
            most = max(self._users.values(), key=len)
            self._drop(next(iter(most)))

    def renew(self, key: Key) -> None:
        """The file was found open: of its user, the names of others go first."""
        if place := self._places.get(key):
            self._users[place[2]].move_to_end(key)

    def forget(self, path: str) -> None:
        """The name means no file any more."""
        folder, name = _split(path)
        if folder in self._folders:
            self._left(self._folders[folder], name)

    def rename(self, path: str, new_path: str) -> None:
        """A file or a folder has another name."""
        key = self.file(path)
        if key:
            self.forget(path)
            self.remember(key, new_path, self._places[key][2])
            return
        moved = self._taken(path)
        if not moved:
            return
        self._taken(new_path)  # it was empty, or is no more
        at = bisect_left(self._order, f"{new_path}/")
        for folder in moved:
            new = f"{new_path}{folder.path[len(path) :]}"
            if folder.moves < MOVES and len(new) <= LONGEST_PATH:
                folder.path, folder.moves = new, folder.moves + 1
                self._folders[new] = folder
        self._order[at:at] = [folder.path for folder in moved if self._folders.get(folder.path) is folder]

    def _taken(self, path: str) -> list[_Folder]:
        """A folder and those below it, in order; in them names mean nothing any more."""
        first, end = bisect_left(self._order, f"{path}/"), bisect_left(self._order, f"{path}0")  # 0 comes next to /
        taken, self._order[first:end] = self._order[first:end], []
        return [self._folders.pop(one) for one in taken]

    def _left(self, folder: _Folder, name: str) -> None:
        folder.files.pop(name, None)
        if not folder.files and self._folders.get(folder.path) is folder:
            del self._folders[folder.path]
            del self._order[bisect_left(self._order, folder.path)]

    def _drop(self, key: Key) -> None:
        place = self._places.pop(key, None)
        if place is None:
            return
        folder, name, user = place
        keys = self._users[user]
        del keys[key]
        if not keys:
            del self._users[user]
        if folder.files.get(name) == key:
            self._left(folder, name)


def _split(path: str) -> tuple[str, str]:
    """The folder, with the slash behind it, and the name in it."""
    folder, slash, name = path.rpartition("/")
    return folder + slash, name
