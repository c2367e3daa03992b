"""Whether a late step had more of its ordinary work: a larger batch makes forward and backward longer by one factor.

The backward's work is the driver's computing, and its wait for threads that compute: OpenMP's, or autograd's own one,
which runs the backward of a GPU.
"""

from __future__ import annotations

from collections.abc import Collection

from trainprobe.causes.base import Items, Window, take_items
from trainprobe.derive.python.code_lines import waits_for_replicas
from trainprobe.derive.python.evaluators import generates, in_batch, is_named
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import State
from trainprobe.model.cells import QUEUED, Leaf, Region

_ALIKE = 0.5
"""The backward's growth as a part of the forward's from which on they grew by one factor: each has a fixed part."""
_LEAST = 0.02
"""Of an ordinary step: a shorter backward is not compared."""
_MOSTLY = 0.5
"""Of the backward."""
_MAIN, _LONGER = 0.5, 2.0
"""Of an ordinary step; times: what takes longer still is something else."""
_QUEUED = 0.2
"""Of the wait."""
_FORWARD = (Region.STEP, Region.NO_GRAD)
_OWN_WORK, _WORK = (State.COMPUTE,), (State.COMPUTE, State.GPU_WAIT)
_OWN = 0.1
"""Of an ordinary step, with gradients off: the training has a forward pass without gradients of its own (a frozen
backbone, a teacher, a reference model)."""


def grew_alike(window: Window, *forward: Region) -> bool:
    """Whether the backward grew about as much, in proportion, as these regions did."""
    more, before = _growth(window, *forward)
    more_backward, backward = _backward(window)
    if min(more, before, backward) <= 0 or backward < _LEAST * window.baseline_ns:
        return False
    return more_backward / backward >= _ALIKE * more / before


def is_heavier(window: Window) -> bool:
    """Whether what is beyond an ordinary step with gradients off is a heavier batch: ordinary steps have a part without
    gradients, and the backward grew along."""
    _, quiet = _growth(window, Region.NO_GRAD)
    return quiet >= _OWN * window.baseline_ns and grew_alike(window, Region.NO_GRAD)


def generates_longer(window: Window) -> bool:
    """Whether what ordinary steps mostly are, a model that runs without gradients (it generates what is trained on),
    took longer: stacks show a model, if any were taken in time, and nothing that is named like an evaluation."""
    more, quiet = _growth(window, Region.NO_GRAD, of=_WORK)
    if quiet < _MAIN * window.baseline_ns or more > _LONGER * quiet:
        return False
    stacks = [seen.frames for seen in window.late.stacks]
    shown = not stacks or any(in_batch(one) or generates(one) for one in stacks)
    return shown and not any(is_named(one, window.loop) for one in stacks)


def work_of_threads(window: Window, left: Items) -> dict[Item, float]:
    """The backward's wait for threads that compute: for autograd's own one, unless looks found none on a CPU, or what
    disturbs the driver disturbs that one, too; for others, and where ranks may be waited for, if what else the step
    works grew along. The same of a forward pass that runs in threads. None where it lasts so long that they may
    hang."""
    waits, grew = _for_threads(window, left), _rest_grew_along(window)
    forward = take_items(left, states=[State.LOCK], regions=_FORWARD) if _runs_replicas(window) else {}
    if sum(waits.values()) + sum(forward.values()) > window.policy.gpu_patience_ns:
        return {}
    seen = not window.late.stood_still
    own = seen and _backward_of_thread(window) and not _disturbed(window, sum(waits.values()))
    waits = {item: ns for item, ns in waits.items() if grew or (own and item[0] is State.LOCK)}
    return waits | forward if seen else waits


def _runs_replicas(window: Window) -> bool:
    """Whether the model's replicas run in threads, and stacks of waits, if any were taken, show no other wait alone."""
    waits = [seen.frames for seen in window.late.stacks if seen.frames and not seen.running]
    return window.replicas and (not waits or any(map(waits_for_replicas, waits)))


def _disturbed(window: Window, waited: float) -> bool:
    """Whether the driver itself reads swapped memory, or waits for a processor so much."""
    queued = sum(take_items(window.excess, leaves=QUEUED).values())
    return bool(window.swap_faults) or queued > _QUEUED * waited


def _for_threads(window: Window, items: Items) -> dict[Item, float]:
    """Beside a GPU also where other ranks are: those are waited for on the GPU."""
    gpu = any(state is State.GPU_WAIT for state, _, _ in window.items)
    states = [State.LOCK, State.COLLECTIVE] if gpu else [State.LOCK]
    return take_items(items, states=states, leaves=[Leaf.LOCK], regions=[Region.BACKWARD])


def _rest_grew_along(window: Window) -> bool:
    """Whether the rest of the step's work, with or without the GPU's, grew about as much, in proportion, as the
    backward."""
    more_backward, backward = _backward(window)
    if min(more_backward, backward) <= 0:
        return False
    for of in _OWN_WORK, _WORK:
        more, before = _growth(window, *_FORWARD, of=of)
        if before >= _LEAST * window.baseline_ns and more / before >= _ALIKE * more_backward / backward:
            return True
    return False


def _backward_of_thread(window: Window) -> bool:
    """Whether an ordinary step's backward is another thread's, as on a GPU: the driver waits for most of it."""
    waits, (_, works) = _for_threads_growth(window)[1], _backward(window)
    return waits > _MOSTLY * works > 0


def _backward(window: Window) -> tuple[float, float]:
    (more, before), (more_waits, waits) = _growth(window, Region.BACKWARD), _for_threads_growth(window)
    return more + more_waits, before + waits


def _for_threads_growth(window: Window) -> tuple[float, float]:
    more, whole = (sum(_for_threads(window, items).values()) for items in (window.excess, window.items))
    return more, whole - more


def _growth(window: Window, *regions: Region, of: Collection[State] = _OWN_WORK) -> tuple[float, float]:
    """What these regions compute beyond an ordinary step, and in one, ns."""
    more, whole = (
        sum(ns for (state, region, _), ns in items.items() if state in of and region in regions)
        for items in (window.excess, window.items)
    )
    return more, whole - more
