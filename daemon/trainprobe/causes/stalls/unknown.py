"""Lost time for which no rule has evidence: what was seen is reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, more_workers
from trainprobe.causes.base import Claim, Items, Window, pool_ns, seconds, take_items
from trainprobe.causes.spec import LINE_AND, CauseSpec, OrderedRule
from trainprobe.causes.waiting import (
    AT_PIPES,
    BLOCKED,
    BLOCKED_BATCHES,
    CPU,
    RESTORED,
    RESTORING,
    asked_again,
    user_thread,
)
from trainprobe.derive.steps.ledger import WRITES, by_state
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

DRIVER_IN = template("unknown.driver_in", "training thread in {places:, }")
SECONDS_IN = template("unknown.seconds_in", "training thread in {state}")
A_PROCESS = template("unknown.a_process", "a process")
PROCESS = template("unknown.process", "{name} (pid {pid})")
FOR_PROCESS = template("unknown.for_process", "waiting for {who} that the training started: {seconds:seconds}")
WAITS_FOR_PROCESS = template("unknown.waits_for_process", "training thread waits for {who}")
FOR_PROCESSES = template(
    "unknown.for_processes",
    "waiting for {count:# process|# processes} that the training started in the step: {seconds:seconds}",
)
WAITS_FOR_PROCESSES = template(
    "unknown.waits_for_processes", "training thread waits for the work of {count:# process|# processes}"
)
FOR_FILE = template("unknown.for_file", "a loop that sleeps and asks for {path}: {seconds:seconds} of sleep")
PAUSE = template("unknown.pause", "a pause that the training's own code asks for: {seconds:seconds} of sleep")
IN_FILES = template(
    "unknown.in_files",
    "writing or removing files that are neither checkpoints nor logs{path}: {seconds:seconds}",
)
LIKE = template("unknown.like", " (as {path})")
SEEN = template("unknown.seen", "no evidence for a cause; seen: {states:, }{beside}")
BESIDE = template("unknown.beside", " (its other thread was in {frame})")
STATE = template("unknown.state", "{seconds:seconds} {state}")

KNOWN = {
    FOR_FILE.id: template("cause.unknown.files", "waiting for a file"),
    PAUSE.id: template("cause.unknown.pauses", "the training's own pauses"),
    IN_FILES.id: template("cause.unknown.writes", "writing or removing files"),
    FOR_PROCESS.id: template("cause.unknown.processes", "waiting for processes that the training started"),
    FOR_PROCESSES.id: template("cause.unknown.own_processes", "waiting for processes that the training started"),
    RESTORED.id: template("cause.unknown.restores", "reading a checkpoint back"),
    BLOCKED_BATCHES.id: template("cause.unknown.workers", "waiting for loader workers that are blocked"),
}
"""Sentences that say what was waited for, and what such waits are called in a headline."""
OWN_REASONS = frozenset(KNOWN) - {FOR_FILE.id}
"""Of these, what no other rank has to do with: it may write the file."""
MOST = 0.9
"""Of the time in its stalls: a kind with this much of it gives them its name."""
SHOWN = 0.02
"""Of what is unknown: less of a state is not worth a word."""
FETCHED = 0.1
"""Of a wait at a lock: with more in fetches the processes that were started may be a DataLoader's."""
SPREAD = 0.25
"""Of a sleep: a loop asks for a file over so much of it; what comes right behind it is for something else."""
SHORTEN = template(
    "unknown.advice.shorten",
    "the training's own code sleeps there: {where}; shorten that pause, or what it waits for",
)
LAST = 1_000_000
"""Its place: behind every other rule."""


def claim(window: Window, left: Items) -> Claim | None:
    """All that is left, last of all."""
    spent, total = by_state(left), sum(left.values())
    seen = [pair for pair in sorted(spent.items(), key=lambda pair: -pair[1]) if pair[1] >= SHOWN * total]
    waits = _own_processes(window, left) or _child_command(window, left) or _pause(window, left)
    waits = waits or _files(window, left)
    summary, chain = waits or _states_seen(window, seen, left)
    return Claim(
        Cause.UNKNOWN,
        dict(left),
        summary,
        chain,
        [Evidence.of(SECONDS_IN(state=state), seconds(ns), "s", window.driver_pid) for state, ns in seen[:3]],
    )


def _child_command(window: Window, left: Items) -> tuple[Message, list[Message]] | None:
    """The driver waits for a process that it started to do something."""
    child_command, its_output = window.child_command, list[Leaf]()
    slept = sum(take_items(left, leaves=[Leaf.SLEEP]).values())
    if child_command is not None and child_command.start_ns >= window.start_ns:
        its_output = [Leaf.PIPE_READ, Leaf.POLL]
        if child_command.end_ns - child_command.start_ns >= 0.5 * slept:  # subprocess asks for it, and sleeps meanwhile
            its_output.append(Leaf.SLEEP)
    waited = sum(take_items(left, leaves=[Leaf.CHILD, *its_output]).values())
    if waited <= 0.5 * sum(left.values()):
        return None
    who = PROCESS(name=child_command.name, pid=child_command.pid) if child_command is not None else A_PROCESS()
    return FOR_PROCESS(who=who, seconds=seconds(waited)), [WAITS_FOR_PROCESS(who=who)]


def _own_processes(window: Window, left: Items) -> tuple[Message, list[Message]] | None:
    """The driver waits at a lock for processes that it started in the step, while they work (a pool's). Those of a
    DataLoader are waited for in a fetch."""
    count = window.starts.count if window.starts else 0
    locked = sum(take_items(left, states=[State.LOCK]).values())
    fetching = sum(take_items(window.excess, regions=[Region.FETCH]).values())
    worked = pool_ns(window, *CPU, *BLOCKED)
    if not count or locked <= 0.5 * sum(left.values()) or fetching > FETCHED * locked or worked <= 0.5 * locked:
        return None
    return FOR_PROCESSES(count=count, seconds=seconds(locked)), [WAITS_FOR_PROCESSES(count=count)]


def _pause(window: Window, left: Items) -> tuple[Message, list[Message]] | None:
    """A sleep in the driver's own code is no riddle, whatever it is good for; until a file is there, mostly."""
    slept = sum(take_items(left, states=[State.SLEEP]).values())
    if slept <= 0.5 * sum(left.values()) or window.polls:
        return None
    path = asked_again(window, spread_ns=SPREAD * slept) if len(window.late.pauses) != 1 else ""
    told = FOR_FILE(path=path, seconds=seconds(slept)) if path else PAUSE(seconds=seconds(slept))
    return told, [DRIVER_IN(places=[State.SLEEP])]


def _files(window: Window, left: Items) -> tuple[Message, list[Message]] | None:
    """The driver is in calls on files of its own: features that it keeps, a cache that it clears."""
    spent = sum(take_items(left, states=[State.OTHER], leaves=tuple(WRITES)).values())
    if spent <= 0.5 * sum(left.values()):
        return None
    largest = max((one for one in window.files if one.path), key=lambda one: one.bytes, default=None)
    path = LIKE(path=largest.path) if largest is not None else None
    return IN_FILES(path=path, seconds=seconds(spent)), [DRIVER_IN(places=[State.OTHER])]


def _states_seen(window: Window, seen: Sequence[tuple[State, float]], left: Items) -> tuple[Message, list[Message]]:
    states = [STATE(seconds=seconds(ns), state=state) for state, ns in seen[:3]]
    leaves = {leaf.name.lower() for (_, _, leaf) in left}
    frame = user_thread(window)[0] if seen and seen[0][0] == State.LOCK else ""
    return SEEN(states=states, beside=BESIDE(frame=frame) if frame else None), [DRIVER_IN(places=sorted(leaves))]


def named(told: Iterable[tuple[Message | None, float]]) -> Message | None:
    """What its stalls are called together, of their sentences and lengths; None: as the cause is."""
    spent: Counter[str] = Counter()
    for message, ns in told:
        spent[message.id if message is not None else ""] += int(ns)
    kind, ns = max(spent.items(), key=lambda pair: pair[1], default=("", 0))
    return KNOWN[kind]() if kind in KNOWN and ns >= MOST * spent.total() else None


WITHOUT_IT = template(
    "unknown.advice.without_it",
    "read the data without another process between, or let more workers (num_workers) wait at the same time",
)
KEEP_IT = template(
    "restore.advice.keep_it",
    "keep a copy of the state to go back to in the host's memory, or restore it from a local disk, or more rarely",
)


def _advice(f: AdviceInput) -> list[Message]:
    """Where workers are blocked in each batch, more of them are blocked at the same time."""
    if f.saw(RESTORING):
        return [KEEP_IT()]
    load = f.loader
    if load is not None and not load.keeps_up and load.blocked > load.cpu:
        return more_workers(f)
    if f.saw(AT_PIPES):
        return [WITHOUT_IT()]
    mostly = next((one.message for one in f.evidence if one.key == SECONDS_IN.id), None)
    pauses = mostly is not None and mostly.params["state"] == State.SLEEP
    return [SHORTEN(where=f.line)] if pauses and f.line is not None else []


SPEC = CauseSpec(
    "unknown",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="an unknown cause",
    colours=("#6b7280", "#9ca3af"),
    group=groups.UNKNOWN,
    rules=(OrderedRule(claim, stall=LAST, ordinary=LAST),),
    advice=_advice,
    in_line=LINE_AND,
    thread_state_only=True,
)
