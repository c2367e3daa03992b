"""How many events are kept of processes that belong to no run yet. The oldest event of the fullest process goes first.

Any user can fill the room, so each event costs the same however many processes and users there are beside it; only
where the host's room is full the users are compared.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count

from trainprobe.model.event import Event, FileEvent, FileEventKind, MarkRow
from trainprobe.runtime.discovery.user_shares import ROOT

BUFFER = 256
"""Events of one process, the latest."""
PART, ROW_PARTS = 256, 5
"""Characters of text that take a part more; parts that a row takes."""


class EventRoom:
    """Room for events by process, in parts of some 500 bytes. ``of_one``: of one user but root."""

    def __init__(self, of_host: int, of_one: int) -> None:
        self._of_host, self._of_one = of_host, of_one
        self._users: dict[int, _Share] = {}
        self._parts = 0

    def keep_event(self, user: int, pid: int, event: Event) -> None:
        """The latest of its process. Where there is no room, the oldest of the process that has most goes: of the user,
        or of the user who has most."""
        parts, of_one = _parts(event), self._of_host if user == ROOT else self._of_one
        if parts > of_one:
            return
        share = self._users.setdefault(user, _Share())
        self._parts -= share.replaced(pid, event)
        while share.parts + parts > of_one:
            self._parts -= share.drop()
        while self._parts + parts > self._of_host:
            self._parts -= max(self._users.values(), key=lambda one: one.parts).drop()
        share.add(pid, event)
        self._parts += parts

    def take_events(self, user: int, pid: int) -> list[Event]:
        """What was kept of a process, which is kept no longer."""
        share = self._users.get(user)
        if share is None:
            return []
        self._parts -= share.parts
        taken = share.take_events(pid)
        self._parts += share.parts
        if not share.parts:
            del self._users[user]
        return taken


class _Share:
    """Of one user."""

    def __init__(self) -> None:
        self.parts = 0
        self._kept: dict[int, dict[object, Event]] = {}  # by process, the oldest first
        self._parts_of: dict[int, int] = {}
        self._levels: dict[int, OrderedDict[int, None]] = {}  # processes by the parts that they take
        self._most = 0  # parts of the fullest, or more
        self._number = count()

    def add(self, pid: int, event: Event) -> None:
        key = _file(event) or next(self._number)
        self._kept.setdefault(pid, {})[key] = event
        self._grow(pid, _parts(event))

    def replaced(self, pid: int, event: Event) -> int:
        """Parts of what this event takes the place of: earlier totals of its file, or the oldest of a full buffer."""
        kept, file = self._kept.get(pid, {}), _file(event)
        if file in kept:
            return self._forget(pid, file)
        return self._forget(pid, next(iter(kept))) if len(kept) >= BUFFER else 0

    def drop(self) -> int:
        """Forget the oldest event of the fullest process; the parts that it took."""
        while self._most not in self._levels:
            self._most -= 1
        pid = next(iter(self._levels[self._most]))
        return self._forget(pid, next(iter(self._kept[pid])))

    def take_events(self, pid: int) -> list[Event]:
        taken = self._kept.pop(pid, {})
        self._grow(pid, -self._parts_of.get(pid, 0))
        return list(taken.values())

    def _forget(self, pid: int, key: object) -> int:
        parts = _parts(self._kept[pid].pop(key))
        self._grow(pid, -parts)
        if not self._kept[pid]:
            del self._kept[pid]
        return parts

    def _grow(self, pid: int, parts: int) -> None:
        before = self._parts_of.pop(pid, 0)
        after = before + parts
        if before:
            del self._levels[before][pid]
            if not self._levels[before]:
                del self._levels[before]
        if after:
            self._parts_of[pid] = after
            self._levels.setdefault(after, OrderedDict())[pid] = None
            self._most = max(self._most, after)
        self.parts += parts


def _file(event: Event) -> tuple[int, int] | None:
    """The file whose totals until now an event has: later ones take its place."""
    if isinstance(event, FileEvent) and event.kind is FileEventKind.PROGRESS:
        return event.dev, event.ino
    return None


def _parts(event: Event) -> int:
    """Of the room for events, what one takes."""
    if isinstance(event, MarkRow):
        return ROW_PARTS
    texts = (getattr(event, "path", ""), getattr(event, "new_path", ""), *getattr(event, "command", ()))
    return 1 + sum(map(len, texts)) // PART
