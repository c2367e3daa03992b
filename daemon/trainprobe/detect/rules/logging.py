"""The driver writes logs, event files, or to a terminal or pipe that does not take it."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.report import Evidence

_STORM = 200
"""Calls on logs in one step, from which on it may be a storm …"""
_EACH = 200_000
"""… and ns of CPU for each: formatting a line and Python's way to the call take tens of microseconds."""


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `logging`; in a storm of calls on logs also the CPU between them, which goes into making them."""
    taken = take(left, states=[State.LOGGING])
    if not taken:
        return None
    total = sum(taken.values())
    calls = sum(log.calls for log in window.logs)
    between = take(left, states=[State.COMPUTE], leaves=[Leaf.CPU, Leaf.FILE_GAP], regions=_regions(taken))
    spent = sum(between.values())
    storm = calls >= _STORM and spent <= _EACH * calls
    if storm:
        taken |= between
    stream = sum(ns for (_, _, leaf), ns in taken.items() if leaf == Leaf.STREAM_OUT)
    logs = sorted(window.logs, key=lambda log: -log.ns)
    evidence = [Evidence("driver in calls on logs", seconds(total), "s", window.driver_pid)]
    if storm:
        evidence.append(Evidence("calls on logs", calls, "", window.driver_pid))
        evidence.append(Evidence("driver on the CPU between them", seconds(spent), "s", window.driver_pid))
    evidence += [
        Evidence("log written", log.bytes, "bytes", window.driver_pid, log.path) for log in logs[:3] if log.path
    ]
    if stream > total / 2:
        summary, chain = "writing to a pipe or terminal whose reader is slow", ["driver blocked in write to a pipe"]
        evidence.append(Evidence("blocked in write to a pipe or terminal", seconds(stream), "s", window.driver_pid))
    else:
        path = next((log.path for log in logs if log.path), "logs")
        summary, chain = f"writing {path}", [f"driver writes {path}"]
    return Claim(Cause.LOGGING, taken, summary, chain, evidence)


def _regions(items: Mapping[Item, float]) -> list[Region]:
    return list({region for _, region, _ in items})
