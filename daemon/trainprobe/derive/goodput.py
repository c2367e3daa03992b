"""The goodput of a job: its attempts one after the other, the gaps between them, and the progress that was lost.

An attempt's own seconds come in as an exact account of its wall time. A failure takes back the productive time since
the last complete checkpoint; once the next attempt steps, the checkpoint that it resumed from decides instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from zlib import crc32

from trainprobe.model.dataclass import dataclass
from trainprobe.model.goodput import Badput, Goodput, Outcome, Progress

SAVED = 32
"""Checkpoints of a job that are remembered."""
OVERLAP_SECONDS = 1.0
"""An attempt that begins earlier than so long before another one's end runs beside it, not after it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of a job. Seconds are those of the run, not of each rank."""

    started: float  # UNIX seconds
    productive: float
    badput: Mapping[str, float]  # by ``Badput``; with ``productive`` the attempt's wall time
    number: int = 0  # 0: one more than the attempt before
    outcome: Outcome = Outcome.RUNNING
    stepped: bool = False
    restored: Collection[str] | None = None  # paths of the checkpoints that it read; None: not watched
    saved: Mapping[str, float] = field(default_factory=dict)  # by path: the attempt's productive time at that save
    safe: float | None = None  # its productive time at the last complete checkpoint; None: there was none
    time_to_first_step: float | None = None
    restore: float | None = None

    @property
    def wall(self) -> float:
        return self.productive + sum(self.badput.values())


def goodput(attempt: Attempt, before: Goodput | None) -> Goodput:
    """The job's account up to and with this attempt. ``before``: up to the attempt before it, None for the first."""
    if before is not None and not _follows(attempt, before):
        before = None
    begin, productive = _resumed(attempt, before), attempt.productive
    progress = Progress(
        seconds=begin.seconds + productive,
        safe_seconds=begin.safe_seconds if attempt.safe is None else begin.seconds + min(attempt.safe, productive),
        wasted_seconds=begin.wasted_seconds,
        known=begin.known,
        outcome=attempt.outcome,
        until=attempt.started + attempt.wall,
        saved=_latest(
            begin.saved, {key(path): begin.seconds + min(at, productive) for path, at in attempt.saved.items()}
        ),
    )
    earned, badput, between = attempt.productive, dict(attempt.badput), None
    if before is not None:
        gap = max(0.0, attempt.started - before.progress.until)
        between = gap + (before.between_attempts_seconds or 0.0)
        earned += before.productive_seconds + before.badput.get(_WASTED, 0.0)
        finished = before.progress.outcome == Outcome.FINISHED
        badput = _sum(badput, before.badput, {(Badput.OTHER if finished else Badput.RECOVERY).value: gap})
        badput.pop(_WASTED, None)
    wasted = min(earned, wasted_seconds(progress)) if progress.known else 0.0
    if wasted > 0:
        badput[_WASTED] = wasted
    return Goodput(
        productive_seconds=earned - wasted,
        badput={name: seconds for name, seconds in badput.items() if seconds > 0},
        wasted_progress_seconds=wasted if progress.known else None,
        attempt=max(attempt.number, before.attempt + 1 if before is not None else 1),
        between_attempts_seconds=between,
        time_to_first_step_seconds=attempt.time_to_first_step,
        restore_seconds=attempt.restore,
        earlier=before.badput if before is not None else {},
        progress=progress,
    )


def key(path: str) -> str:
    """A path as it is remembered: reports need not show it."""
    return f"{crc32(path.encode('utf-8', 'surrogateescape')):08x}"


def wasted_seconds(progress: Progress) -> float:
    """What resumptions took back, and after a failure what its last complete checkpoint does not hold."""
    failed = progress.outcome == Outcome.FAILED
    return progress.wasted_seconds + (progress.seconds - progress.safe_seconds if failed else 0.0)


_WASTED = Badput.WASTED_PROGRESS.value


def _follows(attempt: Attempt, before: Goodput) -> bool:
    ended = before.progress.outcome != Outcome.RUNNING
    return ended and before.progress.until <= attempt.started + OVERLAP_SECONDS


def _resumed(attempt: Attempt, before: Goodput | None) -> Progress:
    if before is None:
        return Progress()
    ended = before.progress
    if not attempt.stepped:  # what it resumes from is not known yet: the last complete checkpoint, as before
        seconds = ended.safe_seconds if ended.outcome == Outcome.FAILED else ended.seconds
        return replace(ended, seconds=seconds, wasted_seconds=wasted_seconds(ended))
    found = [ended.saved[key(path)] for path in attempt.restored or () if key(path) in ended.saved]
    if ended.outcome == Outcome.FINISHED:
        return replace(ended, seconds=min(found, default=0.0), safe_seconds=min(found, default=0.0))
    if found:
        held = min(found)
    elif attempt.restored is not None and not attempt.restored and not ended.saved:
        held = 0.0  # nothing was ever saved and nothing read: it began anew
    else:
        return replace(ended, safe_seconds=ended.seconds, known=False)
    kept = {path: at for path, at in ended.saved.items() if at <= held}
    wasted = ended.wasted_seconds + ended.seconds - held
    return replace(ended, seconds=held, safe_seconds=held, wasted_seconds=wasted, saved=kept)


def _latest(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Both; the latest of them."""
    both = {**{path: at for path, at in before.items() if path not in now}, **now}
    return dict(list(both.items())[-SAVED:])


def _sum(*accounts: Mapping[str, float]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, seconds in (pair for one in accounts for pair in one.items()):
        out[name] = out.get(name, 0.0) + seconds
    return out
