"""Many small fetches feed one backward: the batch is put together in a Python loop."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The driver's data time, when it fetches several batches per backward (accumulation has a backward for each)."""
    if window.fetches_per_backward < window.policy.fake_fetches:
        return None
    taken = take(left, states=[State.DATA_WAIT, State.DATA_INLINE])
    if not taken:
        return None
    each = round(window.fetches_per_backward)
    return Claim(
        Cause.FAKE_BATCHING,
        taken,
        f"{each} fetches for each backward",
        [f"driver calls next() on its loader {each} times per backward"],
        [
            Evidence("fetches per backward", round(window.fetches_per_backward, 1), "", window.driver_pid),
            Evidence("driver in fetches", seconds(sum(taken.values())), "s", window.driver_pid),
        ],
    )
