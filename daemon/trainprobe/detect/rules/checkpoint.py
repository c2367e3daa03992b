"""The driver writes a checkpoint, or waits for the thread or process that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainprobe.derive.ledger import Item
from trainprobe.derive.saves import Save
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

_WAITS = (Leaf.LOCK, Leaf.CHILD, Leaf.POLL, Leaf.PIPE_READ, Leaf.SLEEP)
SAVED_BESIDE = "driver waited for the one that saves"
"""Evidence of a save that runs beside the steps."""
_COVER = 0.8
"""A wait is for somebody else's save when the save covers so much of it."""

_WORTH_NS = NS // 100
"""A part of a save that took less is not told by itself."""


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `checkpoint`, and the driver's waits for saves by its other threads and processes."""
    taken = take(left, states=[State.CHECKPOINT])
    if not taken and not window.saves:
        return None
    others = [s for s in window.saves if s.tid != window.driver_tid]
    waits = take(left, states=[State.LOCK, State.COLLECTIVE, State.OTHER, State.SLEEP, State.DATA_WAIT], leaves=_WAITS)
    waited = sum(waits.values())
    if others and waited > 0:
        covered = sum(_overlap(s, window) for s in others)
        if covered >= _COVER * waited and waited > 0.25 * window.excess_ns:
            if waited > sum(taken.values()):
                return _for_another(window, {**taken, **waits}, others)
            taken = {**taken, **waits}
    if not taken:
        return None
    own = [s for s in window.saves if s.tid == window.driver_tid] or list(window.saves)
    own.sort(key=lambda s: -(s.write_ns + s.sync_ns + s.gap_ns + s.meta_ns))
    copied = _copied(window, left, sum(taken.values()))
    taken = {**taken, **copied}
    evidence = [
        Evidence("driver in the checkpoint's system calls", seconds(sum(taken.values())), "s", window.driver_pid)
    ]
    if copied:
        copying = seconds(sum(copied.values()))
        evidence.append(Evidence("of it the driver waited for copies from the GPU", copying, "s", window.driver_pid))
    for save in own[:3]:
        evidence += _of(save, window)
    removals = [r for r in window.removals if r.tid == window.driver_tid]
    evidence += [
        Evidence("seconds in removing it", seconds(r.end_ns - r.start_ns), "s", window.driver_pid, r.path)
        for r in removals
        if r.end_ns - r.start_ns > _WORTH_NS
    ]
    path = own[0].path if own else "a checkpoint"
    size = sum(s.bytes for s in own)
    summary = f"checkpoint {path}: {size / 1e6:.0f} MB" if size else f"checkpoint {path}"
    sync = sum(s.sync_ns for s in own)
    if sync > 0.5 * sum(taken.values()):
        summary += f", {seconds(sync):.2f} s of it in fsync"
    removing = sum(r.end_ns - r.start_ns for r in removals)
    if removing > 0.25 * sum(taken.values()):
        summary += f", {seconds(removing):.2f} s in removing an older one"
    return Claim(Cause.CHECKPOINT, taken, summary, [f"driver writes {path}"], evidence)


def _for_another(window: Window, taken: Mapping[Item, float], saves: Sequence[Save]) -> Claim:
    """The driver waits for its thread or process that saves: to end, or for the interpreter that the thread holds."""
    saves = sorted(saves, key=lambda one: -_overlap(one, window))
    first = saves[0]
    who = f"thread {first.tid}" if first.key[0] == window.driver_pid else f"process {first.key[0]}"
    evidence = [
        Evidence(SAVED_BESIDE, seconds(sum(taken.values())), "s", window.driver_pid),
        *(found for save in saves[:3] for found in _of(save, window)),
    ]
    return Claim(
        Cause.CHECKPOINT,
        taken,
        f"waiting for {who} of the training, which writes checkpoint {first.path}",
        [f"driver waits for {who}", f"{who} writes {first.path}"],
        evidence,
    )


def _copied(window: Window, left: Mapping[Item, float], written: float) -> dict[Item, float]:
    """Waits for the GPU between the calls of the driver's own save: its tensors come from there."""
    waits = take(left, states=[State.GPU_WAIT])
    room = sum(_overlap(s, window) for s in window.saves if s.tid == window.driver_tid) - written
    total = sum(waits.values())
    return take(waits, part=min(1.0, room / total)) if room > 0 and total > 0 else {}


def _overlap(save: Save, window: Window) -> int:
    end = window.end_ns if save.end_ns is None else min(save.end_ns, window.end_ns)
    return max(0, end - max(save.start_ns, window.start_ns))


def _of(save: Save, window: Window) -> list[Evidence]:
    spent = (save.end_ns or window.end_ns) - save.start_ns
    rate = save.bytes / (spent / NS) if spent > 0 else 0.0
    out = []
    if save.bytes:  # of a small or a new file they are told when it is closed
        out.append(Evidence("bytes written", save.bytes, "bytes", save.key[0], save.path))
    for what, ns in (
        ("write", save.write_ns),
        ("fsync", save.sync_ns),
        ("rename", save.rename_ns),
        ("open", save.meta_ns),
        ("serialising", save.gap_ns),
    ):
        if ns > _WORTH_NS:
            out.append(Evidence(f"seconds in {what}", seconds(ns), "s", save.key[0], save.path))
    if rate:
        out.append(Evidence("rate", round(rate / 1e6, 1), "MB/s", save.key[0], save.path))
    return out
