"""The driver waits for its workers, and they are blocked, neither in storage nor in their queue, as for every batch, or
most of them at once in sockets, as for the next shards.

Else a worker hangs (`worker_hang`).
"""

from __future__ import annotations

from trainprobe.causes import waiting
from trainprobe.causes.base import (
    BlockedWorkers,
    Claim,
    Items,
    Window,
    excess_ns,
    pool_ns,
    seconds,
    take_items,
    usual_ns,
)
from trainprobe.causes.spec import OrderedRule
from trainprobe.derive.python.stacks import MOST, common, reads_network, takes_from_queue
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

NETWORK = template(
    "data_blocked.network", "reading data over the network: workers were blocked in socket calls for {seconds:seconds}"
)
OVER_NETWORK = template(
    "data_blocked.over_network", "reading data over the network, in {hits} of {looks:# look|# looks} at workers"
)
AT_SOCKETS = template("data_blocked.at_sockets", "looks at workers that wait for a network")
BLOCKED_IN = template("data_blocked.blocked_in", "workers blocked in {call}")
_MOST = 0.5
"""Of what the workers do: where they are blocked for less of it, batches are dear for another reason."""
_USUAL = 0.25
"""Of the workers' time in ordinary steps: then it is how this data is fetched."""
_AT_ONCE, _ANOTHER = 0.4, 0.5
"""Of the time of all workers: some may be another loader's, and idle. And so much beyond the whole step: one worker
that hangs may be blocked for all of that, where batches made ahead cover its wait at first."""
OF_COMMAND = template(
    "data_blocked.of_command",
    "workers wait at a pipe for {command}{where}, in {hits} of {looks:# look|# looks} at them",
)
ANOTHER = template("data_blocked.another", "another process")
_LOOKS, _MOSTLY = 3, 0.5
_OVER_NETWORK = frozenset(
    {"aws", "s5cmd", "s3cmd", "gsutil", "gcloud", "azcopy", "rclone", "curl", "wget", "hadoop", "hdfs"}
)
"""Commands that read a file over a network."""


def claim(window: Window, left: Items) -> Claim | None:
    """Of a late step the wait, where workers mostly were blocked in it and are so usually, or most at once in sockets.
    (One that waits for much longer than a batch takes hangs, also then.)"""
    usual = usual_ns(window, *waiting.FETCHING) >= _USUAL * window.baseline_ns * max(1, window.workers)
    late_ns = excess_ns(window)
    if not window.fetches_per_backward:
        return _claim_late(window, left) if late_ns < window.policy.hang_ns else None
    more_than_one = window.baseline_ns + (1 + _ANOTHER) * late_ns
    at_once = pool_ns(window, Leaf.SOCKET) >= max(more_than_one, _AT_ONCE * window.workers * late_ns)
    return claim_usual(window, left) if (usual or at_once) and late_ns < window.policy.hang_ns else None


def claim_usual(window: Window, left: Items) -> Claim | None:
    """Of ordinary steps. On sockets it is storage that lies behind a network."""
    blocked = pool_ns(window, *waiting.FETCHING)
    mostly = blocked >= _MOST * (blocked + pool_ns(window, *waiting.CPU, *waiting.STORAGE, *waiting.SWAP))
    taken = waiting.waited(window, left) if mostly and blocked > 0 and window.fetches_per_backward else {}
    if not taken:
        return None
    leaf = max(waiting.FETCHING, key=lambda one: pool_ns(window, one))
    told = seconds(blocked)
    summary, cause = waiting.BLOCKED_BATCHES(call=waiting.IN_CALL[leaf], seconds=told), Cause.UNKNOWN
    if leaf == Leaf.SOCKET:
        summary, cause = NETWORK(seconds=told), Cause.DATA_STORAGE
    elif (looks := _of_network(window)) is not None:
        summary, cause = OVER_NETWORK(hits=looks.reading, looks=looks.looks), Cause.DATA_STORAGE
    return Claim(
        cause,
        taken,
        summary,
        [waiting.WAITS_FOR_WORKERS(), BLOCKED_IN(call=waiting.IN_CALL[leaf])],
        [
            Evidence.of(waiting.WAITED(), seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence.of(waiting.BLOCKED_OUTSIDE(), told, "s"),
            Evidence.of(waiting.WORKERS(), window.workers, ""),
            *waiting.new_epoch(window),
        ],
    )


def _claim_late(window: Window, left: Items) -> Claim | None:
    """Of a late step without a DataLoader, where most stacks of processes show that they wait for a network."""
    late, told = window.late, [stack for stack in window.late.worker_stacks.values() if stack]
    reading = sum(map(reads_network, told))
    if reading <= _MOSTLY * len(told):
        return None
    in_queue = any(takes_from_queue(stack.frames) for stack in late.stacks if stack.frames)
    return _claim_network(window, left, reading, len(told), in_queue=in_queue)


def _of_network(window: Window) -> BlockedWorkers | None:
    """Looks at workers in ordinary steps, where most show that they wait for a network."""
    seen = window.blocked_workers
    return seen if seen is not None and seen.looks >= _LOOKS and seen.reading > _MOSTLY * seen.looks else None


def claim_network(window: Window, left: Items) -> Claim | None:
    """Of ordinary steps without a DataLoader: processes of the training's own fill a queue, from a network."""
    looks = _of_network(window)
    if looks is None or window.fetches_per_backward:
        return None
    return _claim_network(window, left, looks.reading, looks.looks, in_queue=looks.driver_in_queue)


def _claim_network(window: Window, left: Items, reading: int, looks: int, *, in_queue: bool) -> Claim | None:
    taken = take_items(left, states=[State.DATA_WAIT, *([State.LOCK] if in_queue else [])])
    if not taken:
        return None
    return Claim(
        Cause.DATA_STORAGE,
        taken,
        OVER_NETWORK(hits=reading, looks=looks),
        [waiting.WAITS_FOR_WORKERS()],
        [
            Evidence.of(waiting.WAITED(), seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence.of(AT_SOCKETS(), reading, ""),
            Evidence.of(waiting.WORKERS(), window.workers, ""),
        ],
    )


def claim_pipe(window: Window, left: Items) -> Claim | None:
    """Of ordinary steps, where workers seem idle. One that reads the output of a command waits at a pipe as an idle one
    does; its stack is in the code of a batch."""
    blocked = window.blocked_workers
    if blocked is None or blocked.looks < _LOOKS or pool_ns(window, *waiting.MAKING) > 0:
        return None
    taken = waiting.waited(window, left) if window.fetches_per_backward else {}
    if not taken or len(blocked.stacks) <= _MOSTLY * blocked.looks:
        return None
    network, where = blocked.command in _OVER_NETWORK, common(blocked.stacks, MOST)
    command = blocked.command or ANOTHER()
    line = waiting.IN_FRAME(frame=where.message(counted=False)) if where is not None and not network else None
    return Claim(
        Cause.DATA_STORAGE if network else Cause.UNKNOWN,
        taken,
        OF_COMMAND(command=command, where=line, hits=len(blocked.stacks), looks=blocked.looks),
        [waiting.WAITS_FOR_WORKERS(), BLOCKED_IN(call=waiting.IN_CALL[Leaf.PIPE_READ])],
        [
            Evidence.of(waiting.WAITED(), seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence.of(waiting.AT_PIPES(), len(blocked.stacks), ""),
            Evidence.of(waiting.WORKERS(), window.workers, ""),
        ],
    )


RULES = (
    OrderedRule(claim, stall=150),
    OrderedRule(claim_usual, ordinary=60),
    OrderedRule(claim_network, ordinary=83),
    OrderedRule(claim_pipe, ordinary=85),
)
