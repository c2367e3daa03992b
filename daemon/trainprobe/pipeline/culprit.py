"""Which rank the others wait for: that rank of the run on this host which has a stall of another cause at the time."""

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


def name_culprits(ranks: Sequence[RankState], now_ns: int) -> None:
    """Complete the chains of stalls in which a rank waited for others. Cheap where no rank does."""
    if len(ranks) < 2:
        return
    for number, rank in enumerate(ranks):
        recent = [e for e in rank.stalls.entries[-LOOK_BACK:] if e.end_ns is None or now_ns - e.end_ns < SETTLED]
        for entry in [*recent, *([rank.stalls.open] if rank.stalls.open is not None else [])]:
            if entry.cause == Cause.COLLECTIVE_WAIT and not entry.followed:
                _follow(entry, number, ranks)


def _follow(entry: StallEntry, number: int, ranks: Sequence[RankState]) -> None:
    best: tuple[float, int, StallEntry] | None = None
    for other, rank in enumerate(ranks):
        if other == number:
            continue
        candidates = [*rank.stalls.entries[-LOOK_BACK:], *([rank.stalls.open] if rank.stalls.open is not None else [])]
        for one in candidates:
            both = _overlap(entry, one)
            if one.cause != Cause.COLLECTIVE_WAIT and both > 0 and (best is None or both > best[0]):
                best = both, other, one
    if best is None:
        return
    both, other, one = best
    rank = ranks[other]
    name = rank.seen.rank if rank.seen.rank is not None else other
    ranks[number].stalls.changed(entry)
    entry.followed = True
    cause = one.cause.value
    entry.summary = LATE(summary=entry.summary, rank=name, cause=cause)
    entry.chain += [CULPRIT(rank=name, pid=rank.seen.pid, cause=cause), *one.chain]
    entry.evidence.append(Evidence.of(MEANWHILE(rank=name, cause=cause), seconds(both), "s", rank.seen.pid))
    entry.stack = entry.stack if not one.stack else one.stack


def _overlap(one: StallEntry, other: StallEntry) -> float:
    far = 1 << 62
    end = min(one.end_ns or far, other.end_ns or far)
    start = max(one.start_ns, other.start_ns)
    return min(one.ns, other.ns) if end == far else float(end - start)
