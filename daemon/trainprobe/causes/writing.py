"""About a thread that writes a file: what held it back, what of its waits is the save's, and which waits are for it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from trainprobe.causes.base import Items, Window, at_most, excess_ns, take_items
from trainprobe.causes.waiting import evaluates
from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_spans import SaveSpan, ahead_ns, spans
from trainprobe.derive.python.serializers import shown_by
from trainprobe.derive.python.stacks import takes_from_queue
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import Message, template

_WAITS = (Leaf.LOCK, Leaf.CHILD, Leaf.POLL, Leaf.PIPE_READ, Leaf.SLEEP)
_OF_PROCESSES = (Leaf.CHILD, Leaf.POLL, Leaf.PIPE_READ)
_STAGING = (State.COMPUTE, State.RUNQUEUE, State.LOCK, State.OTHER, State.GPU_WAIT)
HELD_BACK = template(
    "writing.held_back",
    "the kernel holds the writer back until the disk has caught up (balance_dirty_pages, in {hits} of "
    "{looks:# look|# looks})",
)


def held_back(window: Window) -> list[Message]:
    """That the step's writer waits for the write-back of what was written before, where looks found it there."""
    late = window.late
    return [HELD_BACK(hits=late.held_back, looks=late.inspections)] if late.held_back else []


def without_queue_of_saves(window: Window, left: Items) -> Items:
    """What is left beside the driver's waits for a processor in its own saves: those are neither an evaluation's nor of
    workers that start. They are at most the time from open to last call that was not spent in the calls."""
    own = spans((s for s in window.saves if s.tid == window.driver_tid), window.start_ns, window.end_ns)
    called = sum(ns for (state, _, _), ns in window.items.items() if state == State.CHECKPOINT)
    queued = take_items(left, states=[State.RUNQUEUE], regions=[Region.STEP])
    queued = at_most(queued, sum(one.end_ns - one.start_ns for one in own) - called)
    return {item: ns - queued.get(item, 0.0) for item, ns in left.items()} if queued else left


def optimized_ns(window: Window) -> int:
    """When the step's optimiser was done, at the earliest."""
    return window.start_ns + sum(ns for (_, region, _), ns in window.items.items() if region == Region.OPTIMIZER)


def copied_for_thread(window: Window, left: Items) -> dict[Item, float]:
    """What the driver does before one of its threads opens the file of a save that it hands over: it copies the bytes,
    as torch.distributed.checkpoint.async_save does. By the stacks; without any, what it did with gradients off, and
    waits that show nothing else."""
    begun = [
        s.first_ns for s in window.saves
        if s.key[0] == window.driver_pid and s.tid != window.driver_tid and window.start_ns <= s.first_ns
    ]  # fmt: skip
    if not begun or any(s.tid == window.driver_tid for s in window.saves):
        return {}
    since, first, stacks = optimized_ns(window), min(begun), window.late.stacks
    known = any(seen.frames and since <= seen.at_ns < first for seen in stacks)
    if not known and evaluates(window):
        return {}
    room = ahead_ns(SaveSpan(first, first, 0, 0, 0, ""), since, stacks) if known else first - since
    quiet = take_items(left, states=_STAGING, regions=[Region.NO_GRAD])
    beside = take_items(left, states=_STAGING if known else _STAGING[2:], regions=[Region.STEP])
    return at_most({**quiet, **beside}, room)


def leaves_for(window: Window, others: Sequence[Save]) -> Sequence[Leaf]:
    """Where the driver may wait for these saves, [] nowhere. What goes on for minutes in a thread of its own is not
    what a pause is for, or a command that it runs meanwhile; nor are what stacks show: a batch that it gets from a
    queue, or another process's answer."""
    leaves = [leaf for leaf in _WAITS if leaf is not Leaf.SLEEP or len(window.late.pauses) != 1]
    if any(save.key[0] != window.driver_pid for save in others):
        return leaves
    command, ran_ns = window.child_command, 0
    if command is not None and command.start_ns >= window.start_ns:
        ran_ns = min(command.end_ns, window.end_ns) - command.start_ns
    stacks = [seen.frames for seen in window.late.stacks if seen.frames and not seen.running]
    elsewhere = bool(stacks) and not any(map(shown_by, stacks))
    if elsewhere or ran_ns > excess_ns(window) / 2:
        leaves = [leaf for leaf in leaves if leaf not in _OF_PROCESSES]
    if elsewhere and all(map(takes_from_queue, stacks)):
        leaves = [leaf for leaf in leaves if leaf is not Leaf.LOCK]
    return leaves


def told_by(saves: Sequence[Save]) -> str:
    """The path of the file that took longest, the first of these; of a larger one where that has left the list."""
    before = max((save.before for save in saves if save.before), key=attrgetter("largest"), default=None)
    return before.path if before is not None and before.largest > saves[0].bytes else saves[0].path
