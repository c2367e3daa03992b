"""From one process of ours to the next: what a fold must be told to go on, and how it takes it up."""

from __future__ import annotations

from trainprobe.derive.baseline import LEAST, Ordinary
from trainprobe.derive.steps import Mode
from trainprobe.derive.stretch import Stretch, joined
from trainprobe.model.cells import CELLS, LEAVES, Region, RowKind
from trainprobe.model.event import MarkRow
from trainprobe.model.kept import KeptRank, RankKept
from trainprobe.pipeline.rank import RankFold


def kept_of(fold: RankFold) -> KeptRank | None:
    """What another process would need; None while there is no baseline, or nothing to go on with."""
    if fold.end_ns is not None or not fold.baseline.stands or fold.clock.mode in (Mode.LEARNING, Mode.GPU):
        return None
    cells, pool = _mean(fold)
    stalled = fold.book.opened is not None and fold.boundary is not None
    return KeptRank(
        pid=fold.seen.pid,
        started_ns=fold.seen.started_ns,
        tid=fold.tid,
        clock=fold.clock.kept(),
        ordinary_ns=round(fold.baseline.ns),
        ordinary_cells=cells,
        ordinary_pool=pool,
        ordinary_fetches=round(fold.baseline.fetches()),
        ordinary_backwards=round(fold.baseline.backwards()),
        stalled_from_ns=fold.boundary.at_ns if stalled and fold.boundary is not None else 0,
    )


def _mean(fold: RankFold) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Mean cells and pool of an ordinary step, ns."""
    steps = fold.baseline.steps
    cells, pool = [0] * CELLS, [0] * LEAVES
    for stretch in joined(step.made_of for step in fold.baseline.told):
        cells = [total + b - a for total, a, b in zip(cells, stretch.cells_before, stretch.cells_after)]
        pool = [total + b - a for total, a, b in zip(pool, stretch.pool_before, stretch.pool_after)]
    return tuple(ns // steps for ns in cells), tuple(ns // steps for ns in pool)


def resume(fold: RankFold, found: RankKept, at_ns: int, stall_id: str) -> None:
    """Go on with a rank: its clock and baseline, and where it is in the same step yet, that step and its stall."""
    kept = found.kept
    fold.resumed = True
    if kept is None:
        fold.start_ns = at_ns
        return
    fold.attached = False  # there is a baseline: no phase of attaching
    fold.clock.go_on(kept.clock)
    cells = _fitting(kept.ordinary_cells, CELLS)
    pool = _fitting(kept.ordinary_pool, LEAVES)
    nothing = ((0,) * CELLS, (0,) * LEAVES)
    made_of = Stretch(nothing[0], cells, nothing[1], pool, (), fold.setting())
    for _ in range(LEAST):
        fold.baseline.add(
            Ordinary(kept.ordinary_ns, made_of, kept.ordinary_fetches, kept.ordinary_backwards, (kept.ordinary_ns,))
        )
    fold.evenness.begin(at_ns)
    fold.start_ns = at_ns
    if not found.same_step or kept.tid != fold.seen.pid:
        return
    fold.stepped = True
    fold.start_ns = fold.first_boundary_ns = kept.stalled_from_ns
    fold.boundary = MarkRow(
        RowKind.OPTIMIZER, kept.stalled_from_ns, kept.pid, kept.tid, kept.clock.name, Region.STEP,
        kept.stalled_from_ns, 0, 0, 0, 0, 0, *nothing, (),
    )  # fmt: skip
    fold.book.resumed_id = stall_id


def _fitting(values: tuple[int, ...], length: int) -> tuple[int, ...]:
    """As many values as this version has cells."""
    return (*values[:length], *(0,) * (length - len(values)))
