"""Whether a late step had more of its ordinary work: a larger batch makes forward and backward longer by one factor."""

from __future__ import annotations

from trainprobe.causes.base import Window
from trainprobe.model.cause import State
from trainprobe.model.cells import Region

_ALIKE = 0.5
"""The backward's growth as a part of the forward's from which on they grew by one factor: each has a fixed part."""
_LEAST = 0.02
"""Of an ordinary step: a shorter backward is not compared."""
_OWN = 0.1
"""Of an ordinary step, with gradients off: the training has a forward pass without gradients of its own (a frozen
backbone, a teacher, a reference model)."""


def grew_alike(window: Window, *forward: Region) -> bool:
    """Whether the backward grew about as much, in proportion, as these regions did."""
    more, before = _growth(window, *forward)
    more_backward, backward = _growth(window, Region.BACKWARD)
    if min(more, before) <= 0 or backward < _LEAST * window.baseline_ns:
        return False
    return more_backward / backward >= _ALIKE * more / before


def is_heavier(window: Window) -> bool:
    """Whether what is beyond an ordinary step with gradients off is a heavier batch: ordinary steps have a part without
    gradients, and the backward grew along."""
    _, quiet = _growth(window, Region.NO_GRAD)
    return quiet >= _OWN * window.baseline_ns and grew_alike(window, Region.NO_GRAD)


def _growth(window: Window, *regions: Region) -> tuple[float, float]:
    """What these regions compute beyond an ordinary step, and in one, ns."""
    more, whole = (
        sum(ns for (state, region, _), ns in items.items() if state == State.COMPUTE and region in regions)
        for items in (window.excess, window.items)
    )
    return more, whole - more
