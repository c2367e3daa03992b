"""Workers are started again at the edge of an epoch."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence

_STATES = (
    State.DATA_WAIT,
    State.DATA_INLINE,
    State.COMPUTE,
    State.OTHER,
    State.LOCK,
    State.SLEEP,
    State.RUNQUEUE,
    State.FAULT_IO,
    State.NETWORK,
)


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Everything at the edge that is not a save, a log or a stop, when loader workers were started in the step."""
    if window.workers_started < 1 or window.first_workers:
        return None
    taken = take(left, states=_STATES)
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.WORKER_STARTUP,
        taken,
        f"{window.workers_started} loader workers started again, {told:.2f} s until data flowed",
        ["driver starts workers and waits for their first batch"],
        [
            Evidence("workers started in the step", window.workers_started, "", window.driver_pid),
            Evidence("time lost at the edge of the epoch", told, "s", window.driver_pid),
        ],
    )
