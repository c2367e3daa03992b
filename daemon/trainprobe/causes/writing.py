"""About a thread that writes a file: what held it back, and what of its waits for a processor is the save's."""

from __future__ import annotations

from trainprobe.causes.base import Items, Window, at_most, take_items
from trainprobe.derive.files.save_spans import spans
from trainprobe.model.cause import State
from trainprobe.model.cells import Region
from trainprobe.model.message import Message, template

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
