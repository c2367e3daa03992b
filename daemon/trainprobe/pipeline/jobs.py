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
"""Accounts that are kept for later attempts, beside those that known runs need."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    before: str = ""  # the run before it
    number: int = 0


@dataclass(slots=True)
class Jobs:
    _attempts: dict[str, _Attempt] = field(default_factory=dict)  # by run
    _latest: dict[str, str] = field(default_factory=dict)  # job: its latest run
    _accounts: dict[str, Goodput] = field(default_factory=dict)  # by run

    def begin(self, started: RunStarted) -> None:
        job = started.job
        self._attempts[started.run] = _Attempt(self._latest.get(job, "") if job else "", started.attempt)
        if job:
            self._latest[job] = started.run

    def keep_account(self, kept: ResumedJob) -> None:
        """An earlier process of ours saw the job."""
        self._latest.setdefault(kept.job, kept.run)
        self._accounts[kept.run] = kept.goodput

    def with_goodput(self, run: Run) -> Run:
        """The run with its job's account. Runs are asked for in the order of their starts."""
        attempt = self._attempts.get(run.key, _Attempt())
        account = goodput(attempt_of(run, attempt.number), self._accounts.get(attempt.before))
        self._accounts.pop(run.key, None)
        self._accounts[run.key] = account
        return replace(run, goodput=account)

    def forget(self, known: Collection[str]) -> None:
        """The oldest accounts beyond the bound, but for those of ``known`` runs and of the attempts before them; and
        attempts that are neither of a known run nor have an account."""
        needed = {*known, *(attempt.before for run, attempt in self._attempts.items() if run in known)}
        for run in [run for run in self._accounts if run not in needed][:-KEPT]:
            del self._accounts[run]
        self._attempts = {
            run: attempt for run, attempt in self._attempts.items() if run in known or run in self._accounts
        }
        self._latest = {job: run for job, run in self._latest.items() if run in self._accounts or run in self._attempts}
