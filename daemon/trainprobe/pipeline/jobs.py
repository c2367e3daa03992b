"""Jobs: which run is the next attempt of which, and the goodput of each over all attempts so far."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace

from trainprobe.derive.goodput import goodput
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import RunStarted
from trainprobe.model.goodput import Goodput
from trainprobe.model.report import Run
from trainprobe.model.resume_state import ResumedJob
from trainprobe.pipeline.report.goodput import attempt_of

KEPT = 256
"""Accounts that are kept for later attempts, beside those that known runs need; beyond, the oldest of the user who has
most goes."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    before: str = ""  # the run before it
    number: int = 0


@dataclass(slots=True)
class Jobs:
    _attempts: dict[str, _Attempt] = field(default_factory=dict)  # by run
    _latest: dict[tuple[str, str], str] = field(default_factory=dict)
    """The latest run of each user's job. Another one may have found settings that give a job of his the same name: its
    digest has 32 bits."""
    _accounts: dict[str, Goodput] = field(default_factory=dict)  # by run
    _users: dict[str, str] = field(default_factory=dict)  # by run, whose account it is

    def begin(self, started: RunStarted) -> None:
        job = started.user, started.job
        self._attempts[started.run] = _Attempt(self._latest.get(job, "") if started.job else "", started.attempt)
        if started.job:
            self._latest[job] = started.run

    def keep_account(self, kept: ResumedJob) -> None:
        """An earlier process of ours saw the job."""
        self._latest.setdefault((kept.user, kept.job), kept.run)
        self._accounts[kept.run], self._users[kept.run] = kept.goodput, kept.user

    def with_goodput(self, run: Run) -> Run:
        """The run with its job's account. Runs are asked for in the order of their starts."""
        attempt = self._attempts.get(run.key, _Attempt())
        account = goodput(attempt_of(run, attempt.number), self._accounts.get(attempt.before))
        self._accounts.pop(run.key, None)
        self._accounts[run.key], self._users[run.key] = account, run.user
        return replace(run, goodput=account)

    def forget(self, known: Collection[str]) -> None:
        """The oldest accounts beyond the bound, but for those of ``known`` runs and of the attempts before them; and
        attempts that are neither of a known run nor have an account."""
        needed = {*known, *(attempt.before for run, attempt in self._attempts.items() if run in known)}
        spare: dict[str, list[str]] = {}
        for run in self._accounts:
            if run not in needed:
                spare.setdefault(self._users[run], []).append(run)
        for _ in range(sum(map(len, spare.values())) - KEPT):
            del self._accounts[max(spare.values(), key=len).pop(0)]
        self._users = {run: user for run, user in self._users.items() if run in self._accounts}
        self._attempts = {
            run: attempt for run, attempt in self._attempts.items() if run in known or run in self._accounts
        }
        self._latest = {job: run for job, run in self._latest.items() if run in self._accounts or run in self._attempts}
