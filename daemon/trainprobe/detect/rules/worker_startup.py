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
    if window.workers_started < 1 and window.first_due:
        return _next_batch(window, left)
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


def _next_batch(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The others of them start at the same time, and may be slower: their first batches are due in the next steps."""
    taken = take(left, states=[State.DATA_WAIT])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.WORKER_STARTUP,
        taken,
        f"{told:.2f} s until the first batch of a loader worker that was started again",
        ["driver starts workers and waits for their first batch"],
        [
            Evidence("workers whose first batch was due", window.first_due, "", window.driver_pid),
            Evidence("driver waited for data", told, "s", window.driver_pid),
        ],
    )
