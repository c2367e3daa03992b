"""Workers are started again at the edge of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    count = window.workers_started
    return _claim(
        window,
        take(left, states=_STATES),
        lambda told: f"{count} loader workers started again, {told:.2f} s until data flowed",
        Evidence("workers started in the step", count, "", window.driver_pid),
        "time lost at the edge of the epoch",
    )


def _next_batch(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The others of them start at the same time, and may be slower: their first batches are due in the next steps."""
    return _claim(
        window,
        take(left, states=[State.DATA_WAIT]),
        lambda told: f"{told:.2f} s until the first batch of a loader worker that was started again",
        Evidence("workers whose first batch was due", window.first_due, "", window.driver_pid),
        "driver waited for data",
    )


def _claim(
    window: Window, taken: dict[Item, float], summary: Callable[[float], str], workers: Evidence, lost: str
) -> Claim | None:
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.WORKER_STARTUP,
        taken,
        summary(told),
        ["driver starts workers and waits for their first batch"],
        [workers, Evidence(lost, told, "s", window.driver_pid)],
    )
