"""The driver writes logs, event files, or to a terminal or pipe that does not take it."""

from __future__ import annotations

from trainprobe.advise.frameworks import Subject
from trainprobe.causes import groups
from trainprobe.causes.advice import SHARE, AdviceInput, better_interval, in_brackets, in_run, rarer, steps_apart
from trainprobe.causes.base import Claim, Items, Window, at_most, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.writing import held_back
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("logging.summary", "writing {path}")
SLOW_READER = template("logging.slow_reader", "writing to a pipe or terminal whose reader is slow")
LOGS = template("logging.logs", "logs")
DRIVER_WRITES = template("logging.writes", "training thread writes {path}")
BLOCKED = template("logging.blocked", "training thread blocked in write to a pipe")
SECONDS = template("logging.seconds", "training thread in calls on logs")
CALLS = template("logging.calls", "calls on logs")
BETWEEN_SECONDS = template("logging.between_seconds", "training thread on the CPU between them")
BYTES = template("logging.bytes", "log written")
BLOCKED_SECONDS = template("logging.blocked_seconds", "blocked in write to a pipe or terminal")
_STORM = 200
"""Calls on logs in one step, from which on it may be a storm …"""
_SEEN = 1_000
"""ns of CPU between two calls on one file, from which on that is what a line takes."""
_EACH = 200_000
"""… and ns of CPU for each: formatting a line and Python's way to the call take tens of microseconds."""


def claim(window: Window, left: Items) -> Claim | None:
    """State `logging`; in a storm of calls on logs also the CPU between them, which goes into making them."""
    taken = take_items(left, states=[State.LOGGING])
    if not taken:
        return None
    total = sum(taken.values())
    calls = sum(log.calls for log in window.logs)
    between = take_items(left, states=[State.COMPUTE], leaves=[Leaf.FILE_GAP], regions=_regions(taken))
    gaps = [(log.gap_ns, _EACH * log.calls) for log in window.logs]
    known = [min(ns, most) for ns, most in gaps if ns is not None]
    if len(known) == len(gaps):  # other files have theirs, and a picture is compressed between its few writes
        between = at_most(between, sum(known))
    if sum(between.values()) < _SEEN * calls:  # of pipes, and of several files in turn, the kernel does not tell it
        between |= take_items(left, states=[State.COMPUTE], leaves=[Leaf.CPU], regions=_regions(taken))
    spent = sum(between.values())
    storm = calls >= _STORM and spent <= _EACH * calls
    if storm:
        taken |= between
    stream = sum(ns for (_, _, leaf), ns in taken.items() if leaf == Leaf.STREAM_OUT)
    logs = sorted(window.logs, key=lambda log: -log.ns)
    evidence = [Evidence.of(SECONDS(), seconds(total), "s", window.driver_pid)]
    if storm:
        evidence.append(Evidence.of(CALLS(), calls, "", window.driver_pid))
        evidence.append(Evidence.of(BETWEEN_SECONDS(), seconds(spent), "s", window.driver_pid))
    evidence += [Evidence.of(BYTES(), log.bytes, "bytes", window.driver_pid, log.path) for log in logs[:3] if log.path]
    if stream > total / 2:
        summary, chain = SLOW_READER(), [BLOCKED()]
        evidence.append(Evidence.of(BLOCKED_SECONDS(), seconds(stream), "s", window.driver_pid))
    else:
        path = next((log.path for log in logs if log.path), None) or LOGS()
        summary, chain = SUMMARY(path=path), [DRIVER_WRITES(path=path), *held_back(window)]
    return Claim(Cause.LOGGING, taken, summary, chain, evidence)


def _regions(items: Items) -> list[Region]:
    return list({region for _, region, _ in items})


LOG_RARER = template(
    "logging.advice.log_rarer",
    "log every {better} steps instead of every {every:step|#}{setting}: 1 % of {run}, not {share:percent}",
)
NOT_EACH_STEP = template(
    "logging.advice.not_each_step",
    "log every {better} steps instead of every step{setting}{rate}: 1 % of {run}, not {share:percent}",
)
WRITES = template("logging.advice.writes", " ({writes:.1f} writes per step)")
NO_FLUSH = template(
    "logging.advice.no_flush",
    "do not flush or fsync each line; for TensorBoard no flush() in the loop, and SummaryWriter(max_queue=1000)",
)


LET_READ = template(
    "logging.advice.let_read",
    "see why whoever reads the training's output stops reading it (a paused terminal, a pager, tee on a slow disk), or "
    "write it to a file",
)


def _advice(f: AdviceInput) -> list[Message]:
    if f.part(BLOCKED_SECONDS, SECONDS) > 0.5:
        return [LET_READ()]
    every = steps_apart(f)
    if every is None or every > 1 or f.share <= SHARE:
        return [*rarer(f, LOG_RARER, Subject.LOG), NO_FLUSH()]
    rate = WRITES(writes=f.writes_per_step) if f.writes_per_step else None
    better = better_interval(f)
    if better is None:
        return [NO_FLUSH()]
    setting = in_brackets(f, Subject.LOG, better)
    return [NOT_EACH_STEP(better=better, setting=setting, rate=rate, share=f.share, run=in_run(f, better)), NO_FLUSH()]


SPEC = CauseSpec(
    "logging",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="writing logs",
    colours=("#a16207", "#facc15"),
    group=groups.LOGGING,
    rules=(OrderedRule(claim, stall=40, ordinary=10),),
    advice=_advice,
)
