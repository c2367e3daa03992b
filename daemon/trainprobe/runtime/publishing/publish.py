"""The daemon's report for others: one file for the group, and one for each user with his own runs."""

from __future__ import annotations

import contextlib
import dataclasses
import pwd
from collections.abc import Callable
from pathlib import Path

from trainprobe.collect.owners import Owners
from trainprobe.model.moment import NS
from trainprobe.model.report import Report, Run
from trainprobe.model.settled import is_settled
from trainprobe.runtime.loop.guard import described
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.owner_reports import OwnerReports
from trainprobe.text.saying import Saying, Text, saying
from trainprobe.wire.bounded import BoundedReport, Encoded

LIMIT = 1 << 21  # bytes; the exporter reads twice as many
USERS_NS = 2 * NS
IDLE_NS = 10 * NS
HOST = "host"  # the container of a /dev/shm that is none's


class Publisher:
    """Writes reports below ``directory`` until ``close``, which takes everything away again."""

    def __init__(
        self,
        directory: Path = rundir.DIRECTORY,
        complain: Callable[[Text, Text], object] | None = None,
        written: Callable[[str], object] = lambda _path: None,
    ) -> None:
        """``complain``: where to say that nothing can be published, for who reads only that would never know;
        ``written``: is told of each file that was put in its place."""
        self._written = written
        self.directory = directory
        self._complain = complain
        self._problem: Saying | None = None
        self.owners = OwnerReports(directory)
        self._report = str(directory / "report.json")
        self._lock = rundir.Lock(directory / "lock")
        self._gid = -1
        self._users_ns = self._written_ns = -IDLE_NS
        self._runs = 0
        self._uids: dict[str, int | None] = {}
        self._owners: set[int] = set()
        self._stalls: dict[int, list[object]] = {}  # by owner: the latest ones, as of the last report
        self.answers = Owners()
        """Who answers for an id."""
        self._encoded = Encoded()

    def open(self) -> None:
        """Raises AlreadyRunningError, or OSError where the directory cannot be made."""
        rundir.make_directory(self.directory)
        self._lock.acquire()
        self.owners.open()
        self.owners.clear()
        self._gid = rundir.group_id()

    def publish(self, report: Report, now_ns: int) -> None:
        """Nothing is written while nothing runs and nothing changes, but every ten seconds as a sign of life.

        Raises OSError; the next call tries again.
        """
        try:
            self._publish(report, now_ns)
        except OSError as error:
            self._failed(error)
            raise
        self._problem = None

    def _failed(self, error: OSError) -> None:
        problem = saying("the report cannot be published: {error}", error=described(error))
        if problem != self._problem and self._complain is not None:
            path = self.directory
            remedy = saying("look at {path} (df -h, ls -l); it is tried again each second", path=path)
            self._complain(problem, remedy)
        self._problem = problem
        self._written_ns = self._users_ns = -IDLE_NS
        if isinstance(error, FileNotFoundError):  # somebody has taken the directories away
            with contextlib.suppress(OSError):
                rundir.make_directory(self.directory)
                self.owners.open()

    def _publish(self, report: Report, now_ns: int) -> None:
        if not report.runs and not self._runs and now_ns - self._written_ns < IDLE_NS:
            return
        self._written_ns, self._runs = now_ns, len(report.runs)
        bounded = BoundedReport(report, self._payer, self._encoded.next_report())
        data = bounded.encode(LIMIT)
        rundir.write(self._report, data, mode=0o640, gid=self._gid)
        self._written(self._report)
        due = now_ns - self._users_ns >= USERS_NS
        if due:
            self._users_ns = now_ns
        self._publish_to_owners(report, bounded, data, all_due=due)

    def _uid(self, user: str) -> int | None:
        if user not in self._uids:
            self._uids[user] = uid_of(user)
        return self._uids[user]

    def _payer(self, user: str) -> str:
        """By whose part of the report a user's runs count."""
        uid = self._uid(user)
        return user if uid is None else str(self.answers.of(uid))

    def close(self) -> None:
        """Leave nothing behind but what others have put there."""
        Path(self._report).unlink(missing_ok=True)
        self.owners.close()
        self._lock.release()
        try:
            self.directory.rmdir()
        except OSError:
            pass  # not empty (claims of `trainprobe run`), or held by the service manager

    def _publish_to_owners(self, report: Report, bounded: BoundedReport, whole: bytes, *, all_due: bool) -> None:
        """All files where they are due; else those of the owners who have a new stall, or more known of it."""
        owned: dict[int, set[str]] = {}
        stalls: dict[int, list[object]] = {}
        for run in report.runs:
            if (uid := self._uid(run.user)) is not None:
                owned.setdefault(uid, set()).add(run.key)
                stalls.setdefault(uid, []).extend(_latest_stalls(run))
        before, self._stalls = self._stalls, stalls
        for uid, runs in owned.items():
            if not all_due and before.get(uid) == stalls[uid]:
                continue
            theirs = whole  # the usual case: one user trains
            if len(runs) < len(report.runs) or report.orphans or report.shared_memory:
                theirs = bounded.encode(LIMIT, runs, self._without_others(report, uid))
            if self.owners.write(uid, theirs):
                self._written(str(self.owners.path(uid)))
        for uid in self._owners - owned.keys():
            self.owners.forget(uid)
        self._owners = set(owned)

    def _without_others(self, report: Report, uid: int) -> Report:
        """Without other users' orphans, and without names of files that only a container sees."""
        orphans = report.orphans and [one for one in report.orphans if self._is_of(one.pid, uid)]
        shared = [one if one.container == HOST else dataclasses.replace(one, leaked=[]) for one in report.shared_memory]
        return dataclasses.replace(report, orphans=orphans, shared_memory=shared)

    def _is_of(self, pid: int, uid: int) -> bool:
        try:
            return self.answers.of_process(pid) == self.answers.of(uid)
        except OSError:
            return False


def _latest_stalls(run: Run) -> list[object]:
    """What changes when a stall opens, ends, or is told otherwise: its owner should not wait for it."""
    if is_settled(run):
        return []
    latest = (stall for rank in run.ranks for stall in rank.stalls[-1:])
    return [(stall.id, stall.end, stall.cause, stall.python_stack) for stall in latest]


def uid_of(user: str) -> int | None:
    """The number of a user by name; one without a name is called by its number, and no directory service is asked: each
    of the ids that a user was lent would be another question."""
    if user.isascii() and user.isdecimal():
        return int(user) if len(user) <= 10 else None
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None
