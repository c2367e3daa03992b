"""No cause at all: the driver waits for the GPU, which works; a step with more work takes longer."""

from __future__ import annotations

from trainprobe.causes.base import Claim, Items, Window, take_items
from trainprobe.causes.spec import OrderedRule
from trainprobe.model.cause import State


def claim(window: Window, left: Items) -> Claim | None:
    """State `gpu_wait`, unless it lasts so long that the GPU may hang: then nobody knows."""
    taken = take_items(left, states=[State.GPU_WAIT])
    if not taken or sum(taken.values()) > window.policy.gpu_patience_ns:
        return None
    return Claim(None, taken)


RULES = (OrderedRule(claim, stall=230),)
