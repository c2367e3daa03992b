"""Making batches costs more CPU than the workers have."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, more_workers, with_made_ahead
from trainprobe.causes.base import Claim, Items, Unseen, Window, at_most, pool_ns, seconds, usual_ns
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import (
    CPU,
    IN_FRAME,
    NEW_EPOCH,
    WAITED,
    WAITS_FOR_WORKERS,
    WORKERS,
    does_no_more,
    new_epoch,
    waited_for_cpu,
)
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template(
    "data_cpu.summary", "workers spent {seconds:seconds} more CPU than usual while it waited for its batch"
)
AS_USUAL = template(
    "data_cpu.as_usual",
    "workers spent {seconds:seconds} of CPU while it waited, no more than on other batches, but fewer at a time",
)
IN_ALL = template("data_cpu.in_all", "workers spent {seconds:seconds} of CPU on the batches of all ordinary steps")
CPU_IN = template("data_cpu.cpu_in", "workers spent {seconds:seconds} of CPU on the batch it waited for, in {where}")
ON_CPU = template("data_cpu.on_cpu", "workers on the CPU")
CPU_SECONDS = template("data_cpu.cpu_seconds", "workers on the CPU or runnable, beyond an ordinary step")
_PER_WORK = 1.5
"""A wait is at most so much longer than what its step's workers computed, or wanted to."""


def claim(window: Window, left: Items) -> Claim | None:
    """The wait's share in which workers were on a CPU or wanted one. Where those of the whole step were there for much
    less time than the wait lasted, its rest has another reason."""
    taken, spent, summary = waited_for_cpu(window, left), pool_ns(window, *CPU), IN_ALL
    if not isinstance(window.usual, Unseen):
        whole = spent + usual_ns(window, *CPU)
        taken = at_most(taken, _PER_WORK * whole)
        spent, summary = (whole, AS_USUAL) if does_no_more(window) else (spent, SUMMARY)
    if not taken:
        return None
    return Claim(
        Cause.DATA_CPU,
        taken,
        summary(seconds=seconds(spent)),
        [WAITS_FOR_WORKERS(), ON_CPU()],
        [
            Evidence.of(WAITED(), seconds(sum(taken.values())), "s", window.driver_pid),
            Evidence.of(CPU_SECONDS(), seconds(spent), "s"),
            Evidence.of(WORKERS(), window.workers, ""),
            *new_epoch(window),
        ],
    )


CHEAPER_SAMPLES = template(
    "data_cpu.advice.cheaper_samples",
    "a batch costs a worker {each:seconds}: more workers would share the same {cpus} CPUs; make the samples "
    "cheaper{where} (decode, resize, cache)",
)
CHEAPER = template("data_cpu.advice.cheaper", "make what the workers compute cheaper{where} (decode, resize, cache)")
CROWDED = template(
    "data_cpu.advice.crowded",
    "end or move the other programs, which use {others:.1f} of the {cpus} CPUs, then add workers: a batch costs a "
    "worker {each:seconds}; or make the samples cheaper{where} (decode, resize, cache)",
)
DEAREST = template(
    "data_cpu.advice.dearest",
    "make the samples that cost most cheaper{where} (decode, resize, cache): single batches are late, not all",
)
OVER_THE_EDGE = template(
    "data_cpu.advice.over_the_edge",
    "let the loader's iterator go on over the edge of epochs (a sampler or a data set that repeats): each new one "
    "waits {each:seconds} until a worker has made its first batch; or make batches cheaper{where} (decode, resize, "
    "cache)",
)
NO_LOADER = template(
    "data_cpu.advice.no_loader",
    "make what the processes that it waits for compute cheaper{where}, or let more of them work further ahead: no "
    "DataLoader hands this over (environments, a queue of its own)",
)


def _advice(f: AdviceInput) -> list[Message]:
    load, where = f.loader, IN_FRAME(frame=f.line) if f.where is not None else None
    if load is not None and load.workers and not load.keeps_up:  # all batches are dear: none are made ahead
        if more := more_workers(f):
            return [*more, CHEAPER(where=where)] if where is not None else more
        if load.crowded:  # there is room once they are gone
            return [CROWDED(others=load.others, cpus=load.cpus, each=load.each, where=where)]
        return [CHEAPER_SAMPLES(each=load.each, cpus=load.cpus, where=where)]
    if not f.fetching:
        return [NO_LOADER(where=where)]
    if f.saw(NEW_EPOCH):
        return with_made_ahead(f, OVER_THE_EDGE(each=f.each, where=where))
    return with_made_ahead(f, (DEAREST if f.longest else CHEAPER)(where=where))


SPEC = CauseSpec(
    "data_cpu",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="loading data (workers busy on the CPU)",
    colours=("#2563eb", "#6ea8fe"),
    group=groups.DATA,
    rules=(OrderedRule(claim, stall=140, ordinary=80),),
    advice=_advice,
    in_line=CPU_IN,
    worker_stack=True,
    makes_batches=True,
    is_input=True,
)
