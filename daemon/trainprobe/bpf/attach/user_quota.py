# SPDX-License-Identifier: Apache-2.0
"""How many libraries of one user are marked, and how long the daemon reads those in which nothing is found.

Processes and launches by user: ``runtime.discovery.user_shares``. Ledgers: ``bpf.attach.watching``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from trainprobe.model.message import Message, template

PLACES = 16  # of one user
SHARED, RESERVED, MOST = 64, 4, 256
"""Places of the host. Once SHARED are taken, a user gets another one only while he has fewer than RESERVED."""
USELESS_SECONDS, USELESS_SHARE = 15.0, 1 / 60
"""What reading files in which nothing is found may take of each user's: so much at once, and this share of the time."""
ROOT = 0
"""Containers run as root, many different ones on one host; only the bounds of the host hold for him."""
FULL_OF_ONE = template("source.libraries_of_one", "more than {number} different libtorch files of user {user}")
FULL = template("source.libraries_of_all", "more than {number} different libtorch files, {own} of them of user {user}")
USELESS = template(
    "source.useless_libraries", "user {user} has had {seconds:g} s of reading libraries in which nothing was found"
)


class UserQuota:
    """Per user: how many libraries, and how long reading those took in which nothing was found."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, owner: Callable[[int], int] = lambda _pid: ROOT
    ) -> None:
        """``owner``: the user who answers for a process, by whom all is counted here; it raises OSError."""
        self.owner = owner
        self._clock = clock
        self._places: Counter[int] = Counter()
        self._useless_until: dict[int, float] = {}  # when the time of his useless files is made up for

    def refusal(self, uid: int) -> str | Message:
        """Why no further library of this user is read now; "" when it is."""
        own, every = self._places[uid], self._places.total()
        if uid != ROOT and own >= PLACES:
            return FULL_OF_ONE(number=PLACES, user=uid)
        if every >= MOST or (every >= SHARED and own >= RESERVED):
            return FULL(number=SHARED, own=own, user=uid)
        if self._useless_until.get(uid, 0.0) - self._clock() >= USELESS_SECONDS / USELESS_SHARE:
            return USELESS(user=uid, seconds=USELESS_SECONDS)
        return ""

    def took(self, uid: int, seconds: float, *, useful: bool) -> None:
        """A library was read. One in which nothing was found takes no place."""
        if useful:
            self._places[uid] += 1
        elif uid != ROOT:
            now = self._clock()
            self._useless_until = {user: until for user, until in self._useless_until.items() if until > now}
            self._useless_until[uid] = max(now, self._useless_until.get(uid, now)) + seconds / USELESS_SHARE

    def gave_back(self, uid: int) -> None:
        """A place in the table is free again."""
        self._places[uid] -= 1
