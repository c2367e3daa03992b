"""The history beside the loop: a thread of its own keeps what reports tell, so that no disk ever stops the watching.

What was published last lies below /run too; a process that follows one that was killed takes it into the history
first. So nothing that was published is lost, though writing may be some tenths of a second behind, or hours where a
disk is full: the latest report, and the steps that wait, are held until it can be written.
"""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from trainprobe.collect.owners import Owners
from trainprobe.config.schema import Retention
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, template
from trainprobe.model.report import Report, Run, Source
from trainprobe.model.resume_state import ResumedJob
from trainprobe.model.steprow import RankSteps
from trainprobe.pipeline.report.restart_merge import closed
from trainprobe.runtime.history import retention
from trainprobe.runtime.history.changes import Changed, Changes
from trainprobe.runtime.history.files import HistoryFiles
from trainprobe.runtime.history.load import attempts_and_jobs, resumed_rows, run_of
from trainprobe.runtime.loop.guard import described
from trainprobe.runtime.publishing import rundir
from trainprobe.store.database import Database, damaged, lost, move_aside
from trainprobe.store.records import Batch, RankKey
from trainprobe.store.schema import NewerSchemaError
from trainprobe.text.saying import Text

FILE = "history.sqlite"
PACE_NS = 4_900_000_000  # reports come each second; the last one published is found again after a kill
OPENING_SECONDS = 10.0
CLOSING_SECONDS = 5.0
RETRY_SECONDS = 10.0
TIDY_SECONDS = 300.0
OWN_RUNS = 64  # of a user, in his file
STEPS_WAITING = 4096  # tellings (one rank, one second) that wait for the thread
ASIDE_SECONDS = 60.0  # that a file was moved aside counts as a failure for this long
GONE_SECONDS = 60.0  # a run that was live when we began and is not found again by then has ended

Complain = Callable[[Text, Text], object]
NOT_OPEN = template("history.not_open", "it is not open yet")()
NOT_WRITTEN = template("history.not_written", "the history is not written: {error}")
TRY_AGAIN = template("history.try_again", "{command}; it is tried again every {pause:span}")
GIVEN_UP = template("history.given_up", "runs that ended are lost: more than may wait for the disk")()
DAMAGED = template(
    "history.damaged", "the history was damaged ({error}): it lies in {path} now, and a new one was begun"
)


@dataclass(frozen=True, slots=True)
class EarlierState:
    """What an earlier process left."""

    live: tuple[Run, ...] = ()  # runs whose end nobody saw, as they were told last
    kept: Mapping[RankKey, str] = field(default_factory=dict)
    attempts: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # by user, the latest of each run and job
    jobs: tuple[ResumedJob, ...] = ()  # whose attempts have ended


@dataclass(slots=True)
class _Telling:
    """The latest that the loop told and the thread has not taken yet."""

    report: Report | None = None
    kept: Mapping[RankKey, str] = field(default_factory=dict)
    steps: deque[RankSteps] = field(default_factory=lambda: deque(maxlen=STEPS_WAITING))


@dataclass(slots=True)
class _Health:
    """How the history is: the thread writes it, the loop reads it."""

    problem: Message | None = NOT_OPEN
    aside: Message | None = None
    aside_until: float = 0.0
    retry: float = 0.0
    given_up: bool = False  # and it was said

    def source(self) -> Source:
        if self.problem:
            return Source.of("error", self.problem)
        if self.aside is not None and time.monotonic() < self.aside_until:
            return Source.of("error", self.aside)
        return Source("up")


class HistoryKeeper:
    """``open``, then ``add_report`` for each report, then ``close``. Only ``open`` raises."""

    def __init__(
        self,
        directory: Path,
        kept: Retention,
        *,
        complain: Complain,
        uid_of: Callable[[str], int | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.retention = kept
        self._complain = complain
        self._clock = clock
        self._changes = Changes(uid_of)
        self._files = HistoryFiles(directory, rundir.group_id())
        self._database: Database | None = None
        self._held = Changed()
        self._telling = _Telling()
        self._taken_ns = 0
        self._wake = threading.Condition()
        self._opened = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._latest = _Telling()
        self._found: EarlierState | NewerSchemaError = EarlierState()
        self._health = _Health()
        self._tidy_at = self._gone_at = 0.0
        self._awaited: dict[str, Run] = {}  # live when we began, not seen since
        self._clock_guard = retention.ClockJumpGuard()

    # The loop's side

    def open(self, last: Report | None = None) -> EarlierState:
        """What is there. ``last``: what an earlier process published last. Raises NewerSchemaError."""
        self._thread = threading.Thread(target=self._run, args=(last,), name="trainprobe-hist", daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are the loop's
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if not self._opened.wait(OPENING_SECONDS):
            return EarlierState()
        if isinstance(self._found, NewerSchemaError):
            raise self._found
        return self._found

    def is_due(self, now_ns: int, *, stalled: bool) -> bool:
        """Whether to tell it again: each second while a stall is open, else less often, which is cheaper."""
        return stalled or now_ns - self._taken_ns >= PACE_NS

    def add_report(self, report: Report, steps: Sequence[RankSteps], kept: Mapping[RankKey, str]) -> None:
        """The latest report, and the steps since the one before."""
        self._taken_ns = time.monotonic_ns()
        with self._wake:
            self._telling.report, self._telling.kept = report, kept
            self._telling.steps.extend(steps)
            self._wake.notify()

    def source(self) -> Source:
        return self._health.source()

    @property
    def owner_reports(self) -> Source:
        return self._files.owners.source

    def close(self) -> None:
        """Write what waits, as far as the disk lets us in a few seconds."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    # The thread's side

    def _run(self, published: Report | None) -> None:
        self._guarded(lambda: self._begin(published))
        self._opened.set()
        ending = isinstance(self._found, NewerSchemaError)
        while not ending:
            with self._wake:
                if self._telling.report is None and not self._ending:
                    self._wake.wait(TIDY_SECONDS)
                telling, self._telling = self._telling, _Telling()
                ending = self._ending
            self._guarded(lambda: self._turn(telling, ending))  # noqa: B023 - called at once
        if self._database is not None:
            self._guarded(self._database.close)

    def _guarded(self, part: Callable[[], object]) -> None:
        try:
            part()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, sqlite3.Error) and damaged(error):
            self._guarded(lambda: self._move_aside(error))
            return
        if isinstance(error, sqlite3.Error) and lost(error) and self._database is not None:
            gone, self._database = self._database, None
            self._guarded(gone.close)
        problem = NOT_WRITTEN(error=described(error))
        if problem != self._health.problem:
            self._complain(problem, self._try_again())
        self._health.problem = problem
        self._health.retry = time.monotonic() + RETRY_SECONDS

    def _try_again(self) -> Message:
        return TRY_AGAIN(command=f"df -h {self._files.directory}", pause=RETRY_SECONDS)

    def _begin(self, published: Report | None) -> None:
        if published is not None:  # what comes of it waits even if nothing can be opened now
            self._held.then(self._changes.of(published, (), {}, 0, everything=True))
        try:
            database = self._open_database()
        except NewerSchemaError as error:
            self._found = error
            return
        self._store(Changed())
        self._found = self._read(self._database or database)

    def _open_database(self) -> Database:
        self._files.open()
        path = self._files.directory / FILE
        try:
            database = Database(path)
        except sqlite3.Error as error:
            if not damaged(error):
                raise
            self._move_aside(error)
            database = Database(path)
        self._database = database
        self._health.problem = None
        return database

    def _move_aside(self, error: Exception) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        where = move_aside(self._files.directory / FILE, int(self._clock()))
        told = DAMAGED(error=described(error), path=str(where))
        self._health.aside, self._health.aside_until = told, time.monotonic() + ASIDE_SECONDS
        self._complain(told, f"sqlite3 {where} .recover")
        self._changes = Changes(self._changes.uid_of)  # nothing of the new one is written yet

    def _read(self, database: Database) -> EarlierState:
        kept: dict[RankKey, str] = {}
        for row in database.runs(live=True):
            run = run_of(database, row)
            if run is None:
                continue
            self._awaited[row.run] = run
            for rank in database.ranks(row.run):
                if rank.kept is not None:
                    kept[row.run, rank.rank] = rank.kept
                for place, steps in resumed_rows(database, row.run, rank.rank):
                    self._changes.go_on(row.run, rank.rank, place, steps)
        self._gone_at = time.monotonic() + GONE_SECONDS
        return EarlierState(tuple(self._awaited.values()), kept, *attempts_and_jobs(database))

    def _turn(self, telling: _Telling, ending: bool) -> None:
        if telling.report is None and ending:
            telling = self._latest
        if telling.report is not None:
            self._latest = _Telling(telling.report, telling.kept)
            for run in telling.report.runs:
                self._awaited.pop(run.key, None)
            now_ns = time.monotonic_ns()
            self._store(self._changes.of(telling.report, telling.steps, telling.kept, now_ns, everything=ending))
        if self._awaited and time.monotonic() >= self._gone_at:
            self._end_the_gone()
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_SECONDS
            self._tidy()

    def _store(self, changed: Changed) -> None:
        """Database first, then what others read of it."""
        self._held.then(changed)
        if time.monotonic() < self._health.retry and not self._ending:
            if self._held.give_up() and not self._health.given_up:
                self._health.given_up = True
                self._complain(GIVEN_UP, self._try_again())
            return
        database = self._database or self._open_database()
        held = self._held
        if held.batch:
            database.write(held.batch)
        held.batch = Batch()
        self._files.append(held.lines, int(self._clock()))
        held.lines = []
        self._files.publish(held.runs)
        uids = {self._changes.uid_of(run.user) for report in held.runs.values() for run in report.runs}
        held.runs = {}
        self._publish_to(database, (uid for uid in uids if uid is not None))
        self._health.problem, self._health.given_up = None, False

    def _publish_to(self, database: Database, uids: Iterable[int]) -> None:
        for uid in uids:
            self._files.publish_to(uid, [run for run, *_ in database.run_names(uid=uid, limit=OWN_RUNS)])

    def _end_the_gone(self) -> None:
        """What was live when an earlier process was killed, and has ended since: nobody knows how."""
        gone, self._awaited = self._awaited, {}
        changed, changes = Changed(), Changes(self._changes.uid_of)
        for row in (self._database or self._open_database()).runs(live=True):
            if row.run in gone:
                run = replace(gone[row.run], ended=row.told, ranks=[closed(rank) for rank in gone[row.run].ranks])
                changed.then(changes.of(Report(generated=row.told, runs=[run]), (), {}, 0))
        self._store(changed)

    def _tidy(self) -> None:
        database = self._database
        if database is None:
            return
        if self._clock_guard.holds(self._clock(), time.monotonic()):
            retention.by_age(database, self._files, self.retention, self._clock())
        retention.by_size(database, self._files, self.retention, Owners().of)
        owned = {uid for _, uid, _ in database.run_names()}
        for uid in self._files.owners.uids():
            if uid not in owned:
                self._files.owners.forget(uid)
