"""Python's garbage collector ran on the driver, or on another thread of it, which holds the interpreter meanwhile."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, at_most, claimed, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.derive.python.stacks import innermost
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, template

SUMMARY = template("gc_pause.summary", "Python's garbage collector ran for {seconds:seconds}")
IN_COLLECTOR = template("gc_pause.in_collector", "training thread in Python's garbage collector")
BEGAN_AT = template("gc_pause.began_at", "it set in at {where}")
ELSEWHERE = template(
    "gc_pause.elsewhere", "Python's garbage collector ran in another thread of the training for {seconds:seconds}"
)
WAITS = template("gc_pause.waits", "training thread waits for the interpreter's lock, which the collector holds")
ELSEWHERE_SECONDS = template("gc_pause.elsewhere_seconds", "training thread waiting while another thread collected")
LEAST_NS = 5_000_000
SECONDS = template("gc_pause.seconds", "training thread in Python's garbage collector")


def claim(window: Window, left: Items) -> Claim | None:
    """Time in the collector, in whatever the training was doing, where the interpreter tells of it."""
    taken = take_items(left, leaves=[Leaf.COLLECTOR])
    if not taken:
        return None
    where = innermost(window.stack)
    chain = [IN_COLLECTOR()] + ([BEGAN_AT(where=where)] if where else [])
    return claimed(window, Cause.GC_PAUSE, taken, SUMMARY, chain, SECONDS)


def claim_elsewhere(window: Window, left: Items) -> Claim | None:
    """Locks that the driver waited for while another thread collected: one that pins memory, or shows progress."""
    if window.collected_ns < LEAST_NS:
        return None
    taken = at_most(take_items(left, states=[State.LOCK, State.COLLECTIVE], leaves=[Leaf.LOCK]), window.collected_ns)
    return claimed(window, Cause.GC_PAUSE, taken, ELSEWHERE, [WAITS()], ELSEWHERE_SECONDS) if taken else None


FREEZE = template(
    "gc_pause.advice.freeze", "gc.freeze() after the start-up takes what is there by then out of every later collection"
)
DISABLE_RHYTHM = template(
    "gc_pause.advice.disable_rhythm",
    "gc.disable(), and gc.collect() where the training waits anyway: it ran {every:every step|every # steps}, "
    "{each:seconds}",
)
DISABLE = template(
    "gc_pause.advice.disable", "gc.disable(), and gc.collect() where the training waits anyway (evaluation, a save)"
)


def _advice(f: AdviceInput) -> list[Message]:
    recurs = f.every and f.each
    return [FREEZE(), DISABLE_RHYTHM(every=f.every, each=f.each) if recurs else DISABLE()]


SPEC = CauseSpec(
    "gc_pause",
    kinds=frozenset({Kind.STALL}),
    title="garbage collection",
    colours=("#4d7c0f", "#a3e635"),
    group=groups.PYTHON,
    rules=(OrderedRule(claim, stall=110), OrderedRule(claim_elsewhere, stall=117)),
    advice=_advice,
    computes=True,
)
