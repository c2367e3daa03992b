"""Workers are started again at the edge of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Region
from trainprobe.model.report import Evidence

WORKERS_STARTED = "workers started in the step"
"""Evidence that it was a DataLoader's."""
_FETCHED = 0.1
"""A DataLoader's workers are waited for in its fetch, so much of the time at least."""
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
    taken = take(left, states=_STATES)
    if sum(take(taken, regions=[Region.FETCH]).values()) < _FETCHED * sum(taken.values()):
        return _processes(window, taken, count)
    return _claim(
        window,
        taken,
        lambda told: f"{count} loader workers started again, {told:.2f} s until data flowed",
        Evidence(WORKERS_STARTED, count, "", window.driver_pid),
        "time lost at the edge of the epoch",
    )


def _processes(window: Window, taken: dict[Item, float], count: int) -> Claim | None:
    """Nothing was waited for in a DataLoader: they may be anything (a save beside the steps, a pool, environments)."""
    return _claim(
        window,
        taken,
        lambda told: f"the training started processes of its own: {count}, {told:.2f} s until it went on",
        Evidence("processes started in the step", count, "", window.driver_pid),
        "time lost while they started",
        "driver starts processes",
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
    window: Window,
    taken: dict[Item, float],
    summary: Callable[[float], str],
    workers: Evidence,
    lost: str,
    chain: str = "driver starts workers and waits for their first batch",
) -> Claim | None:
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.WORKER_STARTUP,
        taken,
        summary(told),
        [chain],
        [workers, Evidence(lost, told, "s", window.driver_pid)],
    )
