"""A call on a file does not come back: its device, or its server, has stopped answering."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.late import FROZEN_WAITS, Waiting
from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence

_CALLS = {
    Leaf.FILE_READ: "read or open",
    Leaf.FILE_WRITE: "write",
    Leaf.FILE_SYNC: "fsync",
    Leaf.FILE_META: "open, rename or unlink",
    Leaf.FAULT: "a fault on a mapped file",
}


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The driver's time in the leaf that hung; its wait for data where a worker did."""
    hang = window.late.hang
    if hang is None:
        return None
    own = hang.pid == window.driver_pid
    whole = take(left, leaves=[hang.leaf]) if own else take(left, states=[State.DATA_WAIT])
    total = sum(whole.values())
    if total <= 0:
        return None
    # The same call may have gone on for a while before and after it hung: that part is somebody else's.
    part = min(1.0, hang.ns / total)
    taken = whole if part > 0.9 else {item: ns * part for item, ns in whole.items()}
    return Claim(Cause.STORAGE_HANG, taken, _told(hang), _chain(hang, own), _evidence(hang))


def _told(hang: Waiting) -> str:
    what = f"{_CALLS[hang.leaf]} on {hang.path or 'a file'} did not come back for {seconds(hang.ns):.1f} s"
    return f"{what}, its device moved no byte" if hang.still_ns is not None else what


def _chain(hang: Waiting, own: bool) -> list[str]:
    where = f"in {_CALLS[hang.leaf]} on {hang.path or 'a file'}"
    chain = [f"driver {where}"] if own else ["driver waits for its workers", f"worker {hang.pid} {where}"]
    if hang.still_ns is not None:
        chain.append(
            f"device {hang.dev >> 20}:{hang.dev & 0xFFFFF} has moved no byte for {seconds(hang.still_ns):.1f} s"
        )
    if hang.wchan:
        frozen = " (the file system is frozen)" if hang.wchan in FROZEN_WAITS else ""
        chain.append(f"in the kernel it waits in {hang.wchan}{frozen}")
    return chain


def _evidence(hang: Waiting) -> list[Evidence]:
    found = [Evidence("call in flight", seconds(hang.ns), "s", hang.pid, hang.path or None)]
    if hang.call:
        found.append(Evidence("system call", hang.call, "", hang.pid))
    if hang.still_ns is not None:
        found.append(Evidence("its device moved no byte for", seconds(hang.still_ns), "s", hang.pid))
    if hang.wchan:
        found.append(Evidence("waits in the kernel in", hang.wchan, "", hang.pid))
    return found
