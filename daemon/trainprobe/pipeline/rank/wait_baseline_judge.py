"""Judges a rank without marks: with each sample, the second that has passed against the usual ones."""

from __future__ import annotations

from trainprobe.causes.base import Claim
from trainprobe.causes.order import Judgement, judge
from trainprobe.causes.registry import SPECS
from trainprobe.derive.files.save_spans import blocked_ns, written_again
from trainprobe.derive.steps.ledger import flatten
from trainprobe.derive.steps.wait_baseline import WaitWindow
from trainprobe.model.cause import Cause, State
from trainprobe.model.event import ThreadSample
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.rank.window import NO_MARKS, Measured, window_of_second

JOIN = 2  # windows
OFTEN = 4  # saves
OTHER_LOOPS, AGAIN = 2, 3
"""Stacks with another library's loop, and times that one checkpoint was written, that show a training without marks."""


def judge_second(rank: RankState, sample: ThreadSample, at_ns: int) -> None:
    """Take in a sample of the driver. Does nothing for a rank that has marks. Where some may still come its seconds are
    judged, too, but count only once it is known that it trains without."""
    rhythm = rank.progress.wait_baseline
    if rank.stepped or rank.end_ns is not None:
        return
    if not rhythm.cells:
        rhythm.begin(at_ns, sample.cells)
        return
    ns = at_ns - rhythm.since_ns
    if ns < rank.policy.rhythm_window_ns:
        return
    second = _second(rank, sample, at_ns)
    rhythm.begin(at_ns, sample.cells)
    rhythm.windows += 1
    if rhythm.learnt_ns:
        _compare(rank, second)
    else:
        rhythm.add(second.items, ns)
        if rank.by_rhythm or at_ns - rank.start_ns >= rank.policy.rhythm_after_ns:
            rhythm.learn(at_ns)
    if not rhythm.stands and (rank.by_rhythm or _trains_otherwise(rank)):
        rank.train_by_rhythm()


def _trains_otherwise(rank: RankState) -> bool:
    """Whether a rank that could have marks trains without: it writes the same checkpoint again and again, or its stacks
    show the loop of a library that needs no PyTorch. A long start-up does neither: it reads, computes, and writes what
    it makes once."""
    since_ns = rank.progress.wait_baseline.learnt_ns
    if not since_ns:
        return False
    return rank.open.framework.others >= OTHER_LOOPS or written_again(rank.files.saves, since_ns) >= AGAIN


def _saves_for_once(rank: RankState, second: WaitWindow) -> bool:
    """Whether a save makes the second a stall. Where they come often they are a bottleneck, by their records."""
    saved = rank.files.saves.closed_checkpoints()
    often = len(saved) >= OFTEN and blocked_ns(rank.files.saves) >= (
        rank.policy.checkpoint_bottleneck * rank.progress.wait_baseline.judged_ns
    )
    return second.saving_ns >= rank.policy.stall_minimum_ns and not often


def _compare(rank: RankState, second: WaitWindow) -> None:
    rhythm, ns = rank.progress.wait_baseline, second.end_ns - second.start_ns
    rhythm.judged_ns += ns
    edge, rhythm.edge = rhythm.edge, None
    if second.beyond_ns >= rank.policy.rhythm_least_ns or _saves_for_once(rank, second):
        if edge is not None:  # the wait began in the second before
            _enter_stall(rank, edge)
        rhythm.after_stall = _enter_stall(rank, second)
    elif rhythm.after_stall and second.beyond_ns >= rank.policy.rhythm_edge_ns:
        _enter_stall(rank, second)  # and ended in this one
        rhythm.after_stall = False
    else:
        rhythm.after_stall = False
        rhythm.edge = second if second.beyond_ns >= rank.policy.rhythm_edge_ns else None
        if rhythm.edge is None:
            rhythm.add(second.items, ns)
    if edge is not None and not rhythm.after_stall:
        rhythm.add(edge.items, edge.end_ns - edge.start_ns)


def _second(rank: RankState, sample: ThreadSample, at_ns: int) -> WaitWindow:
    rhythm = rank.progress.wait_baseline
    files = [(use, of) for use, of, _ in rank.live_files(rhythm.since_ns)]
    delta = [max(0, a - b) for a, b in zip(sample.cells, rhythm.cells)]
    items = flatten(delta, files, rank.wait_context())
    return WaitWindow(rhythm.since_ns, at_ns, items, rhythm.excess(items, at_ns - rhythm.since_ns))


def _enter_stall(rank: RankState, second: WaitWindow) -> bool:
    """Enter a window as a stall, if a rule has evidence for it."""
    start, end = second.start_ns, second.end_ns
    part = Measured(start, end, end - start - second.beyond_ns, second.excess, second.items, NO_MARKS)
    judgement = _with_evidence(judge(window_of_second(rank, part)))
    if not judgement.shares:
        return False
    rank.stalls.close(judgement, int(end - judgement.stall_ns), end, rank.progress.wait_baseline.windows, [], JOIN)
    return True


def _with_evidence(judgement: Judgement) -> Judgement:
    """Only what a rule has evidence for: without steps, a wait that nothing explains may be the program's own way of
    waiting for its work. A sleep is what it looks like."""
    known = {claim.cause for claim in judgement.lost if claim.cause is not None and _is_known(claim, claim.cause)}
    shares = {cause: ns for cause, ns in judgement.shares.items() if cause in known}
    main = max((c for c in judgement.lost if c.cause in shares), key=lambda c: c.ns, default=None)
    return Judgement(shares if main is not None else {}, {}, main)


def _is_known(claim: Claim, cause: Cause) -> bool:
    slept = sum(ns for (state, _, _), ns in claim.taken.items() if state == State.SLEEP)
    return not SPECS[cause].thread_state_only or slept > 0.5 * claim.ns
