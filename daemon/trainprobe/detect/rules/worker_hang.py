"""A worker is blocked somewhere that is neither its queue nor storage, while the driver waits for it."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds
from trainprobe.detect.waiting import BLOCKED, LEAF_WORDS, shares, waited
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence

SINCE_DEATH = "since the worker's death"


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """What is left of the wait, when workers were blocked outside of their queues beyond the ordinary."""
    blocked = shares(window).blocked >= 0.5
    if not blocked and not window.deaths:
        return None
    taken = waited(window, left)
    if not taken:
        return None
    if not blocked:
        return _of_the_dead(window, taken)
    chain = ["driver waits for its workers"]
    evidence = [
        Evidence("driver waited for data", seconds(sum(taken.values())), "s", window.driver_pid),
        Evidence("workers blocked outside of their queues", seconds(window.pool_ns(*BLOCKED)), "s"),
    ]
    summary = "a worker was blocked outside of its queue and of storage"
    seen = window.late.worker
    if seen is not None and seen.leaf in BLOCKED:
        stack = window.late.stack_of(seen.pid)
        where = f", in {stack[-1]}" if stack else ""
        on = f" on {seen.path}" if seen.path else ""
        summary = f"worker {seen.pid} blocked in {LEAF_WORDS[seen.leaf]}{on} for {seconds(seen.ns):.1f} s{where}"
        chain = [f"driver waits for worker {seen.pid}", summary]
        evidence.append(Evidence("worker blocked", seconds(seen.ns), "s", seen.pid, seen.path or None))
        if seen.call:
            evidence.append(Evidence("system call", seen.call, "", seen.pid))
    return Claim(Cause.WORKER_HANG, taken, summary, chain, evidence)


def _of_the_dead(window: Window, taken: dict[Item, float]) -> Claim:
    """The others idle and one is dead: its batch will not come. A loader that does not look after its processes waits
    for ever, and even one that does, where the dead one left half a message in a pipe or a lock held."""
    death = window.deaths[-1]
    return Claim(
        Cause.WORKER_HANG,
        taken,
        f"{death.told()}; the driver waits for its batch",
        [f"driver waits for worker {death.pid}", death.told()],
        [
            Evidence("driver waited for data", seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence(SINCE_DEATH, seconds(window.end_ns - death.at_ns), "s", death.pid),
        ],
    )
