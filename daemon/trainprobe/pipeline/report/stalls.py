"""The stalls and bottlenecks of a rank, with what is to be done about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median

from trainprobe.advise import queue
from trainprobe.advise.loader import loader, prefetched
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.registry import SPECS
from trainprobe.derive.stacks import of_worker, shared
from trainprobe.model.cause import Cause
from trainprobe.model.message import Message, template, texts
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import STALL, Bottleneck, Period, Stall
from trainprobe.pipeline.bottlenecks import Found
from trainprobe.pipeline.rank.snapshot import RankSnapshot
from trainprobe.pipeline.report.black_box import black_box
from trainprobe.pipeline.report.verdict import Losses
from trainprobe.pipeline.stalls import Entry

LONGEST = template("stall.longest", " in the longest of {steps} steps")
RHYTHM = template("stall.rhythm", "; {every}, {seconds:.1f} s, {share:percent} of the run")
EVERY_STEPS = template("stall.every_steps", "every {steps} steps")
EVERY_SECONDS = template("stall.every_seconds", "every {seconds:.0f} s")
GPU_WORKED_ON = template("stall.gpu_worked_on", "; the GPU worked on for {seconds:.2f} s more, which are not lost")


def facts_of(rank: RankSnapshot, lost: Losses, cpus: int) -> dict[Cause, AdviceInput]:
    out = {}
    in_steps = {found.cause: found.claim.evidence for found in rank.bottlenecks}
    total = lost.total()
    stalls = {cause.value: ns / NS for cause, ns in lost.stalls.items()}
    costs = loader(rank.ordinary, rank.lives.peak, stalls, cpus)
    late = [(e.first_step, e.ns / NS) for e in rank.stalls.entries if e.cause.value in queue.CAUSES]
    made = (
        queue.ahead(costs, late, prefetched(rank.memory, rank.lives.peak))
        if costs is not None and costs.workers
        else None
    )
    for cause, ns in total.items():
        entries = [e for e in rank.stalls.entries if e.cause == cause]
        largest = max(entries, key=lambda e: e.ns, default=None)
        where = shared([_explaining(cause, e.stacks) for e in entries])
        out[cause] = AdviceInput(
            share=ns / wall if (wall := rank.time.reached - rank.time.start) > 0 else 0.0,
            each=median(e.ns for e in entries) / NS if entries else 0.0,
            every=rank.stalls.every.get(cause) if rank.steps.count else None,
            seen=[*chain.from_iterable(e.evidence for e in entries), *in_steps.get(cause, ())],
            cpus=cpus,
            ahead=made,
            fetching=bool(rank.ordinary.fetches),
            framework=rank.framework.name,
            loader=costs,
            period=rank.stalls.period.get(cause, 0.0),
            where=where.frame if where else "",
            where_told=where.message() if where else None,
            where_plain=where.message(counted=False) if where else None,
            of_worker=SPECS[cause].worker_stack,
            longest=largest.ns / NS if largest else 0.0,
            evidence=largest.evidence if largest else (),
            writes_per_step=sum(u.writes for u in rank.files.logs) / max(1, rank.steps.count),
        )
    saves, saving, logging = rank.files, out.get(Cause.CHECKPOINT), out.get(Cause.LOGGING)
    steps, writes = rank.steps.known, sum(log.writes for log in rank.files.logs)
    if logging is not None and lost.stalls.get(Cause.LOGGING, 0.0) > total[Cause.LOGGING] / 2:
        bursts = sum(entry.cause == Cause.LOGGING for entry in rank.stalls.entries)
        out[Cause.LOGGING] = replace(logging, apart=max(1, steps // bursts) if bursts else None)
    elif logging is not None and writes:  # a little in each step
        out[Cause.LOGGING] = replace(logging, every=None, apart=max(1, round(steps / writes)))
    if saving is not None and saves.saves:
        out[Cause.CHECKPOINT] = replace(
            saving,
            each=total[Cause.CHECKPOINT] / saves.saves / NS,
            every=saves.every,
            apart=max(1, steps // saves.saves),
            period=saves.period_ns / NS if saves.every else 0.0,
        )
    return out


def _explaining(cause: Cause, stacks: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Where a worker's stack explains a cause, none of the driver's, which only waits."""
    spec = SPECS[cause]
    return [stack for stack in stacks if of_worker(stack)] if spec.worker_stack else stacks


def stalls(
    rank: RankSnapshot, entries: Sequence[Entry], at: Moment, place: str, facts: Mapping[Cause, AdviceInput]
) -> list[Stall]:
    """The rank's stalls; ``place``: what their ids begin with. Stalls of a cause have the same advice."""
    known = {cause: facts.get(cause, AdviceInput()) for cause in {entry.cause for entry in entries}}
    advice = {cause: SPECS[cause].advice(fact) for cause, fact in known.items()}
    return [_stall(rank, entry, at, place, known[entry.cause], advice[entry.cause]) for entry in entries]


def _stall(rank: RankSnapshot, entry: Entry, at: Moment, place: str, fact: AdviceInput, advice: list[Message]) -> Stall:
    start, summary = at.wall_of(entry.start_ns), _summary(entry, fact)
    return Stall(
        id=entry.kept_id or f"{place}-{int(at.wall_of(entry.id_ns) * 1000)}",
        start=start,
        end=None if entry.end_ns is None else at.wall_of(entry.end_ns),
        seconds=entry.ns / NS,
        cause=entry.cause.value,
        shares={cause.value: ns / NS for cause, ns in entry.shares.items()},
        first_step=entry.first_step,
        steps=entry.steps,
        period=Period(fact.every, fact.period) if fact.period else None,
        summary="" if summary is None else str(summary),
        chain=texts(entry.chain),
        evidence=entry.evidence,
        python_stack=list(entry.stack) or None,
        advice=texts(advice),
        black_box=black_box(rank.boxes.get(entry.id_ns, ()), at),
        message=summary,
        chain_messages=entry.chain,
        advice_messages=advice,
    )


def _summary(entry: Entry, fact: AdviceInput) -> Message | None:
    """The rule's sentence, with the Python line of all samples and the rhythm of all stalls of the cause."""
    what, longest, rhythm = entry.summary, None, None
    in_line = SPECS[entry.cause].in_line
    if in_line and fact.where_plain and fact.where.partition("(")[0] in "".join(entry.stack):
        what = in_line(seconds=entry.shares[entry.cause] / NS, where=fact.where_plain)
    elif entry.steps > 1:
        longest = LONGEST(steps=entry.steps)
    if fact.period:
        every = EVERY_STEPS(steps=fact.every) if fact.every else EVERY_SECONDS(seconds=fact.period)
        rhythm = RHYTHM(every=every, seconds=fact.each, share=fact.share)
    given = GPU_WORKED_ON(seconds=entry.given_ns / NS) if entry.given_ns else None
    if longest is None and rhythm is None and given is None:
        return what
    return STALL(what=what, longest=longest, rhythm=rhythm, given=given)


def bottleneck(one: Found, facts: dict[Cause, AdviceInput]) -> Bottleneck:
    fact = facts.get(one.cause, AdviceInput())
    fact = fact if fact.evidence else replace(fact, evidence=one.claim.evidence)
    summary, advice = one.claim.summary, SPECS[one.cause].advice(fact)
    return Bottleneck(
        one.cause.value,
        one.share,
        one.ns / NS,
        "" if summary is None else str(summary),
        list(one.claim.evidence),
        texts(advice),
        summary,
        advice,
    )
