"""Many small fetches feed one backward: the batch is put together in a Python loop."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import always
from trainprobe.causes.base import Claim, Items, Window, pool_ns, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import MAKING
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Region
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

SUMMARY = template("fake_batching.summary", "{fetches} fetches for each backward")
CALLS = template("fake_batching.calls", "training thread calls next() on its loader {fetches} times per backward")
FETCHES = template("fake_batching.fetches", "fetches per backward")
SECONDS = template("fake_batching.seconds", "training thread in fetches")


_SMALL = 8_000_000
"""Bytes of one fetch: more is a batch, or as dear to hand over."""
_EVALUATED, _FROZEN = 0.5, 4.0
"""Times the forward pass: less with gradients off is no evaluation, nor is so much for each further fetch."""


def claim(window: Window, left: Items) -> Claim | None:
    """The driver's data time, when it fetches several small batches per backward (accumulation has one for each).
    Not the wait for workers that are busy: they are too slow, however their samples are put together. Nor the batches
    of an evaluation that comes with each step, where an epoch is a single one."""
    if window.fetches_per_backward < window.policy.fake_fetches or (window.fetch_bytes or 0.0) > _SMALL:
        return None
    if _evaluates(window):
        return None
    busy = pool_ns(window, *MAKING) > 0
    taken = take_items(left, states=[State.DATA_INLINE] if busy else [State.DATA_WAIT, State.DATA_INLINE])
    if not taken:
        return None
    each = round(window.fetches_per_backward)
    return Claim(
        Cause.FAKE_BATCHING,
        taken,
        SUMMARY(fetches=each),
        [CALLS(fetches=each)],
        [
            Evidence.of(FETCHES(), round(window.fetches_per_backward, 1), "", window.driver_pid),
            Evidence.of(SECONDS(), seconds(sum(taken.values())), "s", window.driver_pid),
        ],
    )


def _evaluates(window: Window) -> bool:
    """Whether what runs with gradients off in each step evaluates. A frozen backbone, and a teacher, are no evaluation:
    the stacks tell, or what runs is much dearer than the forward pass of what is trained."""
    quiet, forward = _works(window, Region.NO_GRAD), _works(window, Region.STEP)
    if quiet <= _EVALUATED * forward or quiet > _FROZEN * (window.fetches_per_backward - 1) * forward:
        return False
    return window.evaluates_in_steps is not False


def _works(window: Window, region: Region) -> float:
    """What the model computes there, or is waited for."""
    return sum(take_items(window.items, states=[State.COMPUTE, State.GPU_WAIT], regions=[region]).values())


BATCH_SIZE = template(
    "fake_batching.advice.batch_size",
    "set batch_size in the DataLoader and let its workers put the batch together, instead of next() in a loop",
)


SPEC = CauseSpec(
    "fake_batching",
    kinds=frozenset({Kind.BOTTLENECK}),
    title="fetching samples one by one",
    colours=("#4f7cac", "#93b7de"),
    group=groups.DATA,
    rules=(OrderedRule(claim, ordinary=50),),
    advice=always(BATCH_SIZE),
    dashboard_colour="#8AB8FF",
    is_input=True,
)
