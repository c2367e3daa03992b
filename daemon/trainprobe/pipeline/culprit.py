"""Which rank the others wait for: that rank of the run on this host which has a stall of another cause at the time, or
evaluates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.causes.base import seconds
from trainprobe.causes.stalls.collective_wait import MEANWHILE
from trainprobe.model.cause import Cause, Phase
from trainprobe.model.dataclass import dataclass
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
_FAR = 1 << 62
_WORK = frozenset({Phase.EVALUATION, Phase.COMPILE})
"""Phases of one rank for which the others may wait."""


def name_culprits(ranks: Sequence[RankState], now_ns: int) -> None:
    """Complete the chains of stalls in which a rank waited for others. Cheap where no rank does."""
    if len(ranks) < 2:
        return
    for number, rank in enumerate(ranks):
        recent = [e for e in rank.stalls.entries[-LOOK_BACK:] if e.end_ns is None or now_ns - e.end_ns < SETTLED]
        for entry in [*recent, *([rank.stalls.open] if rank.stalls.open is not None else [])]:
            if entry.cause == Cause.COLLECTIVE_WAIT and not entry.followed:
                _follow(entry, number, ranks)


@dataclass(frozen=True, slots=True)
class _Other:
    """What another rank did for a while, that is no waiting for ranks. Times in ns."""

    cause: str
    start_ns: int
    end_ns: int | None
    ns: float
    stall: StallEntry | None = None


def _others(rank: RankState) -> Iterator[_Other]:
    live = [rank.stalls.open] if rank.stalls.open is not None else []
    for one in [*rank.stalls.entries[-LOOK_BACK:], *live]:
        if one.cause != Cause.COLLECTIVE_WAIT:
            yield _Other(one.cause.value, one.start_ns, one.end_ns, one.ns, one)
    for span in rank.phases.spans[-LOOK_BACK:]:
        if span.phase in _WORK and span.end_ns is not None:
            yield _Other(span.phase.value, span.start_ns, span.end_ns, span.end_ns - span.start_ns)
    phase, ns = rank.phases.live or (None, 0.0)
    if phase in _WORK:
        yield _Other(phase.value, _live_since(rank), None, ns)


def _live_since(rank: RankState) -> int:
    return int(rank.open.sample_ns - rank.phases.live[1]) if rank.phases.live is not None else rank.open.sample_ns


def _follow(entry: StallEntry, number: int, ranks: Sequence[RankState]) -> None:
    best: tuple[float, int, _Other] | None = None
    for other, rank in enumerate(ranks):
        if other == number:
            continue
        for one in _others(rank):
            both = _overlap(entry, one, _in_phase(ranks[number], one))
            if both > 0 and (best is None or both > best[0]):
                best = both, other, one
    if best is None:
        return
    both, other, late = best
    rank = ranks[other]
    name = rank.seen.rank if rank.seen.rank is not None else other
    ranks[number].stalls.changed(entry)
    entry.followed = True
    entry.summary = LATE(summary=entry.summary, rank=name, cause=late.cause)
    entry.chain.append(CULPRIT(rank=name, pid=rank.seen.pid, cause=late.cause))
    entry.evidence.append(Evidence.of(MEANWHILE(rank=name, cause=late.cause), seconds(both), "s", rank.seen.pid))
    if late.stall is not None:
        entry.chain += late.stall.chain
        entry.stack = late.stall.stack or entry.stack


def _in_phase(rank: RankState, other: _Other) -> int:
    """How long the rank itself was in another one's phase meanwhile, in ns: all ranks evaluate, one for longer."""
    spans = [(one.start_ns, one.end_ns) for one in rank.phases.spans[-LOOK_BACK:] if one.phase == other.cause]
    if rank.phases.live is not None and rank.phases.live[0] == other.cause:
        spans.append((_live_since(rank), rank.open.sample_ns))
    until = other.end_ns or _FAR
    return sum(max(0, min(end or _FAR, until) - max(start, other.start_ns)) for start, end in spans)


def _overlap(one: StallEntry, other: _Other, own_ns: int) -> float:
    """How long the one waited while the other did what it did alone."""
    end = min(one.end_ns or _FAR, other.end_ns or _FAR)
    return min(one.ns, other.ns - own_ns, end - max(one.start_ns, other.start_ns))
