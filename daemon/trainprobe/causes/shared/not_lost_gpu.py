"""No cause at all: the driver waits for the GPU, which works; a step with more work takes longer."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.causes.base import Claim, Window, take_items
from trainprobe.causes.spec import OrderedRule
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import State


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `gpu_wait`, unless it lasts so long that the GPU may hang: then nobody knows."""
    taken = take_items(left, states=[State.GPU_WAIT])
    if not taken or sum(taken.values()) > window.policy.gpu_patience_ns:
        return None
    return Claim(None, taken)


RULES = (OrderedRule(claim, stall=230),)
