"""Steps that grow: how much that cost, in which state, and what grew along."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from trainprobe.causes import groups
from trainprobe.causes.advice import always
from trainprobe.causes.base import Claim, seconds
from trainprobe.causes.policy import Policy
from trainprobe.causes.spec import CauseSpec
from trainprobe.derive.steps.ledger import Item
from trainprobe.derive.trend.drift import BACKWARD, BATCH, OPTIMIZER, Drift, Trend
from trainprobe.derive.trend.series import LEAST, Grown, ThinnedSeries
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

SUMMARY = template(
    "drift.summary",
    "the step grew from {before:seconds} to {after:seconds} ({ratio:percent} longer) in {steps} steps, "
    "{per_1000_steps:seconds} per 1000 steps{grown}{along}",
)
GROWN = template("drift.grown", "; what grew is {state}")
ALONG = template("drift.along", ", and with it {what}")
STEP_BEFORE = template("drift.step_before", "step before")
STEP_NOW = template("drift.step_now", "step now")
STEP_GROWTH = template("drift.step_growth", "growth per 1000 steps")
STATE_GREW = template("drift.state_grew", "{state} grew by, each step")
BEFORE = template("drift.before", "{what} before")
NOW = template("drift.now", "{what} now")
COUNTERS = {
    "pss_bytes": (template("drift.memory", "memory")(), "bytes"),
    "open_fds": (template("drift.open_files", "open files")(), ""),
    "threads": (template("drift.threads", "threads")(), ""),
    "workers": (template("drift.workers", "worker processes")(), ""),
    "log_bytes": (template("drift.log_bytes", "bytes of logs")(), "bytes"),
}
"""Figures that may grow with the step, with their words and units."""


_ALONG, _MATERIAL = 1.5, 0.05
"""Times: what grew by no more than that, in proportion to the waits for the GPU, grew along with them, where these grew
by so much of it at least: next to nothing that doubles is no more work, but launches may wait for most of it."""


_OF_BATCHES = 0.5
"""Of the step's growth: what a step does may grow with the square of its sequences."""
_MEASURED, _UNCHANGED = 0.005, 0.25
"""Of a step: an optimiser that takes less says nothing. Of the growth of forward and backward: with less it did not
grow."""


@dataclass(frozen=True, slots=True)
class DriftInput:
    """A rank's ordinary steps over the run."""

    ns: float  # all of them together
    trend: Trend
    makeup: ThinnedSeries  # ns of an ordinary step by state, and in its backward pass and its optimiser, by its number
    counters: ThinnedSeries  # what may grow with the step
    pid: int


def claim(steps: DriftInput, policy: Policy, claimed: Collection[State]) -> Claim | None:
    """What the ordinary steps lost to their growth, without the states that other causes own already, and without what
    is more work: of the GPU, or for larger batches."""
    growth = steps.trend.growth or steps.trend.last
    lost = steps.trend.lost_ns
    if growth is None or lost < policy.drift_least * steps.ns or _of_batches(steps, growth):
        return None
    states = _grown(steps.makeup, growth)
    total = sum(one.after - one.before for one in states)
    gpu = next((one for one in states if one.name == State.GPU_WAIT.value), None)
    free = [one for one in states if State(one.name) not in claimed and not (gpu and _of_gpu(one, gpu))]
    if states and not free:
        return None
    part = sum(one.after - one.before for one in free) / total if total > 0 else 1.0
    state = State(free[0].name) if free else State.COMPUTE
    taken: dict[Item, float] = {(state, Region.STEP, Leaf.OTHER): lost * part}
    counters = [one for one in steps.counters.grown(growth.from_step) if one.name in COUNTERS]
    return Claim(Cause.DRIFT, taken, _summary(growth, free, counters), [], _evidence(steps.pid, growth, free, counters))


def _of_batches(steps: DriftInput, growth: Drift) -> bool:
    """Whether batches grew along (longer sequences, larger images): by their bytes in shared memory, or where those are
    not known because forward and backward became longer by one factor, and the optimiser, which works on the same
    parameters, did not. (A slower machine makes all three longer.)"""
    grown = steps.counters.grown(growth.from_step)
    if batch := next((one for one in grown if one.name == BATCH), None):
        return _times(batch) - 1 >= _OF_BATCHES * growth.ratio
    before, after = steps.makeup.ends(growth.from_step)
    if BATCH in steps.counters.ends(growth.from_step)[1] or before.get(OPTIMIZER, 0.0) < _MEASURED * growth.from_ns:
        return False
    backward = _more(before[BACKWARD], after[BACKWARD])
    forward = _more(*(one.get(State.COMPUTE.value, 0.0) - one[BACKWARD] - one[OPTIMIZER] for one in (before, after)))
    both = min(forward, backward)
    alike = both >= _OF_BATCHES * max(forward, backward, growth.ratio)
    return alike and _more(before[OPTIMIZER], after[OPTIMIZER]) <= _UNCHANGED * both


def _more(before: float, after: float) -> float:
    """By how much of what it was something grew."""
    return after / before - 1 if before > 0 else 0.0


def _grown(makeup: ThinnedSeries, growth: Drift) -> list[Grown]:
    """The states that grew, most first. Where the growth is one beyond the backward pass's, what grew as much as that
    did is a larger batch's, or a slower machine's."""
    grown = makeup.grown(growth.from_step)
    backward = next((one for one in grown if one.name == BACKWARD and one.before > 0), None)
    states = [one for one in grown if one.name not in (BACKWARD, OPTIMIZER)]
    if backward is None or not growth.blocks.backward:
        return states
    pace = backward.after / backward.before
    states = [replace(one, before=pace * one.before) for one in states if one.after > (1 + LEAST) * pace * one.before]
    return sorted(states, key=lambda one: one.before - one.after)


def _times(state: Grown) -> float:
    return state.after / state.before if state.before > 0 else math.inf


def _of_gpu(state: Grown, gpu: Grown) -> bool:
    """Whether a state's growth is more work of the GPU (longer sequences, larger images): the waits for it, and what
    grew no more than they did. A graph that is kept from step to step has more and more to launch."""
    material = gpu.after - gpu.before >= _MATERIAL * (state.after - state.before)
    return state is gpu or (material and _times(state) <= 1 + _ALONG * (_times(gpu) - 1))


def _summary(growth: Drift, states: list[Grown], counters: list[Grown]) -> Message:
    return SUMMARY(
        before=growth.from_ns / NS,
        after=growth.to_ns / NS,
        ratio=growth.ratio,
        steps=growth.to_step - growth.from_step,
        per_1000_steps=growth.per_1000_steps / NS,
        grown=GROWN(state=states[0].name) if states else None,
        along=ALONG(what=COUNTERS[counters[0].name][0]) if counters else None,
    )


def _evidence(pid: int, growth: Drift, states: list[Grown], counters: list[Grown]) -> list[Evidence]:
    found = [
        Evidence.of(STEP_BEFORE(), seconds(growth.from_ns), "s", pid),
        Evidence.of(STEP_NOW(), seconds(growth.to_ns), "s", pid),
        Evidence.of(STEP_GROWTH(), seconds(growth.per_1000_steps), "s", pid),
    ]
    found += [Evidence.of(STATE_GREW(state=one.name), seconds(one.after - one.before), "s", pid) for one in states[:2]]
    for one in counters[:2]:
        words, unit = COUNTERS[one.name]
        found += [
            Evidence.of(BEFORE(what=words), round(one.before), unit, pid),
            Evidence.of(NOW(what=words), round(one.after), unit, pid),
        ]
    return found


KEEPS_SOMETHING = template(
    "drift.advice.keeps_something",
    "look for what is kept from step to step: lists and graphs that grow (append loss.item(), not loss), logs that are "
    "read again",
)


SPEC = CauseSpec(
    "drift",
    kinds=frozenset({Kind.BOTTLENECK}),
    title="slowing down over time",
    colours=("#854d0e", "#fde047"),
    group=groups.PYTHON,
    advice=always(KEEPS_SOMETHING),
    dashboard_colour="#FFCB7D",
)
