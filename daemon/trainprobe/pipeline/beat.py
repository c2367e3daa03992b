"""Judges a rank without marks by its rhythm: at each look the second that has passed, beside the usual ones."""

from __future__ import annotations

from trainprobe.derive.ledger import flatten
from trainprobe.derive.rhythm import Second
from trainprobe.detect.base import Window, no_pool
from trainprobe.detect.registry import Judgement, judge
from trainprobe.model.cause import Cause, Phase
from trainprobe.model.event import ThreadSample
from trainprobe.pipeline.rank import RankFold

UNTOLD = frozenset({Cause.UNKNOWN, Cause.CPU_BOUND, Cause.CPU_CONTENTION})
"""Without steps a wait that nothing explains may be the program's own way of waiting for its work."""
JOIN = 2  # windows


def beat(fold: RankFold, sample: ThreadSample, at_ns: int) -> None:
    """Take in a look at the driver. Does nothing for a rank that has marks."""
    rhythm = fold.rhythm
    if not fold.by_rhythm:
        return
    if not rhythm.cells:
        rhythm.begin(at_ns, sample.cells)
        return
    ns = at_ns - rhythm.since_ns
    if ns < fold.policy.rhythm_window_ns:
        return
    second = _second(fold, sample, at_ns)
    rhythm.begin(at_ns, sample.cells)
    rhythm.windows += 1
    if not rhythm.stands:
        if rhythm.add(second.items, ns):
            fold.saves.steps_ns = at_ns if fold.saves.steps_ns is None else fold.saves.steps_ns
            fold.take_phase(Phase.ATTACHING if fold.attached else Phase.STARTUP, fold.start_ns, at_ns)
        return
    rhythm.judged_ns += ns
    edge, rhythm.edge = rhythm.edge, None
    if second.beyond_ns >= fold.policy.rhythm_least_ns:
        if edge is not None:  # the wait began in the second before
            _tell(fold, edge)
        rhythm.after_stall = _tell(fold, second)
    elif rhythm.after_stall and second.beyond_ns >= fold.policy.rhythm_edge_ns:
        _tell(fold, second)  # and ended in this one
        rhythm.after_stall = False
    else:
        rhythm.after_stall = False
        rhythm.edge = second if second.beyond_ns >= fold.policy.rhythm_edge_ns else None
        if rhythm.edge is None:
            rhythm.add(second.items, ns)
    if edge is not None and not rhythm.after_stall:
        rhythm.add(edge.items, edge.end_ns - edge.start_ns)


def _second(fold: RankFold, sample: ThreadSample, at_ns: int) -> Second:
    """The window that ends with this look."""
    rhythm = fold.rhythm
    files = [(use, of) for use, of, _ in fold.live_files(rhythm.since_ns)]
    delta = [max(0, a - b) for a, b in zip(sample.cells, rhythm.cells)]
    items = flatten(delta, files, fold.setting())
    return Second(rhythm.since_ns, at_ns, items, rhythm.excess(items, at_ns - rhythm.since_ns))


def _tell(fold: RankFold, second: Second) -> bool:
    """Enter a window as a stall, if a rule has evidence for it."""
    start, end = second.start_ns, second.end_ns
    stopper = fold.stopper if fold.stopper is not None and start <= fold.stopper.at_ns <= end else None
    window = Window(
        start, end, end - start - second.beyond_ns, second.excess, second.items, no_pool(), fold.setting(),
        fold.policy, saves=fold.saves.flying(start, end), driver_pid=fold.seen.pid, driver_tid=fold.tid,
        late=fold.late, stopper=stopper, devices=fold.devices, cpus=fold.devices.cpus,
    )  # fmt: skip
    judgement = _with_evidence(judge(window))
    if not judgement.shares:
        return False
    fold.book.close(judgement, int(end - judgement.stall_ns), end, fold.rhythm.windows, [], JOIN)
    return True


def _with_evidence(judgement: Judgement) -> Judgement:
    """Only what a rule has evidence for."""
    shares = {cause: ns for cause, ns in judgement.shares.items() if cause not in UNTOLD}
    main = max((c for c in judgement.lost if c.cause in shares), key=lambda c: c.ns, default=None)
    return Judgement(shares if main is not None else {}, {}, main)
