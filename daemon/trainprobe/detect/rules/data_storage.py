"""The data's storage is slow: workers, or the driver itself, are blocked in reads and in faults on mapped files."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.detect.waiting import STORAGE, shares, slowest, waited
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
        taken |= waited(window, left, part)
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
    chain, path = _chain(window, own=bool(inline) and part == 0, evidence=evidence)
    where = f" on {path}" if path else ""
    return Claim(Cause.DATA_STORAGE, taken, f"reading data from slow storage{where}", chain, evidence)


def _chain(window: Window, *, own: bool, evidence: list[Evidence]) -> tuple[list[str], str]:
    """Driver, worker, file, device: as far as the waiting was seen; and the file."""
    seen = window.late.worker
    worker = slowest(window, *STORAGE)
    pid, path, dev = window.driver_pid, "", 0
    if seen is not None and seen.leaf in STORAGE:
        pid, path, dev = seen.pid, seen.path, seen.dev
        evidence.append(Evidence("worker blocked", seconds(seen.ns), "s", pid, path or None))
    elif worker is not None:
        pid, path, dev = worker.pid, worker.path, worker.dev
        evidence.append(Evidence("worker blocked", seconds(window.end_ns - worker.since_ns), "s", pid, path or None))
    elif window.slow_files:
        path, dev = window.slow_files[0].path, window.slow_files[0].dev
    chain = ["driver reads its data"] if own else ["driver waits for its workers"]
    if pid != window.driver_pid:
        chain = [f"driver waits for worker {pid}", f"worker {pid} in read on {path or 'a file'}"]
    device = window.devices.of(dev) if window.devices is not None and dev else None
    if device is not None:
        chain.append(device.told())
        rate = device.read_rate
        evidence.append(
            Evidence("device read", None if rate is None else round(rate / 1e6, 1), "MB/s", None, device.name)
        )
        if device.busy_share is not None:
            evidence.append(Evidence("device busy", round(device.busy_share, 3), "ratio", None, device.name))
    return chain, path
