"""Batches that were fetched and not trained on: those of an evaluation, or some that the training dropped."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import State
from trainprobe.model.cells import QUEUED, Region
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

_WORK = (State.COMPUTE, State.GPU_WAIT)
_PART = 0.5
"""Of the training's own forward pass: so much with gradients off, for all batches, shows that a model ran on them: an
evaluation's may be smaller. An average of the weights has gradients off too."""
_MANY, _EACH_NS = 8, NS // 1000
"""So many batches are hardly dropped in one step: this long for each of them is enough, where the training's own step
computes more on a CPU than its model does (losses, targets, augmentation)."""
_SHARE = 0.25
"""Of all time beyond an ordinary step: with gradients on so much is needed, too."""


@dataclass(frozen=True, slots=True)
class UsualBatch:
    """What an ordinary step does with a batch."""

    per_backward: float = 0.0  # batches that are fetched for each backward
    forward_ns: float = 0.0  # of CPU in the forward pass of one


def model_ran(extra: float, usual: UsualBatch, beyond: Mapping[Item, float]) -> bool:
    """Whether a model ran on ``extra`` batches that were not trained on. ``beyond``: ns beyond an ordinary step. A loop
    that skips a batch, and a zip() of loaders of which one ends earlier, fetch batches and drop them. With gradients
    on, more are needed than such a zip() drops: what a step fetches, and the fetch that finds the loader's end."""
    quiet = sum(ns for (_, region, leaf), ns in beyond.items() if region == Region.NO_GRAD and leaf not in QUEUED)
    if quiet > _PART * usual.forward_ns or (extra >= _MANY and quiet >= extra * _EACH_NS):
        return True
    if extra <= usual.per_backward + 1:
        return False
    loud = sum(ns for (state, region, _), ns in beyond.items() if region == Region.STEP and state in _WORK)
    return quiet + loud > max(_PART * extra * usual.forward_ns, _SHARE * sum(beyond.values()))
