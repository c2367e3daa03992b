"""Everybody waits on a futex and nothing moves."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence

_PART = 0.5
"""Of the wait, in which nothing moved: a worker that got its lock and then worked for longer was late by its work."""


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Waits for workers of which one has long been blocked on a lock, while no worker did anything."""
    seen = window.late.worker
    if seen is None or seen.leaf != Leaf.LOCK:
        return None
    still = window.late.locked_ns
    taken = take(left, states=[State.DATA_WAIT, State.LOCK])
    if still < max(window.policy.deadlock_ns, _PART * sum(taken.values())) or not taken:
        return None
    stack = window.late.stack_of(seen.pid)
    where = f", in {stack[-1]}" if stack else ""
    return Claim(
        Cause.DEADLOCK,
        taken,
        f"worker {seen.pid} blocked on a lock for {seconds(seen.ns):.1f} s{where}; nothing runs",
        [
            f"driver waits for worker {seen.pid}",
            f"worker {seen.pid} blocked in futex{where}",
            "no worker does anything",
        ],
        [
            Evidence("worker blocked in futex", seconds(seen.ns), "s", seen.pid),
            Evidence("no worker did anything for", seconds(still), "s"),
        ],
    )
