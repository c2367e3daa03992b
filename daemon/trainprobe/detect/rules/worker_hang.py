"""A worker is blocked somewhere that is neither its queue nor storage, while the driver waits for it."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.detect.waiting import BLOCKED, shares, slowest
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """What is left of the wait, when workers were blocked outside of their queues beyond the ordinary."""
    if shares(window).blocked < 0.5:
        return None
    taken = take(left, states=[State.DATA_WAIT])
    if not taken:
        return None
    worker = slowest(window, *BLOCKED)
    chain = ["driver waits for its workers"]
    evidence = [
        Evidence("driver waited for data", seconds(sum(taken.values())), "s", window.driver_pid),
        Evidence("workers blocked outside of their queues", seconds(window.pool_ns(*BLOCKED)), "s"),
    ]
    summary = "a worker was blocked outside of its queue and of storage"
    if worker is not None:
        summary = f"worker {worker.pid} blocked in {worker.leaf.name.lower()} (system call {worker.syscall})"
        chain.append(summary)
        evidence.append(
            Evidence("worker blocked", seconds(window.end_ns - worker.since_ns), "s", worker.pid, worker.path or None)
        )
    return Claim(Cause.WORKER_HANG, taken, summary, chain, evidence)
