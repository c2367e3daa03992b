"""What was told of a training in which nothing was planted, held against its own clock. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.stalls.score import match
from benchmarks.stalls.truth import Truth, queued_seconds

CLOCK_ROOM = 1.1
QUEUED_SECONDS = 0.01
"""What may be told of a wait for processors: so much more, and so many seconds more, than the kernel itself counted."""

Json = dict[str, Any]


@dataclass
class Told:
    """Everything that was ever told of one training, also what was taken back later."""

    rank: Json | None = None  # as it was told last
    stalls: dict[str, Json] = field(default_factory=dict)
    bottlenecks: dict[str, Json] = field(default_factory=dict)
    warnings: set[str] = field(default_factory=set)
    largest_drift: float = 0.0  # ratio per 1000 steps, once 1000 steps were made
    queues: list[tuple[float, dict[int, float]]] = field(default_factory=list)
    """(UNIX seconds, pid -> seconds its main thread has waited for processors): driver and workers, by the kernel."""
    standstills: list[tuple[float, float]] = field(default_factory=list)
    """(UNIX seconds of its end, seconds): when the host's processors stood still, by a program that only sleeps."""

    def add(self, rank: Json) -> None:
        self.rank = rank
        self.stalls.update((stall["id"], stall) for stall in rank["stalls"])
        self.bottlenecks.update((one["cause"], one) for one in rank["bottlenecks"])
        self.warnings.update(warning["cause"] for warning in rank["warnings"])
        drift = rank["steps"]["drift_ratio_per_1000_steps"]
        if drift is not None and rank["steps"]["count"] >= 1000:
            self.largest_drift = max(self.largest_drift, abs(drift))

    def to_json(self) -> Json:
        return vars(self) | {"warnings": sorted(self.warnings), "queues": [], "standstills": []}

    def stood_still(self, start: float, end: float) -> float:
        """Seconds between two moments in which they did."""
        times = ((at - seconds, at) for at, seconds in self.standstills)
        return sum(max(0.0, min(last, end) - max(first, start)) for first, last in times)

    def queued(self, start: float, end: float) -> float:
        """Seconds that driver and workers waited for processors between the looks before and after a stretch."""
        before = next((seen for at, seen in reversed(self.queues) if at <= start), {})
        after = next((seen for at, seen in self.queues if at >= end), self.queues[-1][1] if self.queues else {})
        return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


@dataclass(frozen=True)
class Verdict:
    """``false``: told, and not so. ``crowded``: told as contention, and the kernel counted that wait too, or the host
    stood still for so long."""

    hours: float
    steps: int
    told_steps: int
    false: list[str]
    crowded: list[str]
    crowded_seconds: float
    drift: bool
    largest_drift: float

    def to_json(self) -> Json:
        return dict(vars(self))


def judge(told: Told, truth: Truth, seconds: float) -> Verdict:
    """``seconds``: how long the training ran. Raises ValueError when nothing was told of it: it was not watched."""
    if told.rank is None:
        raise ValueError(f"the daemon told nothing of pid {truth.pid}")
    false, crowded, crowded_seconds = [], [], 0.0
    for found in match([], list(told.stalls.values()), truth):
        queued = max(found.queued, told.queued(found.start, found.start + found.reported))
        stood = told.stood_still(found.start, found.start + found.reported)
        text = f"stall {'+'.join(found.said)} of {found.reported:.3f} s at {found.start:.2f}, queued {queued:.3f} s"
        text += f", the host stood still for {stood:.3f} s" if stood else ""
        if set(found.said) == {"cpu_contention"} and found.reported <= _room(queued + stood):
            crowded.append(text)
            crowded_seconds += found.reported
        else:
            false.append(text)
    for cause, one in told.bottlenecks.items():
        queued = max(queued_seconds(truth), told.queued(0.0, math.inf))
        if cause != "cpu_contention" or one["seconds"] > _room(queued):
            false.append(f"bottleneck {cause}: {one['summary']}")
    false += [f"warning {cause}" for cause in sorted(told.warnings)]
    return Verdict(
        seconds / 3600,
        truth.steps,
        told.rank["steps"]["count"],
        false,
        crowded,
        crowded_seconds,
        "drift" in told.bottlenecks,
        told.largest_drift,
    )


def summary(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Lines for a reader, one for each training and one for all."""
    lines = [
        f"{name:<26} {one.hours:5.2f} h {one.steps:6d} steps (told {one.told_steps}), false {len(one.false)}, "
        f"real contention {len(one.crowded)} ({one.crowded_seconds:.2f} s), "
        f"drift {'TOLD' if one.drift else 'none'} (largest slope {100 * one.largest_drift:.1f} % per 1000 steps)"
        for name, one in verdicts.items()
    ]
    values = verdicts.values()
    hours, steps = sum(one.hours for one in values), sum(one.steps for one in values)
    false, crowded = sum(len(one.false) for one in values), sum(len(one.crowded) for one in values)
    return [*lines, f"all: {hours:.2f} job-hours, {steps} steps, {false} false, {crowded} of real contention"]


def _room(queued: float) -> float:
    return CLOCK_ROOM * queued + QUEUED_SECONDS
