"""The driver loads its data itself, between two steps."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, use_workers
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import ELSEWHERE, OUTSIDE, outside
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("data_inline.summary", "the training thread loaded its own data for {seconds:seconds}")
LOADS = template("data_inline.loads", "training thread loads a batch itself")
SECONDS = template("data_inline.seconds", "training thread in its own loading")
READ_SECONDS = template("data_inline.read_seconds", "of it reading files")
CPU_SECONDS = template("data_inline.cpu_seconds", "of it on the CPU")


def claim(window: Window, left: Items) -> Claim | None:
    taken = take_items(left, states=[State.DATA_INLINE])
    if not taken:
        return None
    total = sum(taken.values())
    reads = sum(ns for (_, _, leaf), ns in taken.items() if leaf in (Leaf.FILE_READ, Leaf.READ_CPU))
    cpu = sum(ns for (_, _, leaf), ns in taken.items() if leaf == Leaf.CPU)
    return Claim(
        Cause.DATA_INLINE,
        taken,
        SUMMARY(seconds=seconds(total)),
        [LOADS()],
        [
            Evidence.of(SECONDS(), seconds(total), "s", window.driver_pid),
            Evidence.of(READ_SECONDS(), seconds(reads), "s", window.driver_pid),
            Evidence.of(CPU_SECONDS(), seconds(cpu), "s", window.driver_pid),
            *outside(window, taken),
        ],
    )


LOAD_LESS = template(
    "data_inline.advice.load_less",
    "load less in the training thread, or more rarely (a smaller file, samples kept in memory, cheaper decoding): "
    "DataLoader workers would gain less than 1 %",
)


def _advice(f: AdviceInput) -> list[Message]:
    if not f.fetching or f.saw(OUTSIDE):
        return [ELSEWHERE()]
    if f.best_workers == 0:
        return [LOAD_LESS()]
    return use_workers(f)


SPEC = CauseSpec(
    "data_inline",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="loading data in the training thread",
    colours=("#3b82c4", "#8bc4ff"),
    group=groups.DATA,
    rules=(OrderedRule(claim, stall=180, ordinary=90),),
    advice=_advice,
    is_input=True,
)
