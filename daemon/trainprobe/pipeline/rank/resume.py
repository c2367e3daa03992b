"""From one daemon to the next: what a rank needs to go on with, and how it is taken up."""

from __future__ import annotations

from trainprobe.derive.steps.baseline import LEAST, Ordinary
from trainprobe.derive.steps.clock import Mode
from trainprobe.derive.steps.interval import Interval, joined
from trainprobe.model.cells import CELLS, LEAVES, Region, RowKind
from trainprobe.model.event import MarkRow
from trainprobe.model.resume_state import KeptRank, ResumedRank
from trainprobe.pipeline.rank.state import RankState


def kept_of(rank: RankState) -> KeptRank | None:
    """What another process would need; None while there is no baseline, or nothing to go on with."""
    if (
        rank.end_ns is not None
        or not rank.progress.baseline.stands
        or rank.progress.clock.mode in (Mode.LEARNING, Mode.GPU, Mode.RHYTHM)
    ):
        return None
    cells, pool = _mean(rank)
    stalled = rank.stalls.opened is not None and rank.progress.boundary is not None
    return KeptRank(
        pid=rank.seen.pid,
        started_ns=rank.seen.started_ns,
        tid=rank.tid,
        clock=rank.progress.clock.kept(),
        ordinary_ns=round(rank.progress.baseline.ns),
        ordinary_cells=cells,
        ordinary_pool=pool,
        ordinary_fetches=round(rank.progress.baseline.fetches()),
        ordinary_backwards=round(rank.progress.baseline.backwards()),
        stalled_from_ns=rank.progress.boundary.at_ns if stalled and rank.progress.boundary is not None else 0,
    )


def _mean(rank: RankState) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Mean cells and pool of an ordinary step, ns."""
    steps = rank.progress.baseline.steps
    cells, pool = [0] * CELLS, [0] * LEAVES
    for interval in joined(step.made_of for step in rank.progress.baseline.told):
        cells = [total + b - a for total, a, b in zip(cells, interval.cells_before, interval.cells_after)]
        pool = [total + b - a for total, a, b in zip(pool, interval.pool_before, interval.pool_after)]
    return tuple(ns // steps for ns in cells), tuple(ns // steps for ns in pool)


def resume(rank: RankState, found: ResumedRank, at_ns: int, stall_id: str) -> None:
    """Go on with a rank: its clock and baseline, and where it is in the same step yet, that step and its stall."""
    kept = found.kept
    rank.resumed = True
    if kept is None:
        rank.start_ns = at_ns
        return
    rank.attached = False  # there is a baseline: no phase of attaching
    rank.progress.clock.go_on(kept.clock)
    cells = _fitting(kept.ordinary_cells, CELLS)
    pool = _fitting(kept.ordinary_pool, LEAVES)
    nothing = ((0,) * CELLS, (0,) * LEAVES)
    made_of = Interval(nothing[0], cells, nothing[1], pool, (), rank.wait_context())
    for _ in range(LEAST):
        rank.progress.baseline.add(
            Ordinary(kept.ordinary_ns, made_of, kept.ordinary_fetches, kept.ordinary_backwards, (kept.ordinary_ns,))
        )
    rank.progress.stability.begin(at_ns)
    rank.start_ns = at_ns
    if not found.same_step or kept.tid != rank.seen.pid:
        return
    rank.stepped = True
    rank.start_ns = rank.progress.first_boundary_ns = kept.stalled_from_ns
    rank.progress.boundary = MarkRow(
        RowKind.OPTIMIZER, kept.stalled_from_ns, kept.pid, kept.tid, kept.clock.name, Region.STEP,
        kept.stalled_from_ns, 0, 0, 0, 0, 0, *nothing, (),
    )  # fmt: skip
    rank.stalls.resumed_id = stall_id


def _fitting(values: tuple[int, ...], length: int) -> tuple[int, ...]:
    """As many values as this version has cells."""
    return (*values[:length], *(0,) * (length - len(values)))
