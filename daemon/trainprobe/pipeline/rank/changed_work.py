"""Steps that do more than they did, one after the other: the training does something else, and that is ordinary."""

from __future__ import annotations

from trainprobe.causes import waiting
from trainprobe.causes.base import Items, Window, take_items
from trainprobe.causes.order import Judgement
from trainprobe.derive.steps.baseline import Baseline, Ordinary
from trainprobe.derive.steps.changed_work import OrdinarySums, without_waits
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.pipeline.rank.state import RankState

_WORK = (State.COMPUTE, State.GPU_WAIT)
_SLOWS = (State.RUNQUEUE, State.MEMORY, State.STOPPED)
"""Waits beside which a thread computes more slowly, too."""
MORE = 0.25
"""Of an ordinary step: so much more it does at least."""
_UNKNOWN = 1 << 30
"""Ranks of a run that does not tell."""


def add_late(rank: RankState, step: Ordinary, window: Window, judgement: Judgement) -> None:
    """Take in a late step; learns the baseline anew where most of the latest ones do more. What they wait beyond the
    usual is not learnt, however long it goes on: slow storage and swapped memory stay lost time."""
    works = _work(rank, window)
    waits = {item: ns for item, ns in window.excess.items() if item not in works}
    if step.steps > 1 or not _does_more(rank, step, window, judgement, sum(works.values())):
        return
    progress, ordinary = rank.progress, rank.ordinary
    if steps := progress.changed.add_late(without_waits(step, waits, progress.baseline.pool())):
        progress.baseline = Baseline()
        for one in steps:
            progress.baseline.add(one)
        ordinary.growth.trend.restart()
        ordinary.settle()
        progress.changed.sums.append(OrdinarySums(dict(ordinary.items), ordinary.ns, ordinary.count))


def _work(rank: RankState, window: Window) -> Items:
    """What it does beyond an ordinary step: computing, or the GPU's. Compute threads wait for each other at locks,
    outside of the training's own code."""
    autograd = _for_autograd(rank, window)
    return {item: ns for item, ns in window.excess.items() if _is_work(item) or item in autograd}


def _is_work(item: Item) -> bool:
    state, region, _ = item
    return state in _WORK or (state == State.LOCK and region != Region.STEP)


def _for_autograd(rank: RankState, window: Window) -> Items:
    """The waits for autograd's own thread beside a GPU, where all ranks are on this host: of what some of them wait for
    others in each step, their own comparison tells."""
    if rank.surroundings.company.ranks < (rank.seen.world_size or _UNKNOWN):
        return {}
    if not any(state is State.GPU_WAIT for state, _, _ in window.items):
        return {}
    return take_items(window.excess, states=[State.COLLECTIVE], leaves=[Leaf.LOCK], regions=[Region.BACKWARD])


def _does_more(rank: RankState, step: Ordinary, window: Window, judgement: Judgement, more: float) -> bool:
    """Whether the step's own work, ``more`` ns of it, is more than an ordinary step's: no rule has another cause for
    it, and nothing slows down what it computes."""
    if waiting.evaluates(window) or any(cause is not Cause.EVALUATION for cause in judgement.phases):
        return False
    around = rank.surroundings
    if (around.devices.stolen or 0.0) >= rank.policy.stolen_share or around.swapping.by_training(window.end_ns):
        return False  # neither is in a state of its own where the kernel computes for it (zram)
    slowed = sum(ns for (state, _, _), ns in window.excess.items() if state in _SLOWS)
    others = (claim.taken for claim in judgement.lost if claim.cause is not Cause.CPU_BOUND)
    caused = sum(ns for taken in others for item, ns in taken.items() if item[0] in _WORK or item[1] == Region.NO_GRAD)
    return more >= MORE * window.baseline_ns and max(slowed, caused) <= rank.policy.rest_bottleneck * step.ns
