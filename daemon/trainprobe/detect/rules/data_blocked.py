"""The driver waits for its workers, and they are blocked, neither in storage nor in their queue, as for every batch.

Where they usually are not, a worker hangs (`worker_hang`).
"""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds
from trainprobe.detect.waiting import CPU, FETCHING, LEAF_WORDS, STORAGE, SWAP, waited
from trainprobe.model.cause import Cause
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence

_MOST = 0.5
"""Of what the workers do: where they are blocked for less of it, batches are dear for another reason."""
_USUAL = 0.25
"""Of the workers' time in ordinary steps: then it is how this data is fetched."""


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Of a late step the wait, where workers mostly were blocked in it and are so usually. (One that waits for much
    longer than a batch takes hangs, also then.)"""
    usual = window.usual_ns(*FETCHING) >= _USUAL * window.baseline_ns * max(1, window.workers)
    return claim_usual(window, left) if usual and window.excess_ns < window.policy.hang_ns else None


def claim_usual(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Of ordinary steps. On sockets it is storage that lies behind a network."""
    blocked = window.pool_ns(*FETCHING)
    mostly = blocked >= _MOST * (blocked + window.pool_ns(*CPU, *STORAGE, *SWAP))
    taken = waited(window, left) if mostly and blocked > 0 and window.fetches_per_backward else {}
    if not taken:
        return None
    leaf = max(FETCHING, key=lambda one: window.pool_ns(one))
    told = seconds(blocked)
    summary = f"workers were blocked in {LEAF_WORDS[leaf]} for {told:.2f} s while the driver waited for their batches"
    if leaf == Leaf.SOCKET:
        summary = f"reading data over the network: workers were blocked in socket calls for {told:.2f} s"
    return Claim(
        Cause.DATA_STORAGE if leaf == Leaf.SOCKET else Cause.UNKNOWN,
        taken,
        summary,
        ["driver waits for its workers", f"workers blocked in {LEAF_WORDS[leaf]}"],
        [
            Evidence("driver waited for data", seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence("workers blocked outside of their queues", told, "s"),
            Evidence("workers", window.workers, ""),
        ],
    )
