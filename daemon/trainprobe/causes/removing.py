"""What removals of older checkpoints by the driver take, as a part of what its saves cost."""

from __future__ import annotations

from trainprobe.causes.base import Claim, Items, Window, seconds
from trainprobe.model.cause import Cause
from trainprobe.model.message import template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

REMOVED = template("checkpoint.removed", ", {seconds:seconds} in removing an older one")
REMOVES = template("checkpoint.removes", "removing checkpoint {path} for {seconds:seconds}")
REMOVING = template("checkpoint.removing", "training thread removes {path}")
SECONDS = template("checkpoint.removing_seconds", "time to remove it")
BESIDE = template(
    "checkpoint.advice.remove_beside",
    "remove older checkpoints from another thread or process: the file system frees their blocks before the call ends",
)
_WORTH_NS = NS // 100


def found(window: Window) -> tuple[int, list[Evidence]]:
    """ns in the calls, and those that took long."""
    own = [one for one in window.removals if one.tid == window.driver_tid]
    long = [one for one in own if one.ns > _WORTH_NS]
    evidence = [Evidence.of(SECONDS(), seconds(one.ns), "s", window.driver_pid, one.path) for one in long]
    return sum(one.ns for one in own), evidence


def alone(window: Window, taken: Items, evidence: list[Evidence]) -> Claim:
    """In a step without a save."""
    own = [one for one in window.removals if one.tid == window.driver_tid]
    path = max(own, key=lambda one: one.ns).path
    summary = REMOVES(path=path, seconds=seconds(sum(taken.values())))
    return Claim(Cause.CHECKPOINT, taken, summary, [REMOVING(path=path)], evidence)
