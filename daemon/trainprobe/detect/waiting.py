"""What the workers did while the driver waited for them: shares of the wait by kind of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Window, take
from trainprobe.model.cause import State
from trainprobe.model.cells import Leaf, RunState
from trainprobe.model.event import ThreadSample

STORAGE = (Leaf.FILE_READ, Leaf.FAULT)
CPU = (Leaf.CPU, Leaf.READ_CPU, Leaf.RUNQUEUE, Leaf.THROTTLED, Leaf.FILE_GAP)
SWAP = (Leaf.SWAP, Leaf.RECLAIM)
BLOCKED = (Leaf.SLEEP, Leaf.SOCKET, Leaf.CHILD, Leaf.OTHER, Leaf.STOPPED, Leaf.DEVICE, Leaf.FILE_SYNC, Leaf.FILE_WRITE)
FETCHING = (*BLOCKED, Leaf.LOCK, Leaf.POLL)
"""Where a worker of torch's DataLoader is blocked while it makes a batch: idle, it waits at its pipe. (Workers of other
pools are idle at a lock.)"""
_WORTH_A_LOCK = 0.7
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
    Leaf.POLL: "epoll or poll",
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


def waited(window: Window, left: Mapping[Item, float], part: float = 1.0) -> dict[Item, float]:
    """The driver's wait for its workers. A pool of processes (concurrent.futures, multiprocessing.Pool) answers through
    a thread of the driver's process, for which the driver waits at a lock: such a lock counts where workers did as much
    meanwhile, beyond the ordinary. Where a DataLoader is seen to fetch, its own waits are known, and a lock is none."""
    states = [State.DATA_WAIT]
    locked = sum(ns for (state, _, _), ns in window.excess.items() if state == State.LOCK)
    if window.setting.workers and not window.fetches_per_backward and locked > 0:
        worked = max(0.0, window.pool_ns(*STORAGE, *CPU, *SWAP, *BLOCKED))
        states += [State.LOCK] if worked >= _WORTH_A_LOCK * locked else []
    return take(left, states=states, part=part)


def slowest(window: Window, *leaves: Leaf) -> ThreadSample | None:
    """The worker that has been in one of the leaves longest, of those seen last."""
    inside = [t for t in window.threads if t.leaf in leaves and t.run != RunState.GONE]
    return min(inside, key=lambda t: t.since_ns, default=None)
