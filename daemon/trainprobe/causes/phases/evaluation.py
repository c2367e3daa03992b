"""The training evaluates: batches without backwards, or forward passes without gradients."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.advise.frameworks import Subject
from trainprobe.advise.numbers import EVALUATING
from trainprobe.causes import groups, waiting
from trainprobe.causes.advice import AdviceInput, rarer
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items, up_to
from trainprobe.causes.heavier_batch import generates_longer, is_heavier
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.writing import without_queue_of_saves
from trainprobe.derive.python import serializers
from trainprobe.derive.python.evaluators import in_batch, is_evaluation, is_named
from trainprobe.derive.python.stacks import is_whole
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import QUEUED, Leaf, Region
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

SUMMARY = template("evaluation.summary", "evaluation for {seconds:seconds}")
EVALUATES = template("evaluation.evaluates", "training thread evaluates")
SECONDS = template("evaluation.seconds", "seconds beyond an ordinary step")
BATCHES = template("evaluation.batches", "batches fetched without a backward")
NO_GRAD_SECONDS = template("evaluation.no_grad_seconds", "seconds with gradients off")
_QUIET = 0.5
"""Of a usual evaluation: with gradients off for less there was none."""
_ALIKE, _METRICS = 2.0, 0.25
ENOUGH = 2
"""Stacks that are all in functions named like an evaluation."""
_TRAINING = (Region.BACKWARD, Region.OPTIMIZER)
_FORWARD = (State.COMPUTE, State.GPU_WAIT)
"""What forward passes are made of that come between other work: a rollout's, whose environments take most of it."""
_QUEUE = (Leaf.POLL, Leaf.PIPE_READ)
_APART_NS = NS
_LEAST_NS, _OTHER = NS // 10, 0.2
"""Less beside an evaluation, or a smaller part of it, is its own."""
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".mp4")


def claim(window: Window, left: Items) -> Claim | None:
    """All that is made of what evaluations are, when more was fetched than trained on or gradients were off for most of
    it; only the usual length, where something else took most of it beside an evaluation as usual, and only forward
    passes without gradients, where stacks show these beside other work."""
    left = without_queue_of_saves(window, left)
    taken = _inside(
        window, take_items(waiting.without_hang(window, left), states=[s for s in State if s not in waiting.OTHER_WORK])
    )
    stacks, fetched = _stacks(window), waiting.evaluates(window)
    named = [is_named(one, window.loop) for one in stacks]
    if not (fetched or any(named)):
        taken = _without_waits_for_ranks(taken)
    total = sum(taken.values())
    if total <= 0:
        return None
    # FSDP waits for other ranks' parameters with gradients off
    others = () if any(named) else (State.COLLECTIVE,)
    quiet = sum(ns for (state, of, _), ns in taken.items() if of == Region.NO_GRAD and state not in others)
    # without a stack no sign of an evaluation: optimisers and averages of the weights have gradients off too
    queued = sum(ns for (_, region, leaf), ns in taken.items() if region == Region.NO_GRAD and leaf in QUEUED)
    if not fetched and (is_heavier(window) or generates_longer(window)):
        return None
    shows = [one for one in stacks if is_evaluation(one, window.evaluators, window.loop)]
    own = _without_other_work(window, taken, stacks)
    # rewards, k-nearest neighbours: with gradients on
    shown = (len(stacks) >= ENOUGH and all(named)) or (bool(shows) and quiet > _part(stacks, shows) * sum(own.values()))
    other, drawn = _like_other_work(window, total), _draws(window, taken, quiet)
    by_grad = shown or (not stacks and not other and not drawn and quiet - queued > 0.5 * total)
    if not fetched and not by_grad:
        usual, looked = window.usual_no_grad_ns, bool(stacks) and not shows and quiet > 0.5 * total
        if not (other or looked) and 0 < _QUIET * usual <= quiet:
            taken = _as_usual(window, taken)
        elif _LEAST_NS <= quiet <= _ALIKE * total * sum(map(in_batch, shows)) / max(1, len(stacks)):
            taken = {item: ns for item, ns in taken.items() if item[1] == Region.NO_GRAD and item[0] in _FORWARD}
        else:
            return None
        quiet, total = made_of(taken)[0], sum(taken.values())
        if total <= 0:
            return None
    else:
        taken = own
        total = sum(taken.values())
    evidence = [Evidence.of(SECONDS(), seconds(total), "s", window.driver_pid)]
    if fetched:
        evidence.append(Evidence.of(BATCHES(), round(window.extra_fetches), "", window.driver_pid))
    if quiet > 0:
        evidence.append(Evidence.of(NO_GRAD_SECONDS(), seconds(quiet), "s", window.driver_pid))
    return Claim(Cause.EVALUATION, taken, SUMMARY(seconds=seconds(total)), [EVALUATES()], evidence)


def _without_waits_for_ranks(taken: dict[Item, float]) -> dict[Item, float]:
    """Where they are most of it, the rest alone may be one; nothing where that is short."""
    rest = {item: ns for item, ns in taken.items() if item[0] is not State.COLLECTIVE}
    total, own = sum(taken.values()), sum(rest.values())
    return taken if own >= 0.5 * total else rest if own >= _LEAST_NS else {}


def _part(stacks: Sequence[Sequence[str]], shows: Sequence[Sequence[str]]) -> float:
    """Of an evaluation, that has gradients off at least: less where all stacks show one, outside of its forward passes
    too."""
    return _METRICS if len(shows) == len(stacks) and not all(map(in_batch, stacks)) else 0.5


def made_of(taken: Items) -> tuple[float, float]:
    """With gradients off, and outside of fetches and forward passes: metrics, or other work of the training."""
    quiet, outside = (sum(ns for (_, of, _), ns in taken.items() if of == one) for one in (Region.NO_GRAD, Region.STEP))
    return quiet, outside


def is_sure(claim: Claim, window: Window) -> bool:
    """Whether batches were fetched for it, or a stack shows a function that is named like an evaluation: rollouts run
    with gradients off, too."""
    named = any(is_named(seen.frames, window.loop) for seen in window.late.stacks)
    return named or any(one.key == BATCHES.id for one in claim.evidence)


def _as_usual(window: Window, taken: Items) -> dict[Item, float]:
    """Of a step that does something else too: as much with gradients off as evaluations take, and outside of that."""
    quiet = {item: ns for item, ns in taken.items() if item[1] == Region.NO_GRAD}
    outside = {item: ns for item, ns in taken.items() if item[1] == Region.STEP}
    return up_to(quiet, _ALIKE * window.usual_no_grad_ns) | up_to(outside, window.usual_outside_ns or 0.0)


def _without_other_work(window: Window, taken: dict[Item, float], stacks: Sequence[Sequence[str]]) -> dict[Item, float]:
    """Outside of their forward passes, no more than evaluations take there as usual. Of the first one it is all, but
    for the part of the stacks there that shows something else."""
    usual, (_, outside) = window.usual_outside_ns, made_of(taken)
    if usual is None:
        between = [one for one in stacks if not in_batch(one)]
        if all(len(one) < 2 for one in between):  # the script's outermost function may be all
            return taken
        shown = sum(is_evaluation(one, window.evaluators, window.loop) for one in between)
        return {item: ns * shown / len(between) if item[1] == Region.STEP else ns for item, ns in taken.items()}
    if outside < _ALIKE * usual + max(_LEAST_NS, _OTHER * (sum(taken.values()) - outside)):
        return taken
    return {item: ns * usual / outside if item[1] == Region.STEP else ns for item, ns in taken.items()}


def _stacks(window: Window) -> list[Sequence[str]]:
    """What a torn one shows is seen; what it does not show is not known, nor what one shows of a wait or a save that
    the step has besides."""
    waits, found = waiting.waits_too(window), list[Sequence[str]]()
    for seen in window.late.stacks:
        shown = is_evaluation(seen.frames, window.evaluators, window.loop)
        beside = (waits and not seen.running) or (window.saves and serializers.shown_by(seen.frames))
        if shown or (is_whole(seen.frames) and not beside):
            found.append(seen.frames)
    return found


def _draws(window: Window, taken: Items, quiet: float) -> bool:
    """Whether pictures were written, and what ran with gradients off may have been their drawing: no model on a GPU,
    which is waited for there."""
    on_gpu = sum(ns for (state, of, _), ns in taken.items() if of == Region.NO_GRAD and state is State.GPU_WAIT)
    return on_gpu < _OTHER * quiet and any(f.path.lower().endswith(_PICTURES) for f in window.files)


def _inside(window: Window, items: dict[Item, float]) -> dict[Item, float]:
    """Without fetches of batches that are trained on. Without the start of the training's own workers, which comes
    after it: as much of the fetches as that took."""
    # all batches were trained on, one perhaps in several steps: fetches are the training's
    own = window.extra_fetches < 1 or (not window.fetches_per_backward and window.extra_fetches <= 1)
    ranks = _waits_for_ranks(window, items)
    items = {
        item: ns
        for item, ns in items.items()
        if not (_is_beside(item) or item in ranks or (own and item[1] == Region.FETCH))
    }
    starts = window.starts
    after = starts.renewed_ns - window.baseline_ns if starts and not starts.first else 0.0
    fetches = {item: ns for item, ns in items.items() if item[1] == Region.FETCH}
    queued = {item: ns for item, ns in fetches.items() if item[2] in _QUEUE}
    for waits in (queued, fetches):
        spent = sum(waits.values())
        if 0 < after <= spent:
            return items | {item: ns * (1 - after / spent) for item, ns in waits.items()}
    return items if after <= 0 else {item: ns for item, ns in items.items() if item not in fetches}


def _waits_for_ranks(window: Window, items: Items) -> Items:
    """What the step's own backward and optimiser waited for them, where that is more than evaluations of ranks that do
    the same differ by. On a GPU autograd's own thread is waited for at a lock. And all waits where stacks show nothing
    else: at a barrier behind another rank's evaluation."""
    if waiting.asks_ranks(window):
        return take_items(items, states=[State.COLLECTIVE, State.GPU_WAIT])
    gpu = any(state is State.GPU_WAIT for state, _, _ in window.items)
    waits = take_items(items, states=[State.COLLECTIVE], regions=_TRAINING)
    waits = {item: ns for item, ns in waits.items() if not (gpu and item[2] == Leaf.LOCK)}
    differ = min(window.policy.ranks_bottleneck * sum(items.values()), _APART_NS)
    return waits if sum(waits.values()) >= differ else {}


def _is_beside(item: Item) -> bool:
    """What the step's own backward and optimiser waited for a processor; a collection that the training asks for."""
    _, region, leaf = item
    return (region in _TRAINING and leaf in QUEUED) or (region == Region.STEP and leaf == Leaf.COLLECTOR)


def _like_other_work(window: Window, ns: float) -> bool:
    """Whether a time with gradients off that has no stack is as long as those whose stacks showed no evaluation."""
    usual, other = window.usual_evaluation_ns, window.usual_quiet_ns
    return 0 < ns <= _ALIKE * other and (not usual or abs(ns - other) < abs(ns - usual))


def quiet_work_ns(window: Window) -> float:
    """A window's excess without saves and logs, where gradients were off for most of it and it has stacks; else 0."""
    work = {item: ns for item, ns in window.excess.items() if item[0] not in waiting.OTHER_WORK}
    total, quiet = sum(work.values()), sum(ns for (_, region, _), ns in work.items() if region == Region.NO_GRAD)
    return total if quiet > 0.5 * total and _stacks(window) else 0.0


RARER = template(
    "evaluation.advice.rarer",
    "evaluate every {better} steps instead of every {every:step|#}{setting}, or on less data: it then takes 5 % of "
    "{run}, not {share:percent}",
)


def _advice(f: AdviceInput) -> list[Message]:
    return rarer(f, RARER, Subject.EVALUATE, EVALUATING)


SPEC = CauseSpec(
    "evaluation",
    kinds=frozenset({Kind.PHASE}),
    title="evaluation",
    colours=("#0f766e", "#5eead4"),
    group=groups.PHASES,
    rules=(OrderedRule(claim, stall=60),),
    advice=_advice,
)
