"""How many processes and running launches of one user are watched, and how many begin to step.

Ledgers by user: ``bpf.attach.watching``. Libraries, and the time to read them: ``bpf.attach.user_quota``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trainprobe.collect.source import Reason
from trainprobe.derive.rate_limiter import RateLimiter
from trainprobe.model.message import Template, template

PROCESSES, RUNS = 4096, 512
PROCESSES_OF_ONE, RUNS_OF_ONE = 1024, 64
"""Eight ranks with thirty workers each are 250 processes. Root has no part: containers are his, many on one host."""
DRIVERS, DRIVERS_APART_NS, OF_ROOT = 256, 100_000_000, 4
"""Processes of one user that begin to step: so many at once, then one each so long; of root so many times as many. Who
launched a process, and as which rank of which run, takes milliseconds to find out, and a step no time to make."""
FAMILY, FAMILY_APART_NS = 1024, 10_000_000
"""The same of descendants that a process has when it comes to be watched: each is read and watched by itself."""
ROOT = 0
QUIET_NS = 60_000_000_000

PROCESSES_NAME = template("source.processes", "processes")
RUNS_NAME = template("source.runs", "runs")
FULL = template("source.full", "more than {number} {what}")
FULL_OF_ONE = template("source.full_of_one", "more than {number} {what} of user {user}")


class UserShares:
    """Counts by user. A refusal is remembered for a minute. ``owner``: the user who answers for an id."""

    def __init__(self, owner: Callable[[int], int] = lambda uid: uid) -> None:
        self.owner = owner
        self._processes: Counter[int] = Counter()
        self._runs: Counter[int] = Counter()
        self._drivers: dict[int, RateLimiter] = {}
        self._families: dict[int, RateLimiter] = {}
        self._refused: tuple[int, Reason] = (0, "")

    def process(self, owner: int, more: int) -> None:
        """One came (1), or went (-1)."""
        self._processes[owner] += more

    def run(self, owner: int, more: int) -> None:
        self._runs[owner] += more

    def another_process(self, uid: int, now_ns: int) -> bool:
        return self._room(self._processes, uid, PROCESSES, PROCESSES_OF_ONE, PROCESSES_NAME, now_ns)

    def another_run(self, uid: int, now_ns: int) -> bool:
        return self._room(self._runs, uid, RUNS, RUNS_OF_ONE, RUNS_NAME, now_ns)

    def another_driver(self, uid: int, now_ns: int) -> bool:
        """One of this user begins to step, and counts unless it is refused."""
        limiter = self._limiter(self._drivers, uid, DRIVERS, DRIVERS_APART_NS, now_ns)
        if now_ns < limiter.next_ns():
            self.too_many(uid, DRIVERS, now_ns)
            return False
        limiter.count_one(now_ns)
        return True

    def family(self, uid: int, now_ns: int) -> int:
        """How many descendants of a process of this user may be taken in with it."""
        own = PROCESSES if self.owner(uid) == ROOT else PROCESSES_OF_ONE
        free = min(own - self._processes[self.owner(uid)], PROCESSES - self._processes.total())
        return max(0, min(free, self._limiter(self._families, uid, FAMILY, FAMILY_APART_NS, now_ns).left(now_ns)))

    def descendant(self, uid: int, now_ns: int) -> None:
        """One was taken in."""
        self._limiter(self._families, uid, FAMILY, FAMILY_APART_NS, now_ns).count_one(now_ns)

    def _limiter(self, of: dict[int, RateLimiter], uid: int, quick: int, apart_ns: int, now_ns: int) -> RateLimiter:
        for user in [user for user, known in of.items() if known.is_full(now_ns)]:
            del of[user]
        owner = self.owner(uid)
        times = OF_ROOT if owner == ROOT else 1
        return of.setdefault(owner, RateLimiter(times * quick, apart_ns // times))

    def too_many(self, uid: int, number: int, now_ns: int) -> None:
        """More processes of this user came at once than are taken in."""
        owner = self.owner(uid)
        times = OF_ROOT if owner == ROOT else 1
        self._refused = (now_ns, FULL_OF_ONE(number=times * number, what=PROCESSES_NAME(), user=owner))

    def refused(self, reason: Reason, now_ns: int) -> None:
        """There was no room for something else of a user."""
        self._refused = (now_ns, reason)

    def refusal(self, now_ns: int) -> Reason:
        """Who was refused within the last minute, and why; "" nobody."""
        at, reason = self._refused
        return reason if reason and now_ns - at < QUIET_NS else ""

    def _room(self, taken: Counter[int], uid: int, most: int, most_of_one: int, what: Template, now_ns: int) -> bool:
        uid = self.owner(uid)
        if uid != ROOT and taken[uid] >= most_of_one:
            self._refused = (now_ns, FULL_OF_ONE(number=most_of_one, what=what(), user=uid))
            return False
        if taken.total() >= most:
            self._refused = (now_ns, FULL(number=most, what=what()))
            return False
        return True
