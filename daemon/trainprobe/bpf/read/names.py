# SPDX-License-Identifier: Apache-2.0
"""Which name a written file has, and which file a name means. A renamed folder takes its files along at once.

A name means a file in one mount namespace (``space``; 0: not known which): containers have the same paths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Container
from operator import itemgetter

from trainprobe.model.text import LONGEST_PATH

MAX_NAMES = 4096
"""Of the host. Beyond, the name that was given or found open longest ago goes, of the user who has most."""
KEPT = 256
"""So many of the host are kept though the process that wrote the file has ended: another one may rename it. Thousands,
of six small objects each, would hold the memory of whatever was beside them."""
LOOKED_AT = 16
"""So many names are looked at for each process that ends, to find those of ended ones."""
MOVES = 8
"""So often a folder is followed before another file is opened in it: who renames thousands to and fro pays for it."""

Key = tuple[int, int, int]  # pid, dev, ino


class _Folder:
    __slots__ = ("files", "moves", "path", "space")

    def __init__(self, space: int, path: str) -> None:
        self.space, self.path, self.files, self.moves = space, path, dict[str, Key](), 0

    @property
    def at(self) -> tuple[int, str]:
        return self.space, self.path


class Names:
    """A file that was deleted, or whose name another one has got, is known by its last name, but no name means it."""

    def __init__(self) -> None:
        self._places: dict[Key, tuple[_Folder, str, int]] = {}  # folder, name in it, user
        self._users: dict[int, OrderedDict[Key, None]] = {}  # the last one given or found open comes last
        self._ends = 0  # since all names were looked at
        self._folders: dict[tuple[int, str], _Folder] = {}  # by space and path: those in which a name means a file
        self._order: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._places)

    def of(self, key: Key) -> str:
        """The last known name, "" where there is none."""
        place = self._places.get(key)
        return f"{place[0].path}{place[1]}" if place else ""

    def file(self, path: str, space: int = 0) -> Key | None:
        """The file that a name means."""
        folder, name = _split(path)
        found = self._folders.get((space, folder))
        return found.files.get(name) if found else None

    def remember(self, key: Key, path: str, user: int, space: int = 0) -> None:
        """A file of the user has this name now."""
        self._drop(key)
        of, name = _split(path)
        at = space, of
        folder = self._folders.get(at)
        if folder is None:
            folder = self._folders[at] = _Folder(space, of)
            self._order.insert(bisect_left(self._order, at), at)
        folder.files[name], folder.moves = key, 0
        self._places[key] = folder, name, user
        keys = self._users.setdefault(user, OrderedDict())
        keys[key] = None
        if len(self._places) > MAX_NAMES:
            most = max(self._users.values(), key=len)
            self._drop(next(iter(most)))

    def renew(self, key: Key) -> None:
        """The file was found open: of its user, the names of others go first."""
        if place := self._places.get(key):
            self._users[place[2]].move_to_end(key)

    def forget_ended(self, lives: Container[int]) -> None:
        """A process has ended: let go of what such ones named beyond ``KEPT``, the oldest of the user who has most
        first; ``lives``: those that have not ended."""
        self._ends += 1
        if self._ends * LOOKED_AT < len(self._places):
            return
        self._ends = 0
        ended: list[tuple[int, Key]] = []  # the latest of each user come first
        for keys in self._users.values():
            ended += enumerate(key for key in reversed(keys) if key[0] not in lives)
        ended.sort(key=itemgetter(0))
        for _, key in ended[KEPT:]:
            self._drop(key)

    def forget(self, path: str, space: int = 0) -> None:
        """The name means no file any more."""
        folder, name = _split(path)
        if found := self._folders.get((space, folder)):
            self._left(found, name)

    def rename(self, path: str, new_path: str, space: int = 0) -> None:
        """A file or a folder has another name."""
        key = self.file(path, space)
        if key:
            self.forget(path, space)
            self.remember(key, new_path, self._places[key][2], space)
            return
        moved = self._taken(path, space)
        if not moved:
            return
        self._taken(new_path, space)  # it was empty, or is no more
        at = bisect_left(self._order, (space, f"{new_path}/"))
        for folder in moved:
            new = f"{new_path}{folder.path[len(path) :]}"
            if folder.moves < MOVES and len(new) <= LONGEST_PATH:
                folder.path, folder.moves = new, folder.moves + 1
                self._folders[folder.at] = folder
        self._order[at:at] = [folder.at for folder in moved if self._folders.get(folder.at) is folder]

    def _taken(self, path: str, space: int) -> list[_Folder]:
        """A folder and those below it, in order; in them names mean nothing any more."""
        first, end = (bisect_left(self._order, (space, f"{path}{after}")) for after in "/0")  # 0 comes next to /
        taken, self._order[first:end] = self._order[first:end], []
        return [self._folders.pop(one) for one in taken]

    def _left(self, folder: _Folder, name: str) -> None:
        folder.files.pop(name, None)
        if not folder.files and self._folders.get(folder.at) is folder:
            del self._folders[folder.at]
            del self._order[bisect_left(self._order, folder.at)]

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
