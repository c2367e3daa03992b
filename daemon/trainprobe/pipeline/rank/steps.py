"""Finished steps: each is one to learn from, an ordinary one, or late and judged by the rules."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.causes.base import Claim
from trainprobe.causes.order import Judgement, judge
from trainprobe.causes.phases import evaluation
from trainprobe.causes.policy import stall_limit_ns
from trainprobe.causes.registry import SPECS
from trainprobe.causes.stalls import checkpoint
from trainprobe.causes.waiting import NEW_EPOCH
from trainprobe.derive.files.save_spans import (
    ConsecutiveSteps,
    StepsThatSave,
    note_serialising,
    spans,
    spans_of,
)
from trainprobe.derive.python import evaluators
from trainprobe.derive.python.stacks import in_backward
from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.clock import Mode
from trainprobe.derive.steps.ledger import Item, flatten
from trainprobe.derive.steps.renewed_workers import renewed_in
from trainprobe.derive.steps.startup import BeforeFirstStep, restores, startup
from trainprobe.model.cause import Cause, Phase, State
from trainprobe.model.cells import COMPUTING, QUEUED, Leaf, Region, cell
from trainprobe.model.event import MarkRow
from trainprobe.pipeline.rank import changed_work, watch
from trainprobe.pipeline.rank.ledger import taken_ns
from trainprobe.pipeline.rank.open_step import QUIET
from trainprobe.pipeline.rank.stall_stacks import stacks_of
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.rank.window import Measured, window_of
from trainprobe.pipeline.stalls import StallEntry

_MEMORY = (Leaf.SWAP, Leaf.RECLAIM, Leaf.FAULT)  # who frees its memory reads swapped pages
_TEARDOWN = tuple(cell(region, leaf) for region in Region for leaf in (*COMPUTING, *QUEUED, *_MEMORY))

_USUAL = 0.1
"""Of a step's excess: a backward that has no more of it was as usual."""
EVALUATORS = SERVERS = 64
"""Functions that evaluate, and peers, which are kept."""


def end_step(rank: RankState, row: MarkRow) -> None:
    progress, ledger = rank.progress, rank.ledger
    before = progress.boundary
    fetched = row.fetches - (before.fetches if before else 0)
    if fetched:
        ledger.inline = 2 * (row.inline_fetches - (before.inline_fetches if before else 0)) > fetched
    ledger.fetched = fetched > 0 and not ledger.inline
    rank.phases.live = None
    rank.surroundings.company.go_on(rank.seen.pid, row.at_ns)
    interval = rank.close_interval(row.cells, row.pool, ledger.take_files(row))
    progress.boundary = row
    if before is None:
        progress.first_boundary_ns = row.at_ns
        _account_for_start(rank, row)
    else:
        ns = row.at_ns - before.at_ns
        later = row.lengths[1:]  # what is before them is the first one's, and that of a row that was lost
        fetches, backwards = row.fetches - before.fetches, row.backwards - before.backwards
        _take_in(rank, Ordinary(ns, interval, fetches, backwards, (ns - sum(later), *later)), before, row)
    rank.open.begin()


def _account_for_start(rank: RankState, row: MarkRow) -> None:
    """Where the time to the first step went, unless steps came before the first that is marked."""
    start, workers, begin_ns = rank.lives.start, rank.lives.workers, rank.start_ns
    if start is None or rank.attached or rank.resumed or rank.progress.clock.before:
        return
    fetches = sum(row.cells[cell(Region.FETCH, leaf)] for leaf in Leaf)
    forks = [at for at in workers.starts if at < row.at_ns]
    before = BeforeFirstStep(begin_ns, row.at_ns, workers.compiling(begin_ns, row.at_ns), forks, fetches)
    rank.lives.startup = startup(start, before, rank.policy.files)
    rank.lives.restores = restores(start, before, rank.policy.files)
    rank.lives.start = None


def _take_in(rank: RankState, step: Ordinary, before: MarkRow, row: MarkRow) -> None:
    progress, ordinary = rank.progress, rank.ordinary
    progress.lengths.add(step.lengths)
    rank.surroundings.swapping.feed_step(_swap_faults(before, row) or 0, row.at_ns)
    rank.stalls.box.steps(before.at_ns, step.lengths)
    progress.buffer.add(before.at_ns, step.lengths, step.made_of)
    if told := rank.files.saves.steps.enter(before.at_ns, progress.clock.count - step.steps, step.lengths):
        rank.files.saves.changed(told)
    steps = ConsecutiveSteps(before.at_ns, progress.clock.count - step.steps, step.lengths)
    saved = spans_of(steps, rank.files.saved_in(rank.tid, before.at_ns, row.at_ns))
    rank.files.saving_steps.add_saves(saved, steps, judged=progress.baseline.stands)
    if rank.ledger.ranks:
        ordinary.collectives.add(progress.clock.count, step)
    count = ordinary.count
    if not progress.baseline.stands:
        if progress.learn_step(step, row.at_ns, rank.policy):
            rank.end_startup(row.at_ns)
    else:
        if step.steps > 1 and max(step.lengths) <= stall_limit_ns(rank.policy, progress.baseline.ns):
            _pass(rank, step, step.steps, before, row)
        else:
            _judge(rank, step, before, row)
        passed = ordinary.count - count
        if passed and (beside := rank.files.saved_beside(rank.seen.pid, rank.tid, before.at_ns, row.at_ns)):
            rank.files.beside_saves.add_steps(beside, passed, step.made_of.items())
        if saved and passed:
            single = step.backwards <= step.steps  # of several in a step nobody knows which come before the save
            of = StepsThatSave(step.made_of.items(), step.fetches, single)
            rank.files.saving_steps.add_ordinary(saved, steps, of)
        if ordinary.counting.active:
            ordinary.counting.step(before.at_ns, row.at_ns, passed)
        rank.stalls.resumed_id = ""
    workers = rank.lives.workers
    started = workers.starts_in(before.at_ns, row.at_ns)
    progress.count_starts(started, first=started == workers.started, steps=step.steps)
    renewed = renewed_in(workers, before.at_ns, row.at_ns)
    rank.lives.renewed.add_step(step, ordinary.count - count, renewed, rank.loader_workers)


def _judge(rank: RankState, step: Ordinary, before: MarkRow, row: MarkRow) -> None:
    progress, policy = rank.progress, rank.policy
    usual = progress.baseline.backwards()
    # A skipped optimiser step merges two groups.
    units = max(1, round(step.backwards / usual)) if usual else step.steps
    base = progress.baseline.ns * units
    late = step.ns > stall_limit_ns(policy, base)
    after_throttled = progress.throttled_step == progress.clock.count - 2
    if not late and (step.ns < base + policy.edge_ns or not after_throttled):
        _pass(rank, step, units, before, row)
        return
    part = measured(rank, step, units, before, row)
    _drop_stacks_of_usual_backward(rank, part)
    window = window_of(rank, part)
    judgement = judge(window)
    if progress.clock.mode == Mode.RHYTHM and not rank.open.late.stood_still:
        judgement = _without_own_threads(judgement)
    _note_serialising(rank, judgement, before.at_ns, row.at_ns)
    if not late and not _ends_throttled(rank, judgement):
        _pass(rank, step, units, before, row)
        return
    progress.stability.late(row.at_ns)
    for claim in judgement.of_phases:
        if claim.cause is None:
            continue
        if evaluates := claim.cause is Cause.EVALUATION:
            rank.phases.evaluations.append(evaluation.made_of(claim.taken))
        sure = not evaluates or evaluation.is_sure(claim, window)
        begin_ns, steps_before = int(row.at_ns - claim.ns), progress.clock.count - 1
        rank.surroundings.company.hold_up(rank.seen.pid, begin_ns, row.at_ns)
        rank.phases.add(Phase(claim.cause.value), begin_ns, row.at_ns, steps_before, sure=sure)
    if Cause.EVALUATION in judgement.phases:
        _note_evaluators(rank)
    elif ns := evaluation.quiet_work_ns(window):
        rank.phases.quiet_ns.append(ns)
    if late and judgement.stall_ns < _least_ns(rank, judgement.main):
        rank.stalls.open = None
        if not judgement.phases:
            changed_work.add_late(rank, step, window, judgement)
            _pass(rank, step, units, before, row, late=True)
            return
    else:
        enter(rank, judgement, step, row.at_ns, late=late, index=progress.clock.count - 1)
    rank.ordinary.late_ns += base
    changed_work.add_late(rank, step, window, judgement)


def _drop_stacks_of_usual_backward(rank: RankState, part: Measured) -> None:
    """They were taken when what was late was over: they explain none of it. (What DDP waits for is behind the engine's
    own marks.)"""
    late = rank.open.late
    if late.stacks and any(region == Region.BACKWARD for _, region, _ in part.items):
        excess = sum(ns for (_, region, _), ns in part.excess.items() if region == Region.BACKWARD)
        if excess < _USUAL * sum(part.excess.values()):
            late.stacks = [one for one in late.stacks if not (one.running and in_backward(one.frames))]


def _note_evaluators(rank: RankState) -> None:
    """Keep the functions that evaluate: between their forward passes a stack shows no model."""
    callers = {evaluators.caller_of_model(seen.frames) for seen in rank.open.late.stacks} - {""}
    loop = rank.ordinary.lines.functions
    if len(rank.phases.evaluators) < EVALUATORS:
        rank.phases.evaluators |= {one for one in callers if one not in loop}


def _without_own_threads(judgement: Judgement) -> Judgement:
    """Where JAX or TensorFlow run the model, a wait that nothing explains is for their threads, if one of them runs."""
    shares = dict(judgement.shares)
    shares.pop(Cause.UNKNOWN, None)
    lost = [claim for claim in judgement.lost if claim.cause in shares]
    return Judgement(shares, judgement.phases, max(lost, key=lambda claim: claim.ns, default=None), lost)


def _note_serialising(rank: RankState, judgement: Judgement, start_ns: int, end_ns: int) -> None:
    """Enter what the rule found to be serialising into the records of the step's saves."""
    for claim in judgement.lost:
        if claim.cause == Cause.CHECKPOINT:
            spent = sum(ns for (state, _, _), ns in claim.taken.items() if state == State.COMPUTE)
            saved = rank.files.saved_in(rank.tid, start_ns, end_ns)
            note_serialising(saved, start_ns, end_ns, int(spent))
            rank.files.saves.changed(saved)
            if not judgement.phases and (size := sum(save.bytes for save in saved)):
                rank.files.saving_steps.aheads.append(sum(save.ahead_ns for save in saved) / size)


def measured(rank: RankState, step: Ordinary, units: int, before: MarkRow, row: MarkRow) -> Measured:
    """A finished step that ``units`` ordinary ones would have taken the place of."""
    baseline, made_of = rank.progress.baseline, step.made_of
    faults = _swap_faults(before, row)
    if faults is None and rank.surroundings.swapping.on_host(row.at_ns):
        faults = max(0, row.major_faults - before.major_faults)
    items, base = made_of.items(), baseline.ns * units
    return Measured(
        before.at_ns,
        row.at_ns,
        base,
        rank.progress.excess(items, step.ns, base),
        items,
        [max(0.0, ns - units * usual) for ns, usual in zip(made_of.pool(), baseline.pool())],
        made_of.files,
        baseline.extra_fetches(step.fetches, step.backwards, units),
        row.gpu_memory.since(before.gpu_memory),
        faults,
        max(0, row.collected_ns - before.collected_ns),
        taken_ns(before, row),
    )


def _swap_faults(before: MarkRow, row: MarkRow) -> int | None:
    """Major faults of a step on no file; None where the kernel does not tell them apart."""
    if row.swap_faults is None or before.swap_faults is None:
        return None
    return max(0, row.swap_faults - before.swap_faults)


def enter(rank: RankState, judgement: Judgement, step: Ordinary, end_ns: int, *, late: bool, index: int) -> None:
    """Enter a step into the book of stalls; ``index``: its number."""
    stall_ns, main = judgement.stall_ns, judgement.main
    begin_ns = int(end_ns - stall_ns)
    if judgement.phases and main is not None and main.cause == Cause.CHECKPOINT:  # an evaluation may come after it
        saved = rank.files.saved_in(rank.tid, end_ns - step.ns, end_ns)
        begin_ns = min([begin_ns, *(save.begin_ns for save in saved)])
    elif judgement.phases and _came_first(rank, step, end_ns):
        begin_ns = end_ns - step.ns
        end_ns = int(begin_ns + stall_ns)
    entry = rank.stalls.close(judgement, begin_ns, end_ns, index, stacks_of(rank, judgement), _reach(rank, judgement))
    if judgement.has_own_reason:
        rank.surroundings.company.hold_up(rank.seen.pid, begin_ns, end_ns)
    if late and entry is not None and entry.cause == Cause.CPU_THROTTLED:
        rank.progress.throttled_step = index
    if entry is not None and stall_ns >= rank.policy.freeze_ns and entry.steps == 1:
        rank.stalls.freeze(entry)
    if Cause.NETWORK in judgement.shares and rank.open.late.peer and len(rank.open.servers) < SERVERS:
        rank.open.servers.add(rank.open.late.peer)
    if main is not None and _is_waited(main):
        rank.ordinary.add_waited(step)


def _came_first(rank: RankState, step: Ordinary, end_ns: int) -> bool:
    """Whether a step's evaluation, or its rollouts, came behind what it lost."""
    quiet = sum(step.made_of.cell(place) for place in QUIET)
    until = sum(rank.ledger.cells[place] for place in QUIET)  # at the step's end
    return rank.open.quiet_came_last(end_ns - step.ns, end_ns, until - quiet, until)


def enter_saves(rank: RankState, items: Mapping[Item, int], start_ns: int, end_ns: int, fetches: float) -> int:
    """Enter saves after the last step as a stall; its ns, 0 where there is none. ``fetches``: beyond an ordinary
    step's."""
    base, count = rank.progress.baseline.ns, rank.progress.clock.count
    saved = spans(rank.files.saved_in(rank.tid, start_ns, end_ns), start_ns, end_ns)
    if not saved or end_ns - start_ns <= base:
        return 0
    excess = rank.progress.excess(items, end_ns - start_ns, base)
    part = Measured(start_ns, end_ns, base, excess, items, (), extra_fetches=fetches)
    claim = checkpoint.claim(window_of(rank, part), excess)
    if claim is None or claim.ns < _least_ns(rank, claim):
        return 0
    judgement = Judgement({Cause.CHECKPOINT: claim.ns}, {}, claim, (claim,))
    note_last_saves(rank, judgement, start_ns, end_ns)
    begin, end = int(saved[-1].end_ns - claim.ns), saved[-1].end_ns
    rank.stalls.close(judgement, begin, end, count, stacks_of(rank, judgement), _reach(rank, judgement))
    return int(claim.ns)


def note_last_saves(rank: RankState, judgement: Judgement, start_ns: int, end_ns: int) -> None:
    """Count the saves after the last step, with what was serialised for them."""
    _note_serialising(rank, judgement, start_ns, end_ns)
    rank.files.saving_steps.count += len(spans(rank.files.saved_in(rank.tid, start_ns, end_ns), start_ns, end_ns))


def note_waited_workers(rank: RankState, now_ns: int) -> None:
    """Note whether workers work while an ordinary step waits for them, by this frame's samples."""
    limit = rank.limit_ns()
    if limit is None or now_ns >= limit:
        return
    works = rank.open.works_for_driver(now_ns, fetching=rank.ordinary.fetches > 0)
    if works is not None:
        rank.ordinary.in_waits.add_look(works=works)


def judge_open_step(rank: RankState, now_ns: int) -> None:
    """Open a stall, or bring the open one up to date, from the thread samples of this frame."""
    limit, progress, open_, stalls = rank.limit_ns(), rank.progress, rank.open, rank.stalls
    boundary, sample, at_ns = progress.boundary, open_.sample, open_.sample_ns
    if limit is None or now_ns < limit or boundary is None or sample is None or at_ns < limit:
        return
    if sample.major_faults is not None:
        rank.surroundings.swapping.feed_step(sample.major_faults - boundary.major_faults, at_ns)
    watch.observe(open_, open_.waited_for(rank.lives.workers), rank.surroundings.devices, rank.policy, boundary.at_ns)
    base, files = progress.baseline.ns, rank.live_files()
    delta = [max(0, a - b) for a, b in zip(sample.cells, rank.ledger.cells)]
    torn_down_ns = _leave_out_teardown(rank, delta)
    items = flatten(delta, [(use, of) for use, of, _ in files], rank.wait_context())
    excess = progress.excess(items, at_ns - boundary.at_ns - torn_down_ns, base)
    extra = progress.baseline.open_extra_fetches(
        max(0, sample.fetches - boundary.fetches), sample.backwards - boundary.backwards
    )
    pool = open_.worker_pool(boundary.at_ns)
    judgement = judge(window_of(rank, Measured(boundary.at_ns, at_ns, base, excess, items, pool, files, extra)))
    delay_ns = rank.policy.open_end_ns if rank.lives.workers.gone_since(boundary.at_ns) else rank.policy.open_cpu_ns
    if now_ns < limit + delay_ns:
        judgement = judgement.of([cause for cause in judgement.shares if not SPECS[cause].thread_state_only])
    main = judgement.main
    rank.phases.live = next(((Phase(c.value), ns) for c, ns in judgement.phases.items()), None)
    if judgement.has_own_reason:
        rank.surroundings.company.hold_up(rank.seen.pid, int(boundary.at_ns + base), None)
    else:
        rank.surroundings.company.go_on(rank.seen.pid, at_ns)
    if main is None or main.cause is None or judgement.stall_ns < _least_ns(rank, main):
        stalls.open = None
        return
    cause = max(judgement.shares, key=lambda c: judgement.shares[c])
    if SPECS[cause].computes and rank.left_ns() is not None:
        return
    entry = StallEntry.of(judgement, int(boundary.at_ns + base), None, progress.clock.count, stacks_of(rank, judgement))
    stalls.begin(entry, _reach(rank, judgement))


def _leave_out_teardown(rank: RankState, delta: list[int]) -> int:
    """Take out of the open step's cells what the driver computed since its interpreter began to finalize. Its sum."""
    row = rank.lives.finalize_row
    if row is None or row.at_ns != rank.left_ns():
        return 0
    out = 0
    for at in _TEARDOWN:
        more = delta[at] - max(0, row.cells[at] - rank.ledger.cells[at])
        if more > 0:
            delta[at] -= more
            out += more
    return out


def _ends_throttled(rank: RankState, judgement: Judgement) -> bool:
    """Whether a step that lost too little for a stall lost it to the quota that the step before it stalled by: it
    is raised, or enough again, in the midst of a step."""
    main = judgement.main
    return main is not None and main.cause == Cause.CPU_THROTTLED and main.ns >= rank.policy.edge_ns


def _least_ns(rank: RankState, main: Claim | None) -> float:
    """The least loss that makes a stall, in ns. A late step that worked for most of its excess may lose less than the
    stall minimum; a remainder without a cause has to reach it."""
    unknown = main is not None and main.cause == Cause.UNKNOWN
    return rank.policy.stall_minimum_ns * (1.0 if unknown else 0.5)


def _pass(rank: RankState, step: Ordinary, units: int, before: MarkRow, row: MarkRow, *, late: bool = False) -> None:
    """Take in a step that is not late, or lost too little to be a stall."""
    baseline, ordinary, stolen = rank.progress.baseline, rank.ordinary, rank.surroundings.devices.stolen
    if not late:
        rank.progress.changed.add_ordinary()
    ordinary.churn += row.gpu_memory.since(before.gpu_memory)
    ordinary.swap_faults += _swap_faults(before, row) or 0
    if units == step.steps:
        baseline.add(step)
        if (stolen or 0.0) < rank.policy.stolen_share:  # else its length is the hypervisor's doing
            ordinary.growth.add_step(step, baseline)
        ordinary.lengths.extend(ns / 1e9 for ns in step.lengths)
    ordinary.add_step(step, units, rank.loader_workers, saturated=rank.open.saturated)
    rank.stalls.open = None


def _reach(rank: RankState, judgement: Judgement) -> int:
    """Steps back to a stall that this one extends: farther where workers of a loader are late in turn."""
    main, edge = judgement.main, NEW_EPOCH.id
    if main is None or main.cause is None or not (SPECS[main.cause].makes_batches and rank.ordinary.fetches):
        return rank.policy.merge_steps
    in_turn = 0 if any(one.key == edge for one in main.evidence) else 2 * rank.lives.workers.count
    return max(rank.policy.merge_steps, min(in_turn, 16))


def _is_waited(main: Claim) -> bool:
    """Whether workers made batches meanwhile; in calls that nobody knows a cause of, too."""
    unknown = main.cause == Cause.UNKNOWN and any(state == State.DATA_WAIT for state, _, _ in main.taken)
    return unknown or (main.cause is not None and SPECS[main.cause].makes_batches)
