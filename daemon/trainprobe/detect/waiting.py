"""What the workers did while the driver waited for them: shares of the wait by kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.detect.base import Window
from trainprobe.model.cells import Leaf
from trainprobe.model.event import RunState, ThreadSample

STORAGE = (Leaf.FILE_READ, Leaf.FAULT)
CPU = (Leaf.CPU, Leaf.READ_CPU, Leaf.RUNQUEUE, Leaf.THROTTLED, Leaf.FILE_GAP)
SWAP = (Leaf.SWAP, Leaf.RECLAIM)
BLOCKED = (Leaf.SLEEP, Leaf.SOCKET, Leaf.CHILD, Leaf.OTHER, Leaf.STOPPED, Leaf.DEVICE, Leaf.FILE_SYNC, Leaf.FILE_WRITE)
LEAF_WORDS = {
    Leaf.SLEEP: "a sleep",
    Leaf.SOCKET: "a socket call",
    Leaf.CHILD: "waiting for a child process",
    Leaf.OTHER: "a system call",
    Leaf.STOPPED: "a stop (SIGSTOP, a tracer or the freezer)",
    Leaf.DEVICE: "a device call",
    Leaf.FILE_SYNC: "fsync",
    Leaf.FILE_WRITE: "write",
    Leaf.FILE_READ: "read",
    Leaf.FAULT: "a fault on a mapped file",
    Leaf.LOCK: "futex",
}
"""Where a thread is blocked, for people."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Shares (they add up to 1, or all are 0 when the workers did nothing beyond the ordinary)."""

    storage: float
    cpu: float
    swap: float
    blocked: float


def shares(window: Window) -> Busy:
    """How the workers' time beyond an ordinary step divides."""
    parts = [max(0.0, window.pool_ns(*leaves)) for leaves in (STORAGE, CPU, SWAP, BLOCKED)]
    total = sum(parts)
    if total < 0.05 * window.excess_ns or total <= 0:
        return Busy(0.0, 0.0, 0.0, 0.0)
    return Busy(*(part / total for part in parts))


def slowest(window: Window, *leaves: Leaf) -> ThreadSample | None:
    """The worker that has been in one of the leaves longest, of those seen last."""
    inside = [t for t in window.threads if t.leaf in leaves and t.run != RunState.GONE]
    return min(inside, key=lambda t: t.since_ns, default=None)
