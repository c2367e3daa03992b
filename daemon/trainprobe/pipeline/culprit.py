"""Which rank the others wait for: of one run's ranks on this host the one that has a cause of its own meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.causes.base import seconds
from trainprobe.causes.stalls.collective_wait import MEANWHILE
from trainprobe.model.cause import Cause
from trainprobe.model.message import template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.stalls import StallEntry

LATE = template("collective_wait.late", "{summary}: rank {rank} was late by {cause}")
CULPRIT = template("collective_wait.culprit", "rank {rank} (pid {pid}) is the one that does not wait: {cause}")
SETTLED = 5 * NS
"""After this time no more is learnt about a stall that has ended."""
LOOK_BACK = 8


def name_culprits(folds: Sequence[RankState], now_ns: int) -> None:
    """Complete the chains of stalls in which a rank waited for others. Cheap where no rank does."""
    if len(folds) < 2:
        return
    for number, fold in enumerate(folds):
        recent = [e for e in fold.stalls.entries[-LOOK_BACK:] if e.end_ns is None or now_ns - e.end_ns < SETTLED]
        for entry in [*recent, *([fold.stalls.open] if fold.stalls.open is not None else [])]:
            if entry.cause == Cause.COLLECTIVE_WAIT and not entry.followed:
                _follow(entry, number, folds)


def _follow(entry: StallEntry, number: int, folds: Sequence[RankState]) -> None:
    best: tuple[float, int, StallEntry] | None = None
    for other, fold in enumerate(folds):
        if other == number:
            continue
        candidates = [*fold.stalls.entries[-LOOK_BACK:], *([fold.stalls.open] if fold.stalls.open is not None else [])]
        for one in candidates:
            both = _overlap(entry, one)
            if one.cause != Cause.COLLECTIVE_WAIT and both > 0 and (best is None or both > best[0]):
                best = both, other, one
    if best is None:
        return
    both, other, one = best
    fold = folds[other]
    name = fold.seen.rank if fold.seen.rank is not None else other
    folds[number].stalls.changed(entry)
    entry.followed = True
    cause = one.cause.value
    entry.summary = LATE(summary=entry.summary, rank=name, cause=cause)
    entry.chain += [CULPRIT(rank=name, pid=fold.seen.pid, cause=cause), *one.chain]
    entry.evidence.append(Evidence.of(MEANWHILE(rank=name, cause=cause), seconds(both), "s", fold.seen.pid))
    entry.stack = entry.stack if not one.stack else one.stack


def _overlap(one: StallEntry, other: StallEntry) -> float:
    far = 1 << 62
    end = min(one.end_ns or far, other.end_ns or far)
    start = max(one.start_ns, other.start_ns)
    return min(one.ns, other.ns) if end == far else float(end - start)
