"""A run's part of its job's goodput: an exact account of its wall time, made of what the report says of its ranks.

Ranks count alike. Time in which a rank waited for a late one goes to what the late one lost it to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

from trainprobe.advise.startup import total
from trainprobe.causes.registry import SPECS
from trainprobe.derive.goodput import SAVED, Attempt
from trainprobe.model.cause import Cause, Phase
from trainprobe.model.goodput import Badput, Outcome
from trainprobe.model.report import Checkpoint, Rank, Run, has_ended
from trainprobe.model.vocabulary import Ending

WAIT = Cause.COLLECTIVE_WAIT.value
ASKED = frozenset({1, 2, 15})  # SIGHUP, SIGINT, SIGTERM
FAILURES = frozenset({Ending.EXCEPTION, Ending.KILLED, Ending.TIMEOUT, Ending.WATCHDOG, Ending.OOM})
BEGUN = (Phase.STARTUP, Phase.ATTACHING, Phase.COMPILE)
"""Phases until it is known what is ordinary."""
SOURCES = {
    Cause.CHECKPOINT.value: Badput.CHECKPOINT_SAVE,
    Cause.RECOMPILE.value: Badput.RECOMPILATION,
    **{cause.value: Badput.DATA_LOADING for cause, spec in SPECS.items() if spec.is_input},
}
_OTHER = Badput.OTHER.value
_SPAN = attrgetter("start", "end", "seconds")
_Span = tuple[float, float, float]
_SOURCES = tuple(source.value for source in Badput)
_OF_LATE = (
    Badput.DATA_LOADING.value, Badput.CHECKPOINT_SAVE.value, Badput.RECOMPILATION.value, Badput.EVALUATION.value, _OTHER
)  # fmt: skip


def attempt_of(run: Run, number: int = 0) -> Attempt:
    wall = max((_offset(rank, run) + rank.wall_seconds for rank in run.ranks), default=0.0)
    parts = [_parts(rank, run) for rank in run.ranks]
    badput = _shared(parts)
    stepped = any(rank.steps.count for rank in run.ranks)
    watched = [total(rank.startup) for rank in run.ranks]
    firsts = [_offset(rank, run) + first for rank, first in zip(run.ranks, watched) if first is not None]
    spent = sum(badput.values())
    productive = min(wall - spent, _mean([_productive(rank) for rank in run.ranks]))
    if (rest := wall - spent - productive) > 0:
        badput[_OTHER] = badput.get(_OTHER, 0.0) + rest
    saves = [one for rank in run.ranks for one in rank.checkpoints[-SAVED:] if _is_complete(one)]
    progress = [_Progress(rank) for rank in run.ranks] if any(rank.checkpoints for rank in run.ranks) else []
    return Attempt(
        started=run.started,
        productive=wall - sum(badput.values()),
        badput=badput,
        number=number,
        outcome=_outcome(run),
        stepped=stepped,
        restored=[one.path for rank in run.ranks for one in rank.restores] if firsts else None,
        saved={one.path: _productive_until(progress, one.start) for one in saves},
        safe=_safe(run, progress),
        time_to_first_step=max(firsts, default=None),
        restore=max((rank.startup.restore for rank in run.ranks if rank.startup.restore is not None), default=None),
    )


def _offset(rank: Rank, run: Run) -> float:
    """From the launch until the rank's process began."""
    return max(0.0, rank.started - run.started) if rank.started is not None else 0.0


def _parts(rank: Rank, run: Run) -> dict[str, float]:
    """What a rank spent its time on that is not productive; WAIT: waiting for a late rank."""
    out = {Badput.STARTUP: _offset(rank, run)}

    def add(source: Badput, seconds: float | None) -> None:
        out[source] = out.get(source, 0.0) + (seconds or 0.0)

    phases, start = rank.counters.phase_seconds, rank.startup
    if total(start) is not None:
        add(Badput.STARTUP, (start.imports or 0.0) + phases.get(Phase.COMPILE.value, 0.0))
        add(Badput.CHECKPOINT_RESTORE, start.restore)
        add(Badput.TRAINING_PREP, (start.dataset or 0.0) + (start.workers or 0.0) + (start.other or 0.0))
    else:
        add(Badput.STARTUP, _begun(rank) - _first_steps(rank))
    add(Badput.EVALUATION, phases.get(Phase.EVALUATION.value))
    for phase in (Phase.SHUTDOWN, Phase.IDLE):
        add(Badput.OTHER, phases.get(phase.value))
    for cause, seconds in rank.lost.items():
        if cause != WAIT:
            add(SOURCES.get(cause, Badput.OTHER), seconds)
    return {**{source.value: seconds for source, seconds in out.items()}, WAIT: rank.lost.get(WAIT, 0.0)}


def _begun(rank: Rank) -> float:
    return sum(rank.counters.phase_seconds.get(phase.value, 0.0) for phase in BEGUN)


def _first_steps(rank: Rank) -> float:
    """The steps before it was known what is ordinary: they make progress like any other."""
    phases, first = rank.counters.phase_seconds, total(rank.startup)
    if first is not None:
        compiled = phases.get(Phase.COMPILE.value, 0.0) - (rank.startup.compile or 0.0)
        return max(0.0, _begun(rank) - first - compiled)
    return phases.get(Phase.ATTACHING.value, 0.0) if rank.steps.count else 0.0


def _productive(rank: Rank) -> float:
    return rank.productive_seconds + _first_steps(rank)


def _shared(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of the ranks; what they waited for a late one goes to what it alone lost, as far as it did."""
    out = {name: _mean([one.get(name, 0.0) for one in parts]) for name in (*_SOURCES, WAIT)}
    waited = out.pop(WAIT, 0.0)
    if waited > 0:
        late = min(parts, key=lambda one: one[WAIT])
        lost = {name: late.get(name, 0.0) - min(one.get(name, 0.0) for one in parts) for name in _OF_LATE}
        whole = sum(lost.values())
        for name, seconds in lost.items():
            out[name] = out.get(name, 0.0) + (min(1.0, waited / whole) * seconds if whole else 0.0)
        out[_OTHER] = out.get(_OTHER, 0.0) + max(0.0, waited - whole)
    return {name: seconds for name, seconds in out.items() if seconds > 0}


def _outcome(run: Run) -> Outcome:
    exits = [rank.exit for rank in run.ranks]
    if run.ended is None and not (exits and all(has_ended(rank) for rank in run.ranks)):
        return Outcome.RUNNING
    known = [one for one in exits if one is not None]
    if any(one.ending in FAILURES and one.signal not in ASKED for one in known):
        return Outcome.FAILED
    finished = bool(known) and all(one.ending == Ending.FINISHED for one in known)
    return Outcome.FINISHED if finished else Outcome.STOPPED


def _is_complete(one: Checkpoint) -> bool:
    return one.outcome in ("complete", "unsafe") and one.end is not None


def _safe(run: Run, progress: Sequence[_Progress]) -> float | None:
    """The productive time that the last checkpoints hold: where several ranks save, of the rank furthest behind."""
    latest = (next((one.start for one in reversed(rank.checkpoints) if _is_complete(one)), None) for rank in run.ranks)
    starts = [start for start in latest if start is not None]
    return _productive_until(progress, min(starts)) if starts else None


def _productive_until(progress: Sequence[_Progress], at: float) -> float:
    return max(0.0, progress[0].until(at) if len(progress) == 1 else _mean([rank.until(at) for rank in progress]))


class _Progress:
    """A rank's productive time up to a moment: less the phases and stalls, and as much of the rest as the rank lost
    in steps. Many moments are asked for: what lies after each of them is summed up once."""

    def __init__(self, rank: Rank) -> None:
        self._productive, began = _productive(rank), rank.started or 0.0
        self._first, self._end = began + (total(rank.startup) or 0.0), began + rank.wall_seconds
        end = self._end
        spans: list[_Span] = [(b, end if e is None else e, s) for b, e, s in map(_SPAN, rank.stalls)]
        for phase in rank.phases:
            if phase.phase not in (*BEGUN, Phase.TRAIN):
                until = end if phase.end is None else phase.end
                spans.append((phase.start, until, max(0.0, until - phase.start)))
        spans.sort()
        self._spans, self._begins = spans, [begin for begin, _, _ in spans]
        spent = [s if b < e <= end and s <= e - b else _within((b, e, s), b, end) for b, e, s in spans]
        self._spent_after = list(accumulate(reversed(spent), initial=0.0))[::-1]
        self._latest_end = list(accumulate([end for _, end, _ in spans], max))
        self._whole = self._left(self._first) if rank.started is not None else 0.0

    def until(self, at: float) -> float:
        """Seconds of productive time before ``at``."""
        if self._whole <= 0:
            return self._productive
        return self._productive - max(0.0, min(1.0, self._left(max(at, self._first)) / self._whole)) * self._productive

    def _left(self, since: float) -> float:
        """Seconds from then on that are in no phase and no stall."""
        place = bisect_left(self._begins, since)
        spent = self._spent_after[place]
        while place and self._latest_end[place - 1] > since:
            place -= 1
            spent += _within(self._spans[place], since, self._end)
        return max(0.0, self._end - since) - spent


def _within(span: _Span, since: float, until: float) -> float:
    """How much of a span (begin, end, seconds of it that count) is between two moments."""
    begin, end, seconds = span
    if (length := end - begin) <= 0:
        return seconds if begin >= since else 0.0
    if seconds > length:
        seconds = length
    if begin >= since and end <= until:
        return seconds
    return max(0.0, min(end, until) - max(begin, since)) / length * seconds


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
