"""The driver waits for its workers, and they are blocked, neither in storage nor in their queue, as for every batch, or
most of them at once in sockets, as for the next shards.

Else a worker hangs (`worker_hang`).
"""

from __future__ import annotations

from trainprobe.causes import waiting
from trainprobe.causes.base import Claim, Items, Window, excess_ns, pool_ns, seconds, usual_ns
from trainprobe.causes.spec import OrderedRule
from trainprobe.derive.python.stacks import MOST, common
from trainprobe.model.cause import Cause
from trainprobe.model.cells import Leaf
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

NETWORK = template(
    "data_blocked.network", "reading data over the network: workers were blocked in socket calls for {seconds:seconds}"
)
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
    network = leaf == Leaf.SOCKET
    return Claim(
        Cause.DATA_STORAGE if network else Cause.UNKNOWN,
        taken,
        NETWORK(seconds=told) if network else waiting.BLOCKED_BATCHES(call=waiting.IN_CALL[leaf], seconds=told),
        [waiting.WAITS_FOR_WORKERS(), BLOCKED_IN(call=waiting.IN_CALL[leaf])],
        [
            Evidence.of(waiting.WAITED(), seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence.of(waiting.BLOCKED_OUTSIDE(), told, "s"),
            Evidence.of(waiting.WORKERS(), window.workers, ""),
            *waiting.new_epoch(window),
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
    OrderedRule(claim_pipe, ordinary=85),
)
