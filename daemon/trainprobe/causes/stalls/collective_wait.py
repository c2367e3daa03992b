"""The driver waits for other ranks of its run."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, at_most, claimed, seconds, take_items
from trainprobe.causes.heavier_batch import work_of_threads
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("collective_wait.summary", "waiting for other ranks for {seconds:seconds}")
FOR_RANK = template("collective_wait.for_rank", "{summary}, most of it for rank {rank}")
LAST_RANK = template("collective_wait.last_rank", "of it mostly for rank {rank}")
WAITS = template("collective_wait.waits", "training thread waits for other ranks")
WAITED = template("collective_wait.waited", "training thread waited for other ranks")
MEANWHILE = template("collective_wait.meanwhile", "rank {rank} meanwhile lost to {cause}")
_COVER = 0.8
"""Of a wait for the GPU: it is for a rank that was late for so much of it."""


def claim(window: Window, left: Items) -> Claim | None:
    own = work_of_threads(window, left)
    taken = {item: ns for item, ns in take_items(left, states=[State.COLLECTIVE]).items() if item not in own}
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    rank, summary = window.late_rank, SUMMARY(seconds=told)
    evidence = [Evidence.of(WAITED(), told, "s", window.driver_pid)]
    if rank is not None:
        evidence.append(Evidence.of(LAST_RANK(rank=rank), told, "s", window.driver_pid))
    return Claim(
        Cause.COLLECTIVE_WAIT,
        taken,
        FOR_RANK(summary=summary, rank=rank) if rank is not None else summary,
        [WAITS()],
        evidence,
    )


def claim_gpu(window: Window, left: Items) -> Claim | None:
    """State `gpu_wait` while another rank is late: its GPU waits in NCCL's kernel, and the training for its GPU."""
    waits = take_items(left, states=[State.GPU_WAIT])
    late = window.others_late_ns if window.context.ranks else 0
    if not waits or late < _COVER * sum(waits.values()):
        return None
    return claimed(window, Cause.COLLECTIVE_WAIT, at_most(waits, late), SUMMARY, [WAITS()], WAITED)


FASTER_RANK = template(
    "collective_wait.advice.faster_rank",
    "make the late rank faster: the others wait for it, whatever they do themselves",
)


FIND_RANK = template(
    "collective_wait.advice.find_rank",
    "find the rank that is late, here or on another host (`trainprobe report` there): the others wait for it, whatever "
    "they do themselves",
)


SHARE_EVALUATION = template(
    "collective_wait.advice.share_evaluation",
    "let each rank evaluate a part of the data, or evaluate more rarely or on less data: the others wait while one "
    "rank evaluates",
)


def _advice(f: AdviceInput) -> list[Message]:
    """By what the waits were for, of those that were followed to their rank."""
    seen = f.seen or f.evidence
    late = [(one.message.params["cause"], one.value) for one in seen if one.message and one.key == MEANWHILE.id]
    spent = [(cause, told) for cause, told in late if isinstance(told, float)]
    evaluated = sum(told for cause, told in spent if cause == Cause.EVALUATION)
    if 2 * evaluated > sum(told for _, told in spent):
        return [SHARE_EVALUATION()]
    return [FASTER_RANK() if late or f.saw(LAST_RANK) else FIND_RANK()]


SPEC = CauseSpec(
    "collective_wait",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="waiting for other ranks",
    colours=("#0e7490", "#67e8f9"),
    group=groups.RANKS,
    rules=(OrderedRule(claim, stall=200, ordinary=110), OrderedRule(claim_gpu, stall=225)),
    advice=_advice,
    gpu_works=True,
)
