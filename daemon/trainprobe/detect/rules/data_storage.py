"""The data's storage is slow: workers, or the driver itself, are blocked in reads and in faults on mapped files."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.detect.waiting import STORAGE, shares, slowest
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence

_OWN = 0.6
"""The driver's own loading is storage's fault when it is blocked for so much of it."""


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The wait's share in which workers were blocked on storage; the driver's own loading where it mostly was."""
    taken = take(left, states=[State.FAULT_IO])
    part = shares(window).storage
    if part > 0:
        taken |= take(left, states=[State.DATA_WAIT], part=part)
    inline = take(left, states=[State.DATA_INLINE])
    blocked = take(inline, leaves=[Leaf.FILE_READ, Leaf.FAULT])
    if blocked and sum(blocked.values()) >= _OWN * sum(inline.values()):
        taken |= inline
    if not taken:
        return None
    evidence = [Evidence("driver waited for storage", seconds(sum(taken.values())), "s", window.driver_pid)]
    pool = window.pool_ns(*STORAGE)
    if pool > 0:
        evidence.append(Evidence("workers blocked in reads and file faults", seconds(pool), "s"))
    worker = slowest(window, *STORAGE)
    chain = ["driver reads its data" if inline and part == 0 else "driver waits for its workers"]
    if worker is not None:
        path = worker.path or "a file"
        chain.append(f"worker {worker.pid} in read on {path}")
        evidence.append(
            Evidence("worker blocked", seconds(window.end_ns - worker.since_ns), "s", worker.pid, worker.path or None)
        )
    where = f" on {worker.path}" if worker is not None and worker.path else ""
    return Claim(Cause.DATA_STORAGE, taken, f"reading data from slow storage{where}", chain, evidence)
