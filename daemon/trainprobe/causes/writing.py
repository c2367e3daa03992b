"""About a thread that writes a file: what held it back, and what of its waits for a processor is the save's."""

from __future__ import annotations

from trainprobe.causes.base import Items, Window, at_most, take_items
from trainprobe.causes.waiting import evaluates
from trainprobe.derive.files.save_spans import SaveSpan, ahead_ns, spans
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import State
from trainprobe.model.cells import Region
from trainprobe.model.message import Message, template

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
