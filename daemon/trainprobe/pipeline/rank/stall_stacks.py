"""Which of a late step's stacks explain its stall."""

from __future__ import annotations

from trainprobe.causes.order import Judgement
from trainprobe.causes.registry import SPECS, explained_by_worker
from trainprobe.derive.python import evaluators
from trainprobe.derive.python.serializers import saved_by, shown_by
from trainprobe.model.cause import Cause
from trainprobe.model.event import StackSeen
from trainprobe.pipeline.rank.state import RankState


def stacks_of(rank: RankState, judgement: Judgement) -> list[tuple[str, ...]]:
    """The stacks that explain a stall: the worker's where one was waited for, else the driver's."""
    late, main = rank.open.late, judgement.main
    if main is not None and main.cause is not None and explained_by_worker(main.cause, main.summary):
        of_worker = late.stack_of_worker()
        if of_worker:
            return [of_worker]
    taken = late.stacks
    if main is not None and main.cause == Cause.CHECKPOINT:
        # when it was late, the save may have been over
        taken = [one for one in taken if _saves_at(rank, one.at_ns) or saved_by(one.frames)]
    elif main is not None and main.cause is not None and SPECS[main.cause].in_line:
        taken = [one for one in taken if not _of_save(rank, one, Cause.CHECKPOINT in judgement.shares)]
        if Cause.EVALUATION in judgement.phases:
            taken = [one for one in taken if not evaluators.in_batch(one.frames)]
        if SPECS[main.cause].computes and any(not SPECS[cause].computes for cause in judgement.shares):
            taken = [one for one in taken if one.running]  # else it shows the other cause's wait
        elif main.cause is Cause.NETWORK and _computes_too(judgement):
            taken = [one for one in taken if not one.running]
    if main is not None and main.cause in (Cause.UNKNOWN, Cause.LOCK_WAIT):
        taken = [one for one in taken if not one.running]  # by then the wait was over
    frames = [one.frames for one in taken]
    return evaluators.mostly_beside_model(frames) if main is not None and main.cause is Cause.CPU_BOUND else frames


def _computes_too(judgement: Judgement) -> bool:
    """Whether a step has a phase beside what it lost, or another cause that computes."""
    return bool(judgement.phases) or any(SPECS[cause].computes for cause in judgement.shares)


def _of_save(rank: RankState, stack: StackSeen, saved: bool) -> bool:
    """Whether two of three say so: a save of the driver's goes on meanwhile (one with helpers goes on beside the steps
    that follow), the stall has a save's part (``saved``), and the stack shows one."""
    return saved + _saves_at(rank, stack.at_ns) + shown_by(stack.frames) >= 2


def _saves_at(rank: RankState, at_ns: int) -> bool:
    return any(save.tid == rank.tid for save in rank.files.saves.being_written(at_ns, at_ns + 1))
