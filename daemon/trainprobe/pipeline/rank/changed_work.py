"""Late steps that are so by their own work, step after step: the training does something else, and that is ordinary."""

from __future__ import annotations

from trainprobe.causes import waiting
from trainprobe.causes.base import Window
from trainprobe.causes.order import Judgement
from trainprobe.derive.steps.baseline import Baseline, Ordinary
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Region
from trainprobe.pipeline.rank.state import RankState

_WORK = (State.COMPUTE, State.GPU_WAIT)


def add_late(rank: RankState, step: Ordinary, window: Window, judgement: Judgement) -> None:
    """Take in a late step; learns the baseline anew where most of the latest ones are late by their own work."""
    if step.steps > 1 or not _is_own_work(rank, step, window, judgement):
        return
    if steps := rank.progress.changed.add_late(step):
        rank.progress.baseline = Baseline()
        for one in steps:
            rank.progress.baseline.add(one)


def _is_own_work(rank: RankState, step: Ordinary, window: Window, judgement: Judgement) -> bool:
    """Whether the step computed, or its GPU did, for all that it took longer, but for waits that would be below a
    bottleneck's limit. Compute threads wait for each other at locks, outside of the training's own code. A wait is
    never learnt, however long it goes on: slow storage and swapped memory stay lost time."""
    if waiting.evaluates(window) or any(cause is not Cause.EVALUATION for cause in judgement.phases):
        return False
    around = rank.surroundings
    if (around.devices.stolen or 0.0) >= rank.policy.stolen_share or around.swapping.by_training(window.end_ns):
        return False  # neither is in a state of its own where the kernel computes for it (zram)
    lost = sum(ns for cause, ns in judgement.shares.items() if cause is not Cause.CPU_BOUND)
    waits = sum(
        ns
        for (state, region, _), ns in window.excess.items()
        if state not in _WORK and not (state == State.LOCK and region != Region.STEP)
    )
    return max(lost, waits) <= rank.policy.rest_bottleneck * step.ns
