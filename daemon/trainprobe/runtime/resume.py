"""Which trainings of an earlier daemon go on, and whether a driver is still in the step that it was in then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainprobe.collect.procfs import SMALL, Proc, read_file
from trainprobe.model.cells import LEAVES, Leaf
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Rank, Run, has_ended
from trainprobe.model.resume_state import KeptRank, ResumedRank, ResumedRun
from trainprobe.pipeline import Pipeline
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

EVERY_NS = 10 * NS
SAME_START_NS = 50_000_000  # a start is told in clock ticks or by an event
LEAST_CPU_NS = 1_000_000


class ResumeStates:
    """The state of each rank that a later daemon needs, encoded. Renewed every ten seconds, and always in a stall."""

    def __init__(self, core: Pipeline, proc: Proc) -> None:
        self._core = core
        self._proc = proc
        self._made_ns = -EVERY_NS
        self._stalled = False
        self._texts: dict[tuple[str, str], str] = {}

    def at(self, now_ns: int) -> dict[tuple[str, str], str]:
        """By run and rank, with the drivers' CPU time where a stall is open."""
        stalled = self._core.stalled
        if stalled or self._stalled or now_ns - self._made_ns >= EVERY_NS:
            self._made_ns, self._stalled = now_ns, stalled
            self._texts = {key: codec.dumps(self._with_cpu(rank)) for key, rank in self._core.kept().items()}
        return self._texts

    def _with_cpu(self, rank: KeptRank) -> KeptRank:
        if not rank.stalled_from_ns:
            return rank
        return replace(rank, cpu_ns=cpu_ns(self._proc, rank.pid, rank.tid))


def found_again(live: Sequence[Run], kept: Mapping[tuple[str, str], str], at: Moment, proc: Proc) -> list[ResumedRun]:
    """Those of the runs that have a driver left."""
    again = []
    for run in live:
        texts = ((rank, kept.get((run.key, rank.name))) for rank in run.ranks if not has_ended(rank))
        ranks = [found for rank, text in texts if (found := _found(rank, text, proc)) is not None]
        if ranks:
            again.append(ResumedRun(run.key, at.monotonic_ns, run.started, tuple(run.ranks), tuple(ranks)))
    return again


def _found(rank: Rank, text: str | None, proc: Proc) -> ResumedRank | None:
    if text is None:  # it had no baseline; whether the process is the same, the name of its run tells
        return ResumedRank(rank.pid, None, same_step=False) if proc.stat(rank.pid) is not None else None
    try:
        kept: KeptRank = codec.decode(KeptRank, codec.loads(text))
    except WireError:
        return None
    stat = proc.stat(kept.pid)
    if stat is None or stat.dead or abs(proc.started_ns(stat.ticks) - kept.started_ns) > SAME_START_NS:
        return None
    return ResumedRank(kept.pid, kept, same_step=_same_step(kept, proc))


def _same_step(kept: KeptRank, proc: Proc) -> bool:
    """A driver that has hardly run since has made no step: each takes its CPU time."""
    if not kept.stalled_from_ns or not kept.cpu_ns:
        return False
    step = sum(ns for index, ns in enumerate(kept.ordinary_cells) if index % LEAVES == Leaf.CPU)
    return 0 <= cpu_ns(proc, kept.pid, kept.tid) - kept.cpu_ns < max(step // 2, LEAST_CPU_NS)


def cpu_ns(proc: Proc, pid: int, tid: int) -> int:
    """CPU time of a thread; 0 where it cannot be known."""
    text = read_file(f"{proc.root}/{pid}/task/{tid}/schedstat", SMALL) or b""
    first = text.split(b" ")[0]
    return int(first) if first.isdigit() else 0
