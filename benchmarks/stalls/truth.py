"""What really happened in a run, by the training's own clock: read, and turned into the stalls that were planted."""

from __future__ import annotations

import json
from bisect import bisect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

NS = 1_000_000_000
BASELINE_STEPS = 8
"""Steps before the baseline stands: they belong to the start-up, nothing in them is a stall."""

READY = 3_000_000
"""Nanoseconds that taking over a batch which is ready costs at most, unpickling included."""


@dataclass(frozen=True)
class Iteration:
    """Nanoseconds, CLOCK_MONOTONIC; ``fetch`` is a duration within [begin, end]."""

    step: int
    begin: int
    stepping: int
    end: int
    fetch: int
    queued: int | None = None  # its thread's wait for processors so far, a duration, by the kernel's own count
    ran: int | None = None  # its thread's time on a processor so far, likewise
    fetch_unblocked: int = 0  # of ``fetch``, in which it ran or waited for a processor, where the training counts that


@dataclass(frozen=True)
class Planted:
    """Something that the driver did beside its steps."""

    cause: str
    begin: int
    end: int
    step: int
    facts: dict[str, Any]

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / NS


@dataclass
class Truth:
    """One process's file. ``offset`` turns its clock into UNIX nanoseconds."""

    pid: int
    process: int
    offset: int
    iterations: list[Iteration] = field(default_factory=list)
    planted: list[Planted] = field(default_factory=list)
    phases: list[tuple[str, int, int]] = field(default_factory=list)
    workers: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    end: int | None = None
    stopper: int | None = None  # pid of who stopped it from outside
    acts: list[tuple[int, int]] = field(default_factory=list)  # (begin, end) of what was done from outside

    def wall(self, mono: int) -> float:
        return (mono + self.offset) / NS

    @property
    def steps(self) -> int:
        """Steps of the optimiser that were taken, also by a training that did not reach its end."""
        return self.counts.get("optimizer_steps", len(self.iterations))


@dataclass(frozen=True)
class TrueStall:
    """A slow stretch in UNIX seconds; ``seconds`` is what it cost beyond an ordinary step."""

    cause: str
    start: float
    end: float
    seconds: float


def read(lines: Iterable[str], worker_lines: Iterable[str] = ()) -> Truth:
    """Raises ValueError when the file has no start row: the training never came so far."""
    rows = [json.loads(line) for line in lines if line.strip()]
    start = next((row for row in rows if row["row"] == "start"), None)
    if start is None:
        raise ValueError("the training left no truth")
    truth = Truth(start["pid"], start["process"], start["wall"] - start["mono"])
    for row in rows:
        kind = row["row"]
        if kind == "iteration":
            times = (row[name] for name in ("step", "begin", "stepping", "end", "fetch"))
            truth.iterations.append(Iteration(*times, row.get("queued"), row.get("ran"), row.get("fetch_unblocked", 0)))
        elif kind == "planted":
            truth.planted.append(Planted(row["cause"], row["begin"], row["end"], row["step"], row))
        elif kind == "phase":
            truth.phases.append((row["phase"], row["begin"], row["end"]))
        elif kind == "count":
            truth.counts.update({key: value for key, value in row.items() if key != "row"})
        elif kind == "end":
            truth.end = row["mono"]
    truth.workers = [json.loads(line) for line in worker_lines if line.strip()]
    return truth


def median_step(truth: Truth) -> float:
    """Seconds of an ordinary iteration, by the training's own clock."""
    return median(i.end - i.begin for i in truth.iterations) / NS


def pace_change(truth: Truth) -> float:
    """How the machine's pace changed: what the work that all steps have takes in the last third of them, by its length
    in the first. Without batches, and without what was planted."""
    planted: Counter[int] = Counter()
    for one in truth.planted:
        planted[one.step] += one.end - one.begin
    own = [i.end - i.begin - i.fetch - planted[i.step] for i in truth.iterations[BASELINE_STEPS:]]
    third = len(own) // 3
    return median(own[-third:]) / max(median(own[:third]), 1) if third else 1.0


def limit(truth: Truth) -> float:
    """The excess from which on a slow step is a stall."""
    return max(0.5 * median_step(truth), 0.05)


COMPUTED = frozenset({"cpu_bound", "gc_pause"})
"""Planted as computing for so long by the clock: what of it was waiting for a processor is not theirs."""
RUNNING = COMPUTED | {"drift"}
"""Planted as computing: what the driver did not run for in it was taken from it."""
ECHO = 200_000_000
"""Nanoseconds for which an act from outside may be felt after it: a period of the quota, a queue that empties."""
BESIDE = 8
"""Iterations before and after such an act that say how long one takes there without it."""
EDGE = 0.01
"""Seconds that an iteration at the edge of such an act has to have lost to count."""
OUTSIDE = frozenset({"suspended", "cpu_throttled", "cpu_contention", "collective_wait"})
"""Felt by the whole iteration: somebody else did it."""


def by_fetch(cause: str) -> bool:
    """Whether it counts as the driver felt it, waiting for data."""
    return cause.startswith("data_") or cause in ("worker_startup", "worker_hang", "deadlock", "fake_batching")


def planted_stalls(truth: Truth, cause: str) -> list[TrueStall]:
    """The planted slow stretches that were long enough to be stalls.

    What the driver did itself counts as long as it took: it lies beside the ordinary step. What was planted in the
    loading counts as the driver felt it: the excess of its wait for data over its ordinary wait.
    """
    if not truth.iterations:
        return []
    least = limit(truth)
    found = [
        TrueStall(p.cause, truth.wall(p.begin), truth.wall(p.end), p.seconds)
        for p in truth.planted
        if p.seconds >= least and p.step >= BASELINE_STEPS
    ]
    if cause in OUTSIDE:
        found += _felt(truth, cause, least)
    if by_fetch(cause):
        ordinary = median(i.fetch for i in truth.iterations)
        for i in truth.iterations[BASELINE_STEPS:]:
            excess = (i.fetch - ordinary) / NS
            if excess >= least:
                found.append(TrueStall(cause, truth.wall(i.begin), truth.wall(i.begin + i.fetch), excess))
    return sorted(found, key=lambda stall: stall.start)


def _felt(truth: Truth, cause: str, least: float) -> list[TrueStall]:
    """The slow iterations under an act from outside, with what it took of those beside them: it begins and ends in
    the midst of one."""
    found: list[TrueStall] = []
    edge, joins = 0.0, False  # lost by the iteration before, and whether that was a slow one
    for i in truth.iterations[BASELINE_STEPS:]:
        lost = (i.end - i.begin) / NS - _ordinary(truth, i)
        within = lost >= EDGE and _during(truth, i)
        if lost >= least and _acted(truth, i):
            found.append(TrueStall(cause, truth.wall(i.begin), truth.wall(i.end), lost + edge))
            edge, joins = 0.0, True
        elif within and joins:
            found[-1] = replace(found[-1], seconds=found[-1].seconds + lost)
            edge, joins = 0.0, False
        else:
            edge, joins = lost if within else 0.0, False
    return found


def _ordinary(truth: Truth, iteration: Iteration) -> float:
    """Seconds of an ordinary iteration around this one: a host that others share is not as fast all the time."""
    if not truth.acts:
        return median_step(truth)
    calm = [i for i in truth.iterations if not _during(truth, i, ECHO)]
    here = bisect(calm, iteration.begin, key=lambda i: i.begin)
    return median((i.end - i.begin) / NS for i in calm[max(0, here - BESIDE) : here + BESIDE])


def _acted(truth: Truth, iteration: Iteration) -> bool:
    """Whether it felt one of the acts; where none is known, all were."""
    return not truth.acts or _during(truth, iteration, ECHO)


def _during(truth: Truth, iteration: Iteration, echo: int = 0) -> bool:
    return any(iteration.begin < end + echo and iteration.end > begin for begin, end in truth.acts)


def queued_seconds(truth: Truth, start: float | None = None, end: float | None = None) -> float:
    """Seconds that the driver was runnable without a processor, after the start-up or in iterations that touch a
    stretch of UNIX seconds. Nobody planted it where the plan does not say so: it is other programs' doing."""
    total = 0
    for before, i in pairwise(truth.iterations[BASELINE_STEPS - 1 :]):
        if (start is None or truth.wall(i.end) > start) and (end is None or truth.wall(i.begin) < end):
            total += (i.queued or 0) - (before.queued or 0)
    return total / NS


def stolen_seconds(truth: Truth, start: float | None = None, end: float | None = None) -> float:
    """Seconds of steps between two UNIX times in which the driver neither ran, nor was runnable, nor waited for its
    batch or in what was planted, beyond what is ordinary: its processor did not run. A hypervisor took it."""
    waited: Counter[int] = Counter()
    for one in truth.planted:
        if one.cause not in RUNNING:
            waited[one.step] += one.end - one.begin
    rests: list[tuple[Iteration, int]] = []
    for before, i in pairwise(truth.iterations):
        rest = _blocked_ns(before, i)
        if rest is not None:
            rests.append((i, rest - waited[i.step]))
    usual = median(rest for _, rest in rests) if rests else 0
    within = [
        rest
        for i, rest in rests
        if (start is None or truth.wall(i.end) > start) and (end is None or truth.wall(i.begin) < end)
    ]
    return sum(max(0.0, rest - usual) for rest in within) / NS


def blocked_seconds(truth: Truth) -> float:
    """Seconds after the start-up in which the driver neither ran, nor was runnable, nor waited for its batch: it waited
    for somebody, as a rank does for the others in each of its steps."""
    rests = (_blocked_ns(before, i) for before, i in pairwise(truth.iterations[BASELINE_STEPS - 1 :]))
    return sum(max(0, rest) for rest in rests if rest is not None) / NS


def _blocked_ns(before: Iteration, i: Iteration) -> int | None:
    """What of an iteration the driver neither ran, nor was runnable, nor waited for its batch; None: not counted."""
    if i.ran is None or before.ran is None:
        return None
    there = (i.ran - before.ran) + (i.queued or 0) - (before.queued or 0)
    waited = i.fetch - i.fetch_unblocked  # `there` holds the rest of the fetch already
    return i.end - before.end - there - waited


def fetched_seconds(truth: Truth) -> float:
    """Seconds that fetches took after the start-up."""
    return sum(i.fetch for i in truth.iterations[BASELINE_STEPS:]) / NS


def lost_seconds(truth: Truth, cause: str, kind: str) -> tuple[float, float]:
    """Seconds that the cause took from the run, stalls and ordinary steps together, as (least, most).

    The two differ for a constant wait for workers, where the time in which a batch that is ready is taken over may
    or may not be called lost: least leaves out that of the fastest fetch, for every step.
    """
    later = truth.iterations[BASELINE_STEPS:]
    if not later:
        return 0.0, 0.0
    if cause == "drift":
        own = [p for p in truth.planted if p.step >= BASELINE_STEPS]
        ran = _running(truth)
        return 0.6 * sum(p.seconds * ran.get(p.step, 1.0) for p in own), sum(p.seconds for p in own)
    if by_fetch(cause) and kind == "bottleneck":
        most = sum(i.fetch for i in later) / NS
        fastest = min(min(i.fetch for i in later), READY)
        ready = len(later) * fastest / NS if cause not in ("data_inline", "fake_batching") else 0.0
        return most - ready, most
    if by_fetch(cause) or cause in OUTSIDE:
        total = sum(stall.seconds for stall in planted_stalls(truth, cause) if stall.cause == cause)
        queued = queued_seconds(truth)
        if cause == "cpu_contention":  # steps that are only a little late lose some, too
            return total, max(total, queued)
        if cause == "collective_wait":  # what others take of rank 0's processors they take of rank 1's as well
            return total, total + queued
        return total, total
    own = [p for p in truth.planted if p.cause == cause and p.step >= BASELINE_STEPS]
    total = sum(p.seconds for p in own)
    # A wake-up from a call, like computing itself, may have waited for a processor: that is contention's.
    return total - sum(queued_seconds(truth, truth.wall(p.begin), truth.wall(p.end)) for p in own), total


def _running(truth: Truth) -> dict[int, float]:
    """By step: the part of it in which the driver was not runnable without a processor."""
    out = {}
    for before, i in pairwise(truth.iterations):
        queued = (i.queued or 0) - (before.queued or 0)
        out[i.step] = 1 - min(1.0, queued / max(1, i.end - i.begin))
    return out


def slow_iterations(truth: Truth) -> list[tuple[float, float, float]]:
    """(start, end, excess) of every iteration beyond the stall limit, planted or not: what the clock itself saw."""
    if not truth.iterations:
        return []
    ordinary, least = median_step(truth), limit(truth)
    return [
        (truth.wall(i.begin), truth.wall(i.end), (i.end - i.begin) / NS - ordinary)
        for i in truth.iterations[BASELINE_STEPS:]
        if (i.end - i.begin) / NS - ordinary >= 0.9 * least
    ]
