"""Runs as the history has them: rows of the database -> the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from trainprobe.model.report import Bottleneck, Checkpoint, Rank, Run, Stall, Warning_
from trainprobe.model.resume_state import ResumedJob
from trainprobe.model.steprow import TIERS, StepRow
from trainprobe.store.database import Database
from trainprobe.store.records import RankFound, RunRow
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

JOBS = 64
"""Ended runs, the latest, whose jobs may go on, beside the jobs of live runs."""
KNOWN = 2048
"""Runs, the latest of each user, whose names are remembered: those of all are as many as the history has room for."""
_ITEMS = {"bottlenecks": Bottleneck, "warnings": Warning_, "checkpoints": Checkpoint}


def run_of(database: Database, row: RunRow) -> Run | None:
    """The run with its ranks as they were told last; None where this version cannot read it."""
    run = next(_decoded([row]), None)
    try:
        if run is not None:
            run.ranks, run.ended = [_rank(found) for found in database.ranks(row.run)], row.ended
    except WireError:
        return None
    return run


def _decoded(rows: Iterable[RunRow]) -> Iterator[Run]:
    """Without their ranks; those that this version cannot read are left out."""
    for row in rows:
        with suppress(WireError):
            yield codec.decode(Run, codec.loads(row.body))


def attempts_and_jobs(database: Database) -> tuple[dict[int, dict[str, int]], tuple[ResumedJob, ...]]:
    """By user (-1: not known), the latest attempt of each run and of each job; the accounts of the jobs whose attempts
    have ended, the latest last, and those of live runs behind them."""
    attempts: dict[int, dict[str, int]] = {}
    jobs: dict[tuple[str, str], ResumedJob] = {}
    going_on = {_job(run): run.goodput.attempt for run in _decoded(database.runs(live=True)) if run.job}
    others = 0
    for row in database.latest_of_each(KNOWN):
        latest = attempts.setdefault(-1 if row.uid is None else row.uid, {})
        for run in _decoded([row]):
            for name in filter(None, (run.run, run.job)):
                latest[name] = max(latest.get(name, 0), run.attempt)
            if row.ended is None:
                continue
            others += _job(run) not in going_on
            if run.job and (_job(run) in going_on or others <= JOBS):
                jobs.setdefault(_job(run), ResumedJob(run.job, run.key, run.goodput, user=run.user))
    older = [job[1] for job, attempt in going_on.items() if attempt > 1 and job not in jobs]
    for run in _decoded(database.last_ended_of_jobs(older)) if older else ():
        jobs.setdefault(_job(run), ResumedJob(run.job, run.key, run.goodput, user=run.user))
    latest_first = sorted(jobs, key=lambda job: job not in going_on)
    return attempts, tuple(jobs[job] for job in latest_first[::-1])


def _job(run: Run) -> tuple[str, str]:
    """Of two users two jobs may have one name."""
    return run.user, run.job


def _rank(found: RankFound) -> Rank:
    rank: Rank = codec.decode(Rank, codec.loads(found.body))
    rank.stalls = [codec.decode(Stall, codec.loads(text)) for text in found.stalls]
    for name, kind in _ITEMS.items():
        setattr(rank, name, [codec.decode(kind, codec.loads(text)) for text in found.lists[name]])
    return rank


def resumed_rows(database: Database, run: str, rank: str) -> Iterator[tuple[int, StepRow]]:
    """The last row of each tier but the finest, with the tier's number: it may be unfinished."""
    for place, tier in enumerate(TIERS):
        row = database.last_steps(run, rank, tier.name) if place else None
        if row is not None:
            start, seconds, count, shortest, longest, states = row
            try:
                told = codec.decode(dict[str, float], codec.loads(states))
            except WireError:
                continue
            yield place, StepRow(start, seconds, count, shortest, longest, told)
