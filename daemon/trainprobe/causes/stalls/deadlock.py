"""Everybody waits on a futex and nothing moves."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import always
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import IN_FRAME, WAITS_FOR_WORKER
from trainprobe.derive.python.stacks import innermost
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

SUMMARY = template("deadlock.summary", "worker {pid} blocked on a lock for {seconds:seconds}{where}; nothing runs")
IN_FUTEX = template("deadlock.in_futex", "worker {pid} blocked in futex{where}")
NOBODY = template("deadlock.nobody", "no worker does anything")
BLOCKED_SECONDS = template("deadlock.blocked_seconds", "worker blocked in futex")
STILL_SECONDS = template("deadlock.still_seconds", "no worker did anything for")
_PART = 0.5
"""Of the wait, in which nothing moved: a worker that got its lock and then worked for longer was late by its work."""


def claim(window: Window, left: Items) -> Claim | None:
    """Waits for workers of which one has long been blocked on a lock, while no worker did anything."""
    seen = window.late.worker
    if seen is None or seen.leaf != Leaf.LOCK:
        return None
    still = window.late.locked_ns
    taken = take_items(left, states=[State.DATA_WAIT, State.LOCK])
    if still < max(window.policy.deadlock_ns, _PART * sum(taken.values())) or not taken:
        return None
    stack = window.late.stack_of(seen.pid)
    where = IN_FRAME(frame=innermost(stack)) if stack else None
    return Claim(
        Cause.DEADLOCK,
        taken,
        SUMMARY(pid=seen.pid, seconds=seconds(seen.ns), where=where),
        [WAITS_FOR_WORKER(pid=seen.pid), IN_FUTEX(pid=seen.pid, where=where), NOBODY()],
        [
            Evidence.of(BLOCKED_SECONDS(), seconds(seen.ns), "s", seen.pid),
            Evidence.of(STILL_SECONDS(), seconds(still), "s"),
        ],
    )


SPAWN = template(
    "deadlock.advice.spawn",
    "multiprocessing_context='spawn' or 'forkserver': a lock that was held at the fork is never given back",
)
NO_THREADS = template(
    "deadlock.advice.no_threads",
    "cv2.setNumThreads(0), OMP_NUM_THREADS=1 and TOKENIZERS_PARALLELISM=false in the workers",
)


SPEC = CauseSpec(
    "deadlock",
    kinds=frozenset({Kind.STALL}),
    title="a deadlock",
    colours=("#7f1d1d", "#fa5252"),
    group=groups.WORKERS,
    rules=(OrderedRule(claim, stall=120),),
    advice=always(SPAWN, NO_THREADS),
    worker_stack=True,
)
