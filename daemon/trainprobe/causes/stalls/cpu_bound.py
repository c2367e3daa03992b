"""Python (or other serial work) on the driver holds the training up while one core is busy."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.advise.intervals import ROLLOUTS
from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, rarer
from trainprobe.causes.base import Claim, Items, Window, claimed, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import waits_too
from trainprobe.derive.python import evaluators
from trainprobe.derive.python.serializers import shown_by
from trainprobe.derive.python.stacks import innermost
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("cpu_bound.summary", "{seconds:seconds} of CPU in {where}")
ANYWHERE = template(
    "cpu_bound.anywhere", "{seconds:seconds} of CPU in the training thread, outside of forward and backward"
)
ON_CPU_IN = template("cpu_bound.on_cpu_in", "training thread on the CPU in {where}")
ON_CPU = template("cpu_bound.on_cpu", "training thread on the CPU between the training's marks")
LOOKS = template("cpu_bound.looks", "Python stacks taken")
_OF_WORK = 0.5
"""Of the run: what takes more is what the training works with (environments that it steps). It comes no more rarely."""
SECONDS = template("cpu_bound.seconds", "training thread on the CPU beyond an ordinary step")
_ROLLOUTS = 0.1
"""Of the run: with less it may as well be for something else."""


def claim(window: Window, left: Items) -> Claim | None:
    """Compute between the marks: on a CPU, outside of backward, optimiser and fetch."""
    taken = take_items(
        left, states=[State.COMPUTE], leaves=[Leaf.CPU, Leaf.FILE_GAP], regions=[Region.STEP, Region.NO_GRAD]
    )
    if not taken:
        return None
    stacks = [seen.frames for seen in window.late.stacks if seen.running or not waits_too(window)]
    stacks = evaluators.mostly_beside_model([one for one in stacks if not _is_elsewhere(window, left, one)])
    where = innermost(stacks[-1]) if stacks else None
    if not where:
        looks = [Evidence.of(LOOKS(), len(stacks), "", window.driver_pid)] if stacks else []
        return claimed(window, Cause.CPU_BOUND, taken, ANYWHERE, [ON_CPU()], SECONDS, *looks)
    return claimed(window, Cause.CPU_BOUND, taken, SUMMARY, [ON_CPU_IN(where=where)], SECONDS, where=where)


def _is_elsewhere(window: Window, left: Items, stack: Sequence[str]) -> bool:
    """Whether it was taken in another part of the step: in a save, or in an evaluation, which has its time already."""
    evaluated = any(item[1] == Region.NO_GRAD and item not in left for item in window.excess)
    return bool(window.saves and shown_by(stack)) or (evaluated and evaluators.in_batch(stack))


CPU_IN = template("stall.cpu_in", "{seconds:seconds} of CPU in {where}")
MOVE_IT = template(
    "cpu_bound.advice.move_it", "move {what} into a worker or another process, vectorise it, or do it less often"
)
CALL_LESS = template(
    "cpu_bound.advice.call_less", "{what} is a library's own code: call it less often, with less data, or on the GPU"
)
VECTORISE_IT = template(
    "cpu_bound.advice.vectorise_it",
    "vectorise {what}, or do it less often: another process would not have a CPU for it either",
)
MORE_AT_ONCE = template(
    "cpu_bound.advice.more_at_once",
    "let several environments run at once, in processes of their own, or vectorise {what}: the training trains on what "
    "they give",
)
IT = template("cpu_bound.advice.it", "what the training thread computes on one core")
COLLECTOR = template(
    "cpu_bound.advice.collector",
    "no Python line was seen in it: the garbage collector is a candidate (gc.freeze() after start-up, gc.collect() "
    "at a time of your choosing)",
)
NO_STACK = template(
    "cpu_bound.advice.no_stack", "no Python stack was taken in it: watch longer, and its line may be told"
)
DO_RARER = template(
    "cpu_bound.advice.do_rarer",
    "do it every {better} steps instead of every {every:step|#}: 1 % of {run}, not {share:percent}",
)


def _advice(f: AdviceInput) -> list[Message]:
    """Where the loop collects what it trains on, most of what it computes beside its steps is for that."""
    if f.framework in ROLLOUTS and f.share > _ROLLOUTS and not f.crowded:
        return [MORE_AT_ONCE(what=f.line or IT())]
    lighter = VECTORISE_IT if f.crowded else MOVE_IT
    move = CALL_LESS(what=f.line) if f.in_library else lighter(what=f.line or IT())
    unseen = [] if f.where is not None else [COLLECTOR() if f.saw(LOOKS) else NO_STACK()]
    return [move, *unseen, *(rarer(f, DO_RARER) if f.share <= _OF_WORK else [])]


SPEC = CauseSpec(
    "cpu_bound",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="Python work on the CPU",
    colours=("#15803d", "#4ade80"),
    group=groups.PYTHON,
    rules=(OrderedRule(claim, stall=250),),
    advice=_advice,
    in_line=CPU_IN,
    thread_state_only=True,
    computes=True,
)
