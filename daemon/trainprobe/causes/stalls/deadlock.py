"""Everybody waits on a futex and nothing moves."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, excess_ns, pool_ns, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import AT_A_LOCK, CPU, IN_FRAME, WAITS_FOR_WORKER, user_thread
from trainprobe.derive.python.frameworks import is_own
from trainprobe.derive.python.stacks import innermost
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("deadlock.summary", "worker {pid} blocked on a lock for {seconds:seconds}{where}; nothing runs")
IN_FUTEX = template("deadlock.in_futex", "worker {pid} blocked in futex{where}")
NOBODY = template("deadlock.nobody", "no worker does anything")
BLOCKED_SECONDS = template("deadlock.blocked_seconds", "worker blocked in futex")
OF_THREADS = template(
    "deadlock.of_threads",
    "training thread and another thread of it wait for locks, in {mine} and in {other}, for {seconds:seconds}; nothing "
    "runs",
)
AT_LOCK = template("deadlock.at_lock", "training thread waits for a lock in {frame}")
OTHER_AT_LOCK = template("deadlock.other_at_lock", "thread {tid} of the training waits for a lock in {frame}")
NOTHING_RUNS = template("deadlock.nothing_runs", "no thread of the process runs")
STILL_SECONDS = template("deadlock.still_seconds", "no worker did anything for")
_IDLE = 0.05
"""Of the wait: workers that compute more may be what it is for."""
_PART = 0.5
"""Of the wait, in which nothing moved: a worker that got its lock and then worked for longer was late by its work."""


def claim(window: Window, left: Items) -> Claim | None:
    """Waits for workers of which one has long been blocked on a lock, while no worker did anything."""
    seen = window.late.worker
    if seen is None or seen.leaf != Leaf.LOCK or seen.locks_file:
        return None
    still = window.late.locked.ns
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


def claim_threads(window: Window, left: Items) -> Claim | None:
    """A long wait at a lock in the user's own code, while another thread of the process waits at one too, in the
    user's code, and nothing of the process runs."""
    taken = take_items(left, states=[State.LOCK])
    mine = next((one.frames[-1] for one in reversed(window.late.stacks) if one.frames), "")
    other, own_tid = user_thread(window, locked=True)
    if not other or not is_own(mine) or sum(taken.values()) < window.policy.hang_ns:
        return None
    if not window.late.stood_still or pool_ns(window, *CPU) > _IDLE * excess_ns(window):
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.DEADLOCK,
        taken,
        OF_THREADS(mine=mine, other=other, seconds=told),
        [AT_LOCK(frame=mine), OTHER_AT_LOCK(tid=own_tid, frame=other), NOTHING_RUNS()],
        [Evidence.of(AT_A_LOCK(), told, "s", window.driver_pid)],
    )


SAME_ORDER = template(
    "deadlock.advice.same_order",
    "take the two locks in the same order in both threads, or under one lock; acquire(timeout=…) makes it an error",
)
SPAWN = template(
    "deadlock.advice.spawn",
    "multiprocessing_context='spawn' or 'forkserver': a lock that was held at the fork is never given back",
)
NO_THREADS = template(
    "deadlock.advice.no_threads",
    "cv2.setNumThreads(0) in worker_init_fn; OMP_NUM_THREADS=1 and TOKENIZERS_PARALLELISM=false before the start: in a "
    "worker it is too late for them",
)


def _advice(f: AdviceInput) -> list[Message]:
    return [SAME_ORDER()] if f.saw(AT_A_LOCK) else [SPAWN(), NO_THREADS()]


SPEC = CauseSpec(
    "deadlock",
    kinds=frozenset({Kind.STALL}),
    title="a deadlock",
    colours=("#7f1d1d", "#fa5252"),
    group=groups.WORKERS,
    rules=(OrderedRule(claim, stall=120), OrderedRule(claim_threads, stall=178)),
    advice=_advice,
    worker_stack=True,
)
