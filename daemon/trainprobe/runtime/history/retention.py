"""How long history is kept: by age, by size, and never because a clock was set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trainprobe.config.schema import Retention
from trainprobe.model.dataclass import dataclass
from trainprobe.model.steprow import TIERS
from trainprobe.runtime.history.files import HistoryFiles
from trainprobe.store.database import Database

DAY = 86_400.0
HOUR = 3600.0
JUMP_SECONDS = 60.0
BEGIN_SECONDS = 600.0
FULL, ROOM = 1.0, 0.9  # of the bytes allowed: deleting begins, deleting ends
STALLS = 0.25  # of the bytes allowed, for the published stalls, which are all users' together


@dataclass(slots=True)
class ClockJumpGuard:
    """Whether the wall clock may be believed when it says that something is old."""

    offset: float | None = None  # wall - monotonic
    jumped: float = 0.0  # monotonic seconds of the last jump, or of our begin

    def holds(self, wall: float, monotonic: float) -> bool:
        """After a jump an hour must pass: a clock that is set wrong is mostly set right by then."""
        if self.offset is None:
            self.offset, self.jumped = wall - monotonic, monotonic - HOUR + BEGIN_SECONDS
        if abs(wall - monotonic - self.offset) > JUMP_SECONDS:
            self.offset, self.jumped = wall - monotonic, monotonic
        return monotonic - self.jumped >= HOUR


def by_age(database: Database, files: HistoryFiles, retention: Retention, now: float) -> None:
    """Delete what is older than its keeping."""
    before = now - retention.days * DAY
    database.forget_runs(before)
    database.forget_stalls(before)
    kept = {tier.name: now - (tier.keep if tier.keep is not None else retention.days * DAY) for tier in TIERS}
    database.forget_steps(kept)
    known = {run for run, *_ in database.run_names()}
    for run in files.runs():
        if run in known:
            files.forget_steps(run, now)
        else:
            files.forget_run(run)
    files.forget_stalls(before)


def by_size(
    database: Database, files: HistoryFiles, retention: Retention, owner: Callable[[int], int] = lambda uid: uid
) -> None:
    """While the history takes more than it may, delete stalls beyond their part, then of the user who has most the
    oldest runs that are over, then steps of those that go on. ``owner``: the user who answers for an id."""
    size = files.bytes  # walks through all of them
    if database.bytes + size <= FULL * retention.bytes:
        return
    size -= files.shorten_stalls(STALLS * retention.bytes)
    database.forget_unread_stalls()
    over: dict[int | None, list[str]] = {}
    live: dict[int | None, list[str]] = {}
    taken = Counter[int | None]()
    for run, uid, ended in database.run_names():
        whose = None if uid is None else owner(uid)
        taken[whose] += files.size_of(run)
        (live if ended is None else over).setdefault(whose, []).append(run)
    while taken and database.bytes + size > ROOM * retention.bytes:
        most = max(taken, key=taken.__getitem__)
        if over.get(most):
            run = over[most].pop()
            database.forget_run(run)
            freed = files.forget_run(run)
        elif live.get(most):
            freed = files.shorten_steps(live[most].pop())
        else:
            del taken[most]
            continue
        taken[most] -= freed
        size -= freed
    database.give_back()
