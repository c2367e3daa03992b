# SPDX-License-Identifier: Apache-2.0
"""Files in which no symbol was found: remembered for some time, so that each is not read again and again."""

from __future__ import annotations

import os
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Generic, TypeVar

from trainprobe.bpf.attach.executed_files import Inode

KEPT, KEPT_SECONDS = 16, 600.0  # of each user
Answer = TypeVar("Answer")


class UselessFiles(Generic[Answer]):
    """By user and file, while the file stays as it is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: defaultdict[int, OrderedDict[Inode, tuple[tuple[int, int], float, Answer]]]
        self._kept = defaultdict(OrderedDict)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def get(self, uid: int, status: os.stat_result) -> Answer | None:
        """What was found out about a file of the user; None: nothing, or no longer."""
        known = self._kept[uid].get((status.st_dev, status.st_ino)) if uid in self._kept else None
        return known[2] if known and known[0] == _version(status) and self._clock() < known[1] else None

    def put(self, uid: int, status: os.stat_result, answer: Answer) -> None:
        """Remember an answer, in place of the user's oldest where he has many; forget users of old answers."""
        now, key = self._clock(), (status.st_dev, status.st_ino)
        for gone in [user for user, of in self._kept.items() if next(reversed(of.values()))[1] <= now]:
            del self._kept[gone]
        of_user = self._kept[uid]
        of_user[key] = _version(status), now + KEPT_SECONDS, answer
        of_user.move_to_end(key)
        if len(of_user) > KEPT:
            of_user.popitem(last=False)


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
