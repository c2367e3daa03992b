"""The user who answers for a user id. /etc/subuid lends a user further ids (65 536 for a rootless container); bounds by
user count these as his.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from trainprobe.collect.lines import lines_of

LENT, USERS = "/etc/subuid", "/etc/passwd"
LIMIT = 4 << 20  # bytes that are read of each
AGAIN_SECONDS = 10.0
BLOCK = 1 << 16
"""Ids that a container gets. Root lends them to containers of many people, each of whom has a part of his own."""
ROOT = 0
_Key = TypeVar("_Key", bound=Hashable)
Range = tuple[int, int, int]
"""The first id, the one behind the last, the owner."""


class Owners:
    """Reads the two files again when one has changed. No other source of names is asked: it may hang."""

    def __init__(self, lent: str = LENT, users: str = USERS, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._clock = (lent, users), clock
        self._checked = -AGAIN_SECONDS
        self._as_read: tuple[object, ...] = ()
        self._ranges: list[Range] = []

    def of(self, uid: int) -> int:
        """The user whose id it is, or to whom it is lent."""
        now = self._clock()
        if now - self._checked >= AGAIN_SECONDS:
            self._checked = now
            self._refresh()
        at = bisect_right(self._ranges, (uid, 1 << 62, 0)) - 1
        if at < 0 or uid >= self._ranges[at][1]:
            return uid
        first, _, owner = self._ranges[at]
        return owner if owner != ROOT else uid - (uid - first) % BLOCK

    def of_process(self, pid: int, root: str = "/proc") -> int:
        """The user who answers for a process. Raises OSError: there is none."""
        return self.of(os.stat(f"{root}/{pid}").st_uid)

    def _refresh(self) -> None:
        present = tuple(map(_version, self._files))
        if present != self._as_read:
            self._as_read = present
            lent, users = map(_text, self._files)
            self._ranges = parse(lent, users)


def read_in_turn(owners: Mapping[_Key, int], read: Callable[[_Key], object], seconds: float) -> None:
    """Read these until that took so long: each time the first one of the owner who has taken least."""
    waiting: dict[int, list[_Key]] = {}
    for key, owner in owners.items():
        waiting.setdefault(owner, []).append(key)
    took = dict.fromkeys(waiting, 0.0)
    while waiting and sum(took.values()) < seconds:
        owner = min(waiting, key=took.__getitem__)
        began = time.perf_counter()
        read(waiting[owner].pop(0))
        took[owner] += time.perf_counter() - began
        if not waiting[owner]:
            del waiting[owner]


def parse(lent: str, users: str) -> list[Range]:
    """Ranges in order. The owner of one whose name stands in no local file is the range's first id."""
    ids: dict[str, int] = {}
    for line in lines_of(users):
        name, _, rest = line.partition(":")
        if (number := _number(rest.split(":")[1:2])) is not None:
            ids.setdefault(name, number)
    ranges = []
    for line in lines_of(lent):
        words = line.split(":")
        first, count, uid = _number(words[1:2]), _number(words[2:3]), _number(words[:1])
        if len(words) == 3 and first is not None and count:
            ranges.append((first, first + count, ids.get(words[0], first if uid is None else uid)))
    return sorted(ranges)


def _number(words: list[str]) -> int | None:
    return int(words[0]) if words and words[0].isascii() and words[0].isdecimal() and len(words[0]) <= 10 else None


def _version(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""
