"""Whether a late step had more of its ordinary work: a larger batch makes forward and backward longer by one factor.

The backward's work is the driver's computing, and its wait for threads that compute: OpenMP's, or autograd's own one,
which runs the backward of a GPU.
"""

from __future__ import annotations

from collections.abc import Collection

from trainprobe.causes.base import Window
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import State
from trainprobe.model.cells import Region

_ALIKE = 0.5
"""The backward's growth as a part of the forward's from which on they grew by one factor: each has a fixed part."""
_LEAST = 0.02
"""Of an ordinary step: a shorter backward is not compared."""
_MOSTLY = 0.5
"""Of the backward."""
_WORK = (State.COMPUTE, State.GPU_WAIT)
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


def grew_along(window: Window) -> bool:
    """Whether the rest of the step's work, the GPU's included, grew about as much, in proportion, as the backward."""
    more, before = _growth(window, Region.STEP, Region.NO_GRAD, of=_WORK)
    more_backward, backward = _growth(window, Region.BACKWARD)
    if min(more_backward, backward) <= 0 or before < _LEAST * window.baseline_ns:
        return False
    return more / before >= _ALIKE * more_backward / backward


def is_heavier(window: Window) -> bool:
    """Whether what is beyond an ordinary step with gradients off is a heavier batch: ordinary steps have a part without
    gradients, and the backward grew along."""
    _, quiet = _growth(window, Region.NO_GRAD)
    return quiet >= _OWN * window.baseline_ns and grew_alike(window, Region.NO_GRAD)


def backward_of_thread(window: Window) -> bool:
    """Whether an ordinary step's backward is another thread's, as on a GPU: the driver waits for most of it."""
    (_, waits), (_, works) = _growth(window, Region.BACKWARD, of=()), _growth(window, Region.BACKWARD)
    return waits > _MOSTLY * works > 0


def is_for_threads(item: Item) -> bool:
    """Whether it is the backward's wait for threads that compute."""
    state, region, _ = item
    return state == State.LOCK and region == Region.BACKWARD


def _growth(window: Window, *regions: Region, of: Collection[State] = (State.COMPUTE,)) -> tuple[float, float]:
    """What works in these regions beyond an ordinary step, and in one, ns."""
    more, whole = (
        sum(ns for item, ns in items.items() if item[1] in regions and (item[0] in of or is_for_threads(item)))
        for items in (window.excess, window.items)
    )
    return more, whole - more
