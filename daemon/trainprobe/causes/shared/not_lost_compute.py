"""No cause at all: a batch that is larger than usual makes forward and backward longer alike."""

from __future__ import annotations

from trainprobe.causes.base import Claim, Items, Window, excess_ns, take_items
from trainprobe.causes.heavier_batch import generates_longer, grew_alike, work_of_threads
from trainprobe.causes.spec import OrderedRule
from trainprobe.model.cause import State
from trainprobe.model.cells import Region

_FORWARD = (Region.STEP, Region.NO_GRAD)
_TOGETHER = 0.25
"""The backward's excess as a part of the forward's from which on they grew together."""


def claim(window: Window, left: Items) -> Claim | None:
    """Compute in all regions, when the backward grew along: by a part of what the forward did, or in proportion, as
    behind a frozen backbone. What other threads compute for the driver, and what a model generates, in any case."""
    compute, by_threads = take_items(left, states=[State.COMPUTE]), work_of_threads(window, left)
    forward = sum(ns for (_, region, _), ns in compute.items() if region in _FORWARD)
    backward = sum(take_items(by_threads, regions=[Region.BACKWARD]).values())
    inside = sum(compute.values()) - forward + backward
    if inside <= 0 or (inside < _TOGETHER * forward and not grew_alike(window, *_FORWARD)):
        inner = take_items(compute, regions=[Region.BACKWARD, Region.OPTIMIZER, Region.FETCH])
        generated = take_items(compute, regions=[Region.NO_GRAD]) if generates_longer(window) else {}
        compute = (inner if sum(inner.values()) < 0.1 * excess_ns(window) else {}) | generated
    return Claim(None, compute | by_threads)


RULES = (OrderedRule(claim, stall=240),)
