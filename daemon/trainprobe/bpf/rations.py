# SPDX-License-Identifier: Apache-2.0
"""How much of us one user may take with files that call themselves libtorch: places in the table, and our time."""

from __future__ import annotations

from collections import Counter, defaultdict

PLACES = 16
USELESS_SECONDS = 15.0
ROOT = 0
"""Containers run as root, many different ones on one host; only the table's own bound holds for him."""


class Rations:
    """Per user: how many libraries, and how long reading those took in which nothing was found."""

    def __init__(self) -> None:
        self._places: Counter[int] = Counter()
        self._useless: defaultdict[int, float] = defaultdict(float)

    def refusal(self, uid: int) -> str:
        """Why no further library of this user is read; "" when it is."""
        if uid == ROOT:
            return ""
        if self._places[uid] >= PLACES:
            return f"more than {PLACES} different libtorch files of user {uid}"
        if self._useless[uid] >= USELESS_SECONDS:
            return f"user {uid} has had {USELESS_SECONDS:g} s of reading libraries in which nothing was found"
        return ""

    def took(self, uid: int, seconds: float, *, useful: bool) -> None:
        self._places[uid] += 1
        if not useful:
            self._useless[uid] += seconds

    def gave_back(self, uid: int) -> None:
        """A place in the table is free again."""
        self._places[uid] -= 1
