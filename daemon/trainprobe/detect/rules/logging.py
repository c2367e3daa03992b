"""The driver writes logs, event files, or to a terminal or pipe that does not take it."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `logging`."""
    taken = take(left, states=[State.LOGGING])
    if not taken:
        return None
    total = sum(taken.values())
    stream = sum(ns for (_, _, leaf), ns in taken.items() if leaf == Leaf.STREAM_OUT)
    logs = sorted(window.logs, key=lambda log: -log.ns)
    evidence = [Evidence("driver in calls on logs", seconds(total), "s", window.driver_pid)]
    evidence += [Evidence("log written", log.bytes, "bytes", window.driver_pid, log.path) for log in logs[:3]]
    if stream > total / 2:
        summary, chain = "writing to a pipe or terminal whose reader is slow", ["driver blocked in write to a pipe"]
        evidence.append(Evidence("blocked in write to a pipe or terminal", seconds(stream), "s", window.driver_pid))
    else:
        path = logs[0].path if logs else "a log"
        summary, chain = f"writing {path}", [f"driver writes {path}"]
    return Claim(Cause.LOGGING, taken, summary, chain, evidence)
