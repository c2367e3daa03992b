"""Everybody waits on a futex and nothing moves."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.detect.waiting import IDLE
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.event import RunState
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """Waits for workers that are themselves blocked on locks, for at least the time that a hang takes to be one."""
    stuck = [t for t in window.threads if t.leaf == Leaf.LOCK and t.run == RunState.BLOCKED]
    long = [t for t in stuck if window.end_ns - t.since_ns >= window.policy.hang_ns]
    if not long or any(t.leaf not in IDLE for t in window.threads):
        return None
    taken = take(left, states=[State.DATA_WAIT, State.LOCK])
    if not taken:
        return None
    return Claim(
        Cause.DEADLOCK,
        taken,
        f"{len(long)} workers blocked on a lock since {seconds(window.end_ns - long[0].since_ns):.0f} s; nothing runs",
        ["driver waits for its workers", f"worker {long[0].pid} blocked in futex"],
        [Evidence("worker blocked in futex", seconds(window.end_ns - t.since_ns), "s", t.pid) for t in long[:4]],
    )
