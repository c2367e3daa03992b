"""A worker is blocked somewhere that is neither its queue nor storage, while the driver waits for it."""

from __future__ import annotations

from trainprobe.causes import groups, waiting
from trainprobe.causes.advice import AdviceInput, made_ahead
from trainprobe.causes.base import Claim, Items, Window, pool_ns, seconds
from trainprobe.causes.spec import SHORT, CauseSpec, OrderedRule
from trainprobe.derive.python.stacks import innermost, waits_for_work
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.event import ThreadSample
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("worker_hang.summary", "worker {pid} blocked in {call}{path} for {seconds:seconds}{where}")
SOMEWHERE = template("worker_hang.somewhere", "a worker was blocked outside of its queue and of storage")
ON_FILE = template("worker_hang.on_file", " on {path}")
OF_THE_DEAD = template("worker_hang.of_the_dead", "{death}; the training thread waits for its batch")
OF_THE_UNSENT = template(
    "worker_hang.of_the_unsent",
    "worker {pid} could not send a batch ({call} failed); the training thread waits for it",
)
UNSENT = template("worker_hang.unsent", "since the call failed that sends it")
SINCE_DEATH = template("worker_hang.since_death", "since the worker's death")


def claim(window: Window, left: Items) -> Claim | None:
    """What is left of the wait, when workers were blocked outside of their queues beyond the ordinary."""
    blocked = waiting.shares(window).blocked >= 0.5
    at_pipe = None if blocked else waiting.at_pipe(window)
    if not blocked and at_pipe is None and not window.deaths and not window.unsent:
        return None
    taken = waiting.waited(window, left)
    if not taken:
        return None
    if at_pipe is not None:
        return _of_pipe(window, taken, at_pipe)
    if not blocked and window.deaths:
        return _of_the_dead(window, taken)
    if not blocked:
        return _of_the_unsent(window, taken) if _idle(window) else None
    chain = [waiting.WAITS_FOR_WORKERS()]
    evidence = [
        Evidence.of(waiting.WAITED(), seconds(sum(taken.values())), "s", window.driver_pid),
        Evidence.of(waiting.BLOCKED_OUTSIDE(), seconds(pool_ns(window, *waiting.BLOCKED)), "s"),
    ]
    summary = SOMEWHERE()
    seen = window.late.worker
    if seen is not None and seen.leaf in waiting.BLOCKED:
        taken_stack = window.late.stack_of(seen.pid)
        stack = () if waits_for_work(taken_stack) else taken_stack  # taken when its batch was made
        summary = SUMMARY(
            pid=seen.pid,
            call=waiting.IN_CALL[seen.leaf],
            path=ON_FILE(path=seen.path) if seen.path else None,
            seconds=seconds(seen.ns),
            where=waiting.IN_FRAME(frame=innermost(stack)) if stack else None,
        )
        chain = [waiting.WAITS_FOR_WORKER(pid=seen.pid), summary]
        evidence.append(Evidence.of(waiting.WORKER_BLOCKED(), seconds(seen.ns), "s", seen.pid, seen.path or None))
        if seen.call:
            evidence.append(Evidence.of(waiting.SYSTEM_CALL(), seen.call, "", seen.pid))
    return Claim(Cause.WORKER_HANG, taken, summary, chain, [*evidence, *waiting.new_epoch(window)])


def _of_pipe(window: Window, taken: dict[Item, float], worker: ThreadSample) -> Claim:
    spent, stack = seconds(window.end_ns - worker.since_ns), window.late.stack_of(worker.pid)
    call, where = waiting.IN_CALL[worker.leaf], waiting.IN_FRAME(frame=innermost(stack))
    summary = SUMMARY(pid=worker.pid, call=call, path=None, seconds=spent, where=where)
    since = Evidence.of(waiting.WORKER_BLOCKED(), spent, "s", worker.pid)
    return _of_one(window, taken, summary, summary, since)


def _of_one(window: Window, taken: dict[Item, float], summary: Message, why: Message, since: Evidence) -> Claim:
    """The wait for the worker that ``since`` is about, and ``why`` it does not deliver."""
    waited = Evidence.of(waiting.WAITED(), seconds(sum(taken.values())), "s", window.driver_pid)
    chain = [waiting.WAITS_FOR_WORKER(pid=since.pid), why]
    return Claim(Cause.WORKER_HANG, taken, summary, chain, [waited, since])


def _idle(window: Window) -> bool:
    """Whether the workers did nothing beyond the ordinary."""
    shares = waiting.shares(window)
    return shares.cpu + shares.storage + shares.swap + shares.blocked <= 0


def _of_the_unsent(window: Window, taken: dict[Item, float]) -> Claim:
    """A worker's thread that sends batches failed for want of room; it told its terminal, and went on."""
    failed = window.unsent[-1]
    summary = OF_THE_UNSENT(pid=failed.pid, call=failed.call or waiting.A_CALL())
    since = Evidence.of(UNSENT(), seconds(window.end_ns - failed.at_ns), "s", failed.pid, failed.path or None)
    return _of_one(window, taken, summary, summary, since)


def _of_the_dead(window: Window, taken: dict[Item, float]) -> Claim:
    """The others idle and one is dead: its batch will not come. A loader that does not look after its processes waits
    for ever, and even one that does, where the dead one left half a message in a pipe or a lock held."""
    death = window.deaths[-1]
    since = Evidence.of(SINCE_DEATH(), seconds(window.end_ns - death.at_ns), "s", death.pid)
    return _of_one(window, taken, OF_THE_DEAD(death=death.message()), death.message(), since)


GOES_ON = template(
    "worker_hang.advice.goes_on",
    "take what the worker waits for (a sleep, a retry, a lock) out of the samples{where}: it goes on by itself after "
    "{each:seconds}",
)
LOADER_TIMEOUT = template(
    "worker_hang.advice.loader_timeout",
    "see why the worker waits{where} (a lock, a service, a child process); a DataLoader timeout= makes it an error",
)
TIME_LIMIT = template(
    "worker_hang.advice.time_limit",
    "see why the worker waits{where} (a lock, a service, a child process); waiting with a time limit (timeout= of "
    "get() or result()) makes it an error",
)
DEAD_TIMEOUT = template(
    "worker_hang.advice.dead_timeout",
    "start the training again: a dead worker's batch never comes; a DataLoader timeout= makes such a wait an error",
)
DEAD_LIMIT = template(
    "worker_hang.advice.dead_limit",
    "start the training again: a dead worker's batch never comes; a time limit (timeout= of get() or result()) makes "
    "such a wait an error",
)


MORE_ROOM = template(
    "worker_hang.advice.more_room",
    "start the training again with more room, as its warning says: a batch that could not be sent never comes",
)


def _advice(f: AdviceInput) -> list[Message]:
    where = waiting.IN_FRAME(frame=f.line) if f.where is not None else None
    if any(one.key == UNSENT.id for one in f.evidence):
        return [MORE_ROOM()]
    if any(one.key == SINCE_DEATH.id for one in f.evidence):
        return [(DEAD_TIMEOUT if f.fetching else DEAD_LIMIT)()]
    if f.each and (f.every or f.longest < SHORT):
        return [GOES_ON(each=f.each, where=where), *made_ahead(f)]
    return [(LOADER_TIMEOUT if f.fetching else TIME_LIMIT)(where=where)]


SPEC = CauseSpec(
    "worker_hang",
    kinds=frozenset({Kind.STALL}),
    title="a DataLoader worker that hangs",
    short="a slow sample in a DataLoader worker",
    colours=("#155e75", "#22b8cf"),
    group=groups.WORKERS,
    rules=(OrderedRule(claim, stall=160),),
    advice=_advice,
    worker_stack=True,
    is_input=True,
)
