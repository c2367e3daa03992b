"""The end of a rank: what its driver did after its last step, until the training's code was left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainprobe.causes.order import Judgement, judge
from trainprobe.causes.policy import stall_limit_ns
from trainprobe.causes.registry import SPECS
from trainprobe.causes.waiting import CPU
from trainprobe.derive.python.stacks import runs_program
from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.ledger import Item
from trainprobe.derive.steps.untrained_batches import model_ran
from trainprobe.model.cause import Cause, Phase, State
from trainprobe.model.cells import COMPUTING, Region, ThreadState
from trainprobe.model.event import MarkRow
from trainprobe.model.message import template
from trainprobe.pipeline.rank import steps
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.rank.window import window_of
from trainprobe.pipeline.stalls import StallEntry

CONSEQUENCE = template(
    "ending.consequence", "then the training ended {workers} of its workers by signal {signal}: a consequence"
)
_COMPUTES = COMPUTING.union(CPU)


def end(rank: RankState, at_ns: int) -> None:
    """The driver's process is gone (or we leave it)."""
    if rank.end_ns is not None:
        return
    exit_row = rank.lives.exit_row
    at_ns = exit_row.at_ns if exit_row is not None else at_ns
    for boundary in rank.progress.clock.flush():
        steps.end_step(rank, boundary)
    before = rank.progress.boundary
    row = _last_row(rank, before, at_ns)
    left, known = _states(rank), before.at_ns if before is not None else 0
    if before is not None and row is not None:
        left_ns = _judge(rank, before, row)
        if left_ns == row.at_ns:
            left, known = _states(rank), left_ns
        _close(rank, row.at_ns, at_ns)
    else:
        items, left_ns = _close(rank, known, at_ns), None
        if before is not None and rank.progress.judged:
            left_ns = _enter(rank, rank.stalls.open, before, at_ns)
            if left_ns is None or not (rank.left_ns() or rank.lives.signalled):
                left_ns = _evaluated_ns(rank, items, before, at_ns, left_ns)
    if rank.stalls.entries:
        _name_consequence(rank, rank.stalls.entries[-1])
    rank.end_ns = at_ns
    rank.surroundings.company.go_on(rank.seen.pid, at_ns)
    rank.ordinary.growth.trend.end()
    rank.phases.live = rank.stalls.open = None
    finished = rank.seen.marks and rank.lives.exit_event is not None and not (rank.lives.failed or rank.lives.signalled)
    if not rank.progress.judged and not rank.stepped and finished:  # no first step comes any more
        rank.train_by_rhythm()
    if not rank.progress.judged:
        rank.end_startup(at_ns)
    elif before is not None and left_ns is not None:
        since = {state: ns - left.get(state, 0) for state, ns in _states(rank).items()}
        rank.phases.add(Phase.SHUTDOWN, left_ns, at_ns, states=since if left_ns == known else {})
    rank.progress.freeze()


def _states(rank: RankState) -> dict[State, float]:
    """ns by state until the end of the interval that was closed last."""
    rank.ledger.settle()
    return dict(rank.ledger.states)


def _close(rank: RankState, since_ns: int, at_ns: int) -> Mapping[Item, int]:
    """Take what the kernel or a sample counted last, since the last interval's end, into the ledger."""
    ledger, sample = rank.ledger, rank.open.sample
    latest = ledger.latest
    cells = sample.cells if sample is not None and rank.lives.exit_row is None else ()
    if latest is not None and sum(latest.cells) > sum(cells):
        cells = latest.cells
    uses = ledger.take_files(latest) if latest is not None and ledger.rows else ()
    ended_ns = _ended_ns(rank, since_ns, at_ns)
    return rank.close_interval(cells, ledger.pool, uses, ended_ns=ended_ns).items() if cells else {}


def _ended_ns(rank: RankState, since_ns: int, at_ns: int) -> int:
    """From the begin of an interval after the last step until the last worker that ended in it; 0: none did."""
    ends = (at for at in rank.lives.workers.ends if since_ns <= at <= at_ns)
    return max(ends, default=since_ns) - since_ns if rank.progress.boundary is not None else 0


def _last_row(rank: RankState, before: MarkRow | None, at_ns: int) -> MarkRow | None:
    """The row at which the training's code was left, where it tells all that came after the last step."""
    row, open_stall = rank.lives.finalize_row, rank.stalls.open
    if before is None or row is None or row.at_ns != rank.left_ns() or not rank.progress.baseline.stands:
        return None
    computes = open_stall is not None and SPECS[open_stall.cause].computes
    if open_stall is not None and not computes and at_ns - row.at_ns >= rank.policy.open_end_ns:
        return None  # the interpreter hung
    return None if computes and rank.lives.failed else row


def _judge(rank: RankState, before: MarkRow, row: MarkRow) -> int:
    """Judge what the driver did since its last step as a late step. When the shutdown began. What it computed before it
    failed is left out: it unwound its stack and printed a traceback."""
    files, ended_ns = rank.ledger.take_files(row), _ended_ns(rank, before.at_ns, row.at_ns)
    made_of = rank.close_interval(row.cells, row.pool, files, ended_ns=ended_ns)
    ns = row.at_ns - before.at_ns
    if ns <= stall_limit_ns(rank.policy, rank.progress.baseline.ns):
        return _evaluated_ns(rank, made_of.items(), before, row.at_ns)
    step = Ordinary(ns, made_of, row.fetches - before.fetches, row.backwards - before.backwards, (ns,))
    part = steps.measured(rank, step, 1, before, row)
    if rank.open.pool:  # rows do not count the wait that a worker is in
        part = replace(part, pool=[max(both) for both in zip(part.pool, rank.open.pool)])
    if rank.lives.failed:
        part = replace(part, excess={item: ns for item, ns in part.excess.items() if item[2] not in _COMPUTES})
    judgement = judge(window_of(rank, part))
    if _only_saves(rank, judgement, before.at_ns):
        return _evaluated_ns(rank, made_of.items(), before, row.at_ns)
    begin_ns = before.at_ns
    for cause, spent in judgement.phases.items():
        rank.phases.add(Phase(cause.value), begin_ns, int(begin_ns + spent), rank.progress.clock.count)
        begin_ns = int(begin_ns + spent)
    main = judgement.main
    least_ns = _least_ns(rank, main.cause if main is not None else None, before.at_ns)
    published = rank.stalls.open is not None  # counters never fall
    if main is None or not (published or judgement.stall_ns >= least_ns):
        return begin_ns if judgement.phases else _evaluated_ns(rank, made_of.items(), before, row.at_ns)
    steps.note_last_saves(rank, judgement, before.at_ns, row.at_ns)
    steps.enter(rank, judgement, step, row.at_ns, late=True, index=rank.progress.clock.count)
    return row.at_ns


def _only_saves(rank: RankState, judgement: Judgement, since_ns: int) -> bool:
    """Whether a save came after the last step, and beside it only what is too short for a stall of its own and was not
    published: a training that has ended pauses, or clears up."""
    published = rank.stalls.open.shares if rank.stalls.open is not None else {}
    others = {cause: ns for cause, ns in judgement.shares.items() if cause != Cause.CHECKPOINT}
    return len(judgement.shares) > len(others) > 0 and all(
        SPECS[cause].thread_state_only and cause not in published and ns < _least_ns(rank, cause, since_ns)
        for cause, ns in others.items()
    )


def _least_ns(rank: RankState, cause: Cause | None, since_ns: int) -> int:
    """The least stall after the last step. A loader that ends with the training waits for its workers."""
    policy = rank.policy
    if cause == Cause.CHECKPOINT:
        return policy.stall_minimum_ns
    computes = cause is not None and SPECS[cause].computes
    return policy.open_cpu_ns if computes or not rank.lives.workers.gone_since(since_ns) else policy.open_end_ns


def _enter(rank: RankState, entry: StallEntry | None, before: MarkRow, at_ns: int) -> int | None:
    """Enter the stall that is open: as long as it is known to have lasted. When the shutdown began; None where there is
    no stall."""
    left_ns = rank.left_ns()
    if entry is None:
        return None
    published_ns = min(at_ns, int(entry.start_ns + entry.ns))
    if left_ns is not None:
        computed = rank.lives.failed and SPECS[entry.cause].computes
        end_ns = published_ns if computed else min(at_ns, max(left_ns, published_ns))
    elif rank.lives.signalled or _runs(rank):
        end_ns = at_ns
    else:
        entry.shares = {cause: ns for cause, ns in entry.shares.items() if not _may_be_teardown(cause)}
        entry.ns = sum(entry.shares.values())
        if entry.cause not in entry.shares or entry.ns < _least_ns(rank, entry.cause, before.at_ns):
            return None
        end_ns = min(at_ns, int(entry.start_ns + entry.ns))
    if (phase := rank.phases.live) is not None and entry.start_ns + phase[1] < end_ns:  # of the same step
        entry.start_ns += int(phase[1])
        rank.phases.add(phase[0], before.at_ns, int(before.at_ns + phase[1]), rank.progress.clock.count)
    rank.stalls.enter_unfinished(entry, end_ns)
    return end_ns


def _runs(rank: RankState) -> bool:
    """Whether the driver's last wait began in the training's code, as a stack shows: an interpreter that ends has left
    it."""
    sample = rank.open.sample
    if sample is None or sample.run != ThreadState.BLOCKED:
        return False
    stacks = (seen.frames for seen in rank.open.late.stacks if seen.frames and seen.at_ns >= sample.since_ns)
    return runs_program(next(stacks, ()))


def _may_be_teardown(cause: Cause) -> bool:
    """Whether an interpreter that ends may do the same, where nothing tells when it began to."""
    return SPECS[cause].computes or SPECS[cause].thread_state_only


def _name_consequence(rank: RankState, last: StallEntry) -> None:
    deaths = rank.lives.workers.deaths
    ended = [one for one in deaths if one.at_ns >= last.start_ns and one.signal and not one.abnormal]
    if ended:
        last.chain.append(CONSEQUENCE(workers=len(ended), signal=ended[0].signal))


def _evaluated_ns(
    rank: RankState, items: Mapping[Item, int], before: MarkRow, end_ns: int, begin_ns: int | None = None
) -> int:
    """When a last save, or a last evaluation, ended, where there is evidence for one: the shutdown begins."""
    latest, baseline = rank.ledger.latest or before, rank.progress.baseline
    extra = baseline.open_extra_fetches(latest.fetches - before.fetches, latest.backwards - before.backwards)
    start_ns = begin_ns or before.at_ns + steps.enter_saves(rank, items, before.at_ns, end_ns, extra)
    evaluated = sum(ns for (_, region, _), ns in items.items() if region in (Region.NO_GRAD, Region.FETCH))
    usual = baseline.items()
    beyond = {item: max(0.0, ns - usual.get(item, 0.0)) for item, ns in items.items()}
    if extra >= rank.policy.evaluation_fetches and evaluated > 0 and model_ran(extra, baseline.batch(), beyond):
        rank.phases.add(Phase.EVALUATION, start_ns, start_ns + evaluated, rank.progress.clock.count)
        start_ns += evaluated
    return start_ns
