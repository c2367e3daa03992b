"""A call on a file does not come back: its device, or its server, has stopped answering."""

from __future__ import annotations

from trainprobe.causes import groups, io_limit
from trainprobe.causes.advice import always
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import A_FILE, IN_CALL, SYSTEM_CALL, WAITS_FOR_WORKERS
from trainprobe.derive.steps.late_step import FROZEN_WAITS, Wait
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("storage_hang.summary", "{call} on {path} did not come back for {seconds:seconds}{still}")
STILL = template("storage_hang.still", ", its device moved no byte")
DRIVER = template("storage_hang.driver", "training thread in {call} on {path}")
WORKER = template("storage_hang.worker", "worker {pid} in {call} on {path}")
DEVICE = template("storage_hang.device", "device {major}:{minor} has moved no byte for {seconds:seconds}")
KERNEL = template("storage_hang.kernel", "in the kernel it waits in {wchan}{frozen}")
FROZEN = template("storage_hang.frozen", " (the file system is frozen)")
CALL_SECONDS = template("storage_hang.call_seconds", "call in flight")
STILL_SECONDS = template("storage_hang.still_seconds", "its device moved no byte for")
WCHAN = template("storage_hang.wchan", "waits in the kernel in")
_CALLS = {
    **IN_CALL,
    Leaf.FILE_READ: template("storage_hang.read_or_open", "read or open")(),
    Leaf.FILE_META: template("storage_hang.open_rename_unlink", "open, rename or unlink")(),
}


def claim(window: Window, left: Items) -> Claim | None:
    """The driver's time in the leaf that hung; its wait for data where a worker did."""
    hang = window.late.hang
    if hang is None:
        return None
    if hang.ns < window.policy.blind_hang_ns and io_limit.of_device(window, hang.dev) is not None:
        return None  # the kernel makes it wait for its turn: the device moves nothing meanwhile, and yet answers
    own = hang.pid == window.driver_pid
    whole = take_items(left, leaves=[hang.leaf]) if own else take_items(left, states=[State.DATA_WAIT])
    total = sum(whole.values())
    if total <= 0:
        return None
    # The same call may have gone on for a while before and after it hung: that part is somebody else's.
    part = min(1.0, hang.ns / total)
    taken = whole if part > 0.9 else {item: ns * part for item, ns in whole.items()}
    return Claim(Cause.STORAGE_HANG, taken, _summary(hang), _chain(hang, own), _evidence(hang))


def _summary(hang: Wait) -> Message:
    still = STILL() if hang.still_ns is not None else None
    return SUMMARY(call=_CALLS[hang.leaf], path=hang.path or A_FILE(), seconds=seconds(hang.ns), still=still)


def _chain(hang: Wait, own: bool) -> list[Message]:
    call, path = _CALLS[hang.leaf], hang.path or A_FILE()
    chain = [WAITS_FOR_WORKERS(), WORKER(pid=hang.pid, call=call, path=path)]
    if own:
        chain = [DRIVER(call=call, path=path)]
    if hang.still_ns is not None:
        chain.append(DEVICE(major=hang.dev >> 20, minor=hang.dev & 0xFFFFF, seconds=seconds(hang.still_ns)))
    if hang.wchan:
        chain.append(KERNEL(wchan=hang.wchan, frozen=FROZEN() if hang.wchan in FROZEN_WAITS else None))
    return chain


def _evidence(hang: Wait) -> list[Evidence]:
    found = [Evidence.of(CALL_SECONDS(), seconds(hang.ns), "s", hang.pid, hang.path or None)]
    if hang.call:
        found.append(Evidence.of(SYSTEM_CALL(), hang.call, "", hang.pid))
    if hang.still_ns is not None:
        found.append(Evidence.of(STILL_SECONDS(), seconds(hang.still_ns), "s", hang.pid))
    if hang.wchan:
        found.append(Evidence.of(WCHAN(), hang.wchan, "", hang.pid))
    return found


LOOK_AT_STORAGE = template(
    "storage_hang.advice.look_at_storage",
    "look at the storage's device or server (kernel log, mount, quota, frozen?): it did not answer",
)
SAVE_LOCALLY = template(
    "storage_hang.advice.save_locally",
    "save to a local disk and copy from there, so that the training does not wait for a file system that hangs",
)


SPEC = CauseSpec(
    "storage_hang",
    kinds=frozenset({Kind.STALL}),
    title="storage that does not answer",
    short="a slow call of the storage",
    colours=("#9f1239", "#fb7185"),
    group=groups.STORAGE_HANG,
    rules=(OrderedRule(claim, stall=20),),
    advice=always(LOOK_AT_STORAGE, SAVE_LOCALLY),
    worker_stack=True,
)
