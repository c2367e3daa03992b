"""Somebody stopped, traced or froze the driver."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence

_SIGTSTP = 20


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """All time in which the driver was stopped."""
    taken = take(left, states=[State.STOPPED])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    how, evidence = _by_whom(window)
    return Claim(
        Cause.SUSPENDED,
        taken,
        f"stopped for {told:.2f} s {how}",
        [f"driver stopped {how}"],
        [Evidence("driver stopped, traced or frozen", told, "s", window.driver_pid), *evidence],
    )


def _by_whom(window: Window) -> tuple[str, list[Evidence]]:
    """Who stopped it, as far as that was seen."""
    seen, stopper = window.late.inspection, window.stopper
    if stopper is not None:
        signal = "SIGTSTP" if stopper.signal == _SIGTSTP else "SIGSTOP"
        if not stopper.sender_pid:
            return f"by {signal}", [Evidence("signal", signal, "", window.driver_pid)]
        who = f"{stopper.sender_comm or 'pid'} ({stopper.sender_pid})"
        return f"by {signal} from {who}", [Evidence(f"{signal} sent by {who}", None, "", stopper.sender_pid)]
    if seen is not None and seen.frozen:
        return "by the cgroup freezer", [Evidence("cgroup frozen", "yes", "", window.driver_pid)]
    if seen is not None and seen.tracer_pid:
        who = f"{seen.tracer_comm or 'pid'} ({seen.tracer_pid})"
        return f"by its tracer {who}", [Evidence(f"traced by {who}", None, "", seen.tracer_pid)]
    return "by a signal, a tracer or the freezer", []
