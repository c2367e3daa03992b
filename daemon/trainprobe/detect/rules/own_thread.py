"""The driver waits at a lock for another thread of its own process, which makes or reads the data."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.late import Beside
from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence

_MOSTLY = 0.5
"""Of the looks, or of the time between them."""


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The lock's wait, when one thread beside it was blocked on a device, or is Python's and was on the CPU.

    Threads that sleep or poll are no evidence: monitors and log writers do that all day. Nor are a library's own
    threads on the CPU (OpenMP): they do the driver's work.
    """
    taken = take(left, states=[State.LOCK])
    if not taken:
        return None
    beside = window.late.beside.values()
    reading = [one for one in beside if one.reading >= max(1.0, _MOSTLY * one.looks)]
    if reading:
        return _reads(window, taken, max(reading, key=lambda one: one.reading))
    busy = [one for one in beside if one.own_tid in window.python_threads and one.busy() >= _MOSTLY]
    return _works(window, taken, max(busy, key=lambda one: one.busy())) if busy else None


def _reads(window: Window, taken: dict[Item, float], thread: Beside) -> Claim:
    told = f"thread {thread.tid} of the training is blocked on {thread.path or 'a file'}"
    return Claim(
        Cause.DATA_STORAGE,
        taken,
        f"reading data from slow storage in a thread on {thread.path}" if thread.path else told,
        [f"driver waits for thread {thread.tid}", told],
        [
            _waited(window, taken),
            Evidence(
                "looks that found the thread blocked on a device", thread.reading, "", thread.tid, thread.path or None
            ),
            Evidence("looks", thread.looks, ""),
        ],
    )


def _works(window: Window, taken: dict[Item, float], thread: Beside) -> Claim:
    frames = [one.frame for stack in window.late.stacks for one in stack.others if one.own_tid == thread.own_tid]
    where = f" in {frames[-1]}" if frames else ""
    told = f"thread {thread.tid} of the training on the CPU{where}"
    return Claim(
        Cause.DATA_CPU,
        taken,
        f"the driver waited for {told}",
        [f"driver waits for thread {thread.tid}", told],
        [
            _waited(window, taken),
            Evidence("the thread's share of a processor meanwhile", round(thread.busy(), 3), "ratio", thread.tid),
        ],
    )


def _waited(window: Window, taken: Mapping[Item, float]) -> Evidence:
    return Evidence("driver waited at a lock", seconds(sum(taken.values())), "s", window.driver_pid)
