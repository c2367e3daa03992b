"""The stalls and bottlenecks of a rank, with what is to be done about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter

from trainprobe.advise import queue
from trainprobe.advise.facts import PART
from trainprobe.advise.intervals import ROLLOUTS, SEEN, steps_between
from trainprobe.advise.loader import Loader, loader, of_loader, prefetched
from trainprobe.advise.numbers import repeated
from trainprobe.causes.advice import SHARE, AdviceInput, no_setting
from trainprobe.causes.registry import SPECS, explained_by_worker
from trainprobe.causes.spec import LINE_AND
from trainprobe.causes.stalls.network import REPORTS
from trainprobe.derive.average import mean, median
from trainprobe.derive.python.stacks import MOST, Where, common, of_worker, shared, waits_for_work
from trainprobe.derive.python.trackers import reports
from trainprobe.model.cause import Cause, Phase
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, Template, alike, template, texts
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import STALL, Bottleneck, Change, Evidence, Period, Stall
from trainprobe.pipeline.bottlenecks import FoundBottleneck
from trainprobe.pipeline.rank.snapshot import RankSnapshot
from trainprobe.pipeline.report.black_box import black_box
from trainprobe.pipeline.report.facts import Facts
from trainprobe.pipeline.report.verdict import Losses
from trainprobe.pipeline.stalls import StallEntry

LONGEST = template("stall.longest", ", in the longest of {steps} steps")
RHYTHM = template("stall.rhythm", "; {every}, median {seconds:seconds}, {share:percent} of the run")
OF_SAVES = template("stall.of_saves", "; {every}, on average {seconds:seconds}, {share:percent} of the run")
EVERY_STEPS = template("stall.every_steps", "{steps:every step|every # steps}")
EVERY_SECONDS = template("stall.every_seconds", "every {seconds:span}")
IN_LINE = template("bottleneck.in_line", "{what}, in {where}")

GPU_WORKED_ON = template("stall.gpu_worked_on", "; the GPU worked on for {seconds:seconds} more, which are not lost")
REPORTED = 0.5
"""Of the time that ordinary steps lose to it: so much of it is in a tracker's functions, by the stacks."""


@dataclass(frozen=True, slots=True)
class _OfCause:
    """What the closed stalls of a cause were like."""

    count: int
    each: float  # seconds, median; of saves the mean
    step: float  # the same of the longest step in each, median
    largest: StallEntry
    seen: Sequence[Evidence]
    where: Where | None


_ns = attrgetter("ns")


def _by_cause(entries: Sequence[StallEntry]) -> dict[Cause, _OfCause]:
    of: dict[Cause, list[StallEntry]] = {}
    for entry in entries:
        of.setdefault(entry.cause, []).append(entry)
    return {
        cause: _OfCause(
            len(mine),
            # With another cause beside it a stall lasts longer.
            (mean if cause is Cause.CHECKPOINT else median)([e.shares.get(cause, e.ns) for e in mine]) / NS,
            median([min(e.shares.get(cause, e.ns), e.main_ns) for e in mine]) / NS,
            max(mine, key=_ns),
            tuple(chain.from_iterable([e.evidence for e in mine])),
            _shared(cause, mine),
        )
        for cause, mine in of.items()
    }


def _shared(cause: Cause, entries: Sequence[StallEntry]) -> Where | None:
    explaining = [(stacks, e.shares.get(cause, 0.0)) for e in entries if (stacks := _explaining(e))]
    return shared([stacks for stacks, _ in explaining], [weight for _, weight in explaining]) if explaining else None


def facts_of(rank: RankSnapshot, lost: Losses, cpus: int, ranks: int = 1) -> Facts:
    """What advice is computed from. ``cpus``: of the host, which so many ``ranks`` of the run share."""
    out = Facts()
    in_steps = {found.cause: found for found in rank.bottlenecks}
    total, by_cause = lost.total(), rank.stalls.memo.get(_by_cause, rank.stalls.entries)
    stalls = _of_loader(rank, lost)
    costs = loader(rank.ordinary, rank.lives.peak, stalls, max(1, cpus // ranks) if cpus else 0, ranks)
    wall, logs = rank.time.reached - rank.time.start, (*rank.files.logs, *rank.files.gone_logs)
    best = None if costs is None else costs.best()
    if costs is not None and best and costs.gain(best) * rank.ordinary.count < SHARE * wall / NS:
        best = 0
    crowded = total.get(Cause.CPU_CONTENTION, 0.0) > SHARE * wall > 0
    again, latest = repeated(wall, rank.time.phases), rank.stalls.open
    going_on = {latest.cause: latest.ns} if latest is not None else {}
    made = _ahead(rank, costs, sum(stalls.get(cause, 0.0) for cause in queue.CAUSES), SHARE * wall / NS)
    for cause, ns in total.items():
        mine, (each, evidence) = by_cause.get(cause), _of_steps(in_steps.get(cause), rank.ordinary.count)
        seen, longest = (mine.seen, mine.largest.evidence) if mine is not None else (_first(latest, cause),) * 2
        out.stalls[cause] = mine.each if mine is not None else each
        where, every = _where(rank, cause, mine), rank.stalls.every.get(cause) if rank.steps.count else None
        out[cause] = AdviceInput(
            share=ns / wall if wall > 0 else 0.0,
            repeated=again,
            each=mine.step if mine is not None else each,
            every=every,
            apart=rank.steps.known / mine.count if mine is not None and every and rank.steps.known else None,
            seen=(*seen, *evidence),
            cpus=cpus,
            crowded=crowded,
            steps=rank.steps.known,
            ahead=made,
            fetching=bool(rank.ordinary.fetches),
            framework=rank.framework.name,
            workers=rank.lives.peak,
            loader=costs,
            best_workers=best,
            period=rank.stalls.period.get(cause, 0.0),
            where=where,
            longest=max(mine.largest.ns if mine is not None else 0, going_on.get(cause, 0)) / NS,
            evidence=[*_with_others(longest, evidence), *_reports(rank, cause, in_steps.get(cause))],
            writes_per_step=sum(log.writes for log in logs) / max(1, rank.steps.count),
        )
    logging = out.get(Cause.LOGGING)
    steps, writes = rank.steps.known, sum(log.writes for log in logs)
    if logging is not None and lost.stalls.get(Cause.LOGGING, 0.0) > total[Cause.LOGGING] / 2:
        bursts = rank.stalls.memo.get(_log_bursts, rank.stalls.entries)
        if lost.stalls[Cause.LOGGING] < SEEN * sum(log.ns for log in logs):
            out[Cause.LOGGING] = replace(logging, every=None, apart=None)
        elif bursts > 1:  # one is no rhythm
            out[Cause.LOGGING] = replace(logging, apart=max(1.0, steps / bursts))
    elif logging is not None and writes:  # a little in each step
        out[Cause.LOGGING] = replace(logging, every=None, apart=max(1.0, steps / writes))
    if rank.files.saves and Cause.CHECKPOINT in out:
        _tell_by_saves(out, rank, total[Cause.CHECKPOINT])
    return out


def _tell_by_saves(out: Facts, rank: RankSnapshot, ns: float) -> None:
    """What all saves took by how many there were, not by how many made steps late."""
    saves, steps, saving = rank.files, rank.steps.known, out[Cause.CHECKPOINT]
    each = out.stalls[Cause.CHECKPOINT] = ns / saves.saves / NS
    rhythm = steps > 0 and not (saves.saves == 1 and _saved_last(rank.stalls.entries, steps))
    out[Cause.CHECKPOINT] = replace(
        saving,
        each=each,
        every=(saves.every or saving.every) if rhythm else None,
        apart=max(1.0, steps / saves.saves) if rhythm else 0.0 if steps else None,
        period=saves.period_ns / NS if rhythm and saves.every else 0.0,
    )


def _first(latest: StallEntry | None, cause: Cause) -> Sequence[Evidence]:
    """What was seen of a first stall, which is open."""
    return latest.evidence if latest is not None and latest.cause is cause else ()


def _of_loader(rank: RankSnapshot, lost: Losses) -> dict[str, float]:
    """Seconds in stalls by cause, but for what was loaded in no fetch."""
    of = {cause.value: ns / NS for cause, ns in lost.stalls.items()}
    return of_loader(of, ((entry.cause.value, entry.evidence) for entry in rank.stalls.entries))


def _reports(rank: RankSnapshot, cause: Cause, found: FoundBottleneck | None) -> list[Evidence]:
    """Whether a tracker is on most stacks of its stalls, or on half as many of ordinary steps as they lose to it."""
    stacks = [stack for entry in rank.stalls.entries if entry.cause is cause for stack in entry.stacks]
    shown = 2 * sum(map(reports, stacks)) > len(stacks)
    if shown or (found is not None and rank.reported > REPORTED * found.share):
        return [Evidence("", None, key=REPORTS)]
    return []


def _of_steps(found: FoundBottleneck | None, steps: int) -> tuple[float, Sequence[Evidence]]:
    """Seconds of each ordinary step, and what was seen of them."""
    if found is None:
        return 0.0, ()
    return found.ns / NS / max(1, steps), found.claim.evidence


def _with_others(evidence: Sequence[Evidence], others: Sequence[Evidence]) -> Sequence[Evidence]:
    """What the longest stall shows, and of ordinary steps what it does not."""
    keys = {one.key for one in evidence}
    return (*evidence, *(one for one in others if one.key not in keys))


def _ahead(rank: RankSnapshot, costs: Loader | None, lost: float, worth: float) -> queue.Ahead | None:
    """How many batches made ahead cover late ones, which lost so many seconds; None: none do, or less is worth it."""
    if costs is None or not costs.workers or lost < worth:
        return None
    late = rank.stalls.memo.get(_late_batches, rank.stalls.entries)
    found = queue.ahead(costs, late, prefetched(rank.memory, rank.lives.peak))
    return found if found is not None and found.saves * lost >= worth else None


def _saved_last(entries: Sequence[StallEntry], steps: int) -> bool:
    """Whether there was a save after the last step."""
    return any(Cause.CHECKPOINT in entry.shares and entry.first_step >= steps for entry in entries)


def _where(rank: RankSnapshot, cause: Cause, mine: _OfCause | None) -> Where | None:
    """The function of its stalls; where workers explain it and none has a stack, of workers in ordinary steps."""
    where = mine.where if mine is not None else None
    if where is None and SPECS[cause].makes_batches and SPECS[cause].worker_stack:
        return common(rank.worker_stacks, MOST)
    return where


def _log_bursts(entries: Sequence[StallEntry]) -> int:
    """Stalls in which writing logs has a part, whatever they were mostly of."""
    return sum(entry.shares.get(Cause.LOGGING, 0.0) >= PART * entry.ns > 0 for entry in entries)


def _late_batches(entries: Sequence[StallEntry]) -> list[queue.LateBatch]:
    """Steps that waited for a batch."""
    late = [entry for entry in entries if entry.cause.value in queue.CAUSES and queue.of_loader(entry.evidence)]
    return [queue.LateBatch.of(entry.first_step, entry.ns / NS, entry.evidence) for entry in late]


def _explaining(entry: StallEntry) -> Sequence[tuple[str, ...]]:
    """Where a worker's stack explains a stall, none of the driver's, which only waits."""
    if not entry.stacks or not explained_by_worker(entry.cause, entry.summary):
        return entry.stacks
    return [stack for stack in entry.stacks if of_worker(stack) and not waits_for_work(stack)]


@dataclass(frozen=True, slots=True)
class _Common:
    rhythm: Message | None
    period: Period | None
    function: str
    in_line: Callable[[StallEntry], Message] | None
    advice: list[Message]
    advice_texts: list[str]
    alike: object
    """The same of two that hardly differ."""

    @classmethod
    def of(cls, cause: Cause, facts: Facts) -> _Common:
        fact = facts.of(cause)
        rhythm, in_line, where = None, SPECS[cause].in_line, fact.line
        if fact.period:
            every = EVERY_STEPS(steps=fact.every) if fact.every else EVERY_SECONDS(seconds=fact.period)
            made = OF_SAVES if cause is Cause.CHECKPOINT else RHYTHM
            rhythm = made(every=every, seconds=facts.stalls[cause], share=fact.share)
        advice = facts.advice(cause)
        line = None
        if in_line is not None and in_line is not LINE_AND and where is not None:
            line = partial(_in_line, in_line, where)
        return cls(
            rhythm,
            Period(fact.every, fact.period) if fact.period else None,
            fact.where.frame.partition("(")[0] if fact.where is not None else "",
            line,
            advice,
            texts(advice),
            alike((rhythm, fact.every, fact.period, where, *advice)),
        )


def _in_line(make: Template, where: Message, entry: StallEntry) -> Message:
    return make(seconds=entry.shares[entry.cause] / NS, where=where)


def stalls(rank: RankSnapshot, at: Moment, place: str, facts: Facts) -> list[Stall]:
    """The rank's stalls; ``place``: what their ids begin with. A closed one is the same object as in the report before,
    as long as it reads the same."""
    listed, common = rank.stalls.listed, rank.stalls.common
    for cause in {entry.cause for entry in listed}:
        now = _Common.of(cause, facts)
        if (before := common.get(cause)) is None or before.alike != now.alike:
            common[cause] = now
    out = []
    for entry in listed:
        if (made := entry.shown) is None or made[0] is not common[entry.cause]:
            if entry.given_back:
                continue
            made = common[entry.cause], _stall(rank, entry, at, place, common[entry.cause])
            if entry.end_ns is not None:
                entry.shown = made
        out.append(made[1])
    return out


def _stall(rank: RankSnapshot, entry: StallEntry, at: Moment, place: str, common: _Common) -> Stall:
    start, marked = at.wall_of(entry.start_ns), bool(rank.steps.count)  # else its numbers are those of seconds
    summary = _summary(entry, common, marked=marked)
    return Stall(
        id=entry.kept_id or f"{place}-{int(at.wall_of(entry.id_ns) * 1000)}",
        start=start,
        end=None if entry.end_ns is None else at.wall_of(entry.end_ns),
        seconds=entry.ns / NS,
        cause=entry.cause.value,
        shares={cause.value: ns / NS for cause, ns in entry.shares.items()},
        first_step=entry.first_step if marked else 0,
        steps=entry.steps if marked else 0,
        period=common.period,
        summary="" if summary is None else str(summary),
        chain=texts(entry.chain),
        evidence=entry.evidence,
        python_stack=list(entry.stack) or None,
        advice=common.advice_texts,
        black_box=black_box(rank.boxes.get(entry.id_ns, ()), at),
        message=summary,
        chain_messages=entry.chain,
        advice_messages=common.advice,
    )


def _summary(entry: StallEntry, common: _Common, *, marked: bool) -> Message | None:
    """The rule's sentence, with the Python line of all samples and the rhythm of all stalls of the cause."""
    what, longest, rhythm = entry.summary, None, common.rhythm
    if common.in_line is not None and common.function in "".join(entry.stack):
        what = common.in_line(entry)
    elif entry.steps > 1 and marked:
        longest = LONGEST(steps=entry.steps)
    given = GPU_WORKED_ON(seconds=entry.given_ns / NS) if entry.given_ns else None
    if longest is None and rhythm is None and given is None:
        return what
    return STALL(what=what, longest=longest, rhythm=rhythm, given=given)


def changes(facts: Facts) -> list[Change]:
    """What to change against each cause that costs enough, the costliest first: it may be no stall's main cause."""
    costly = sorted((cause for cause in facts if facts[cause].share >= SHARE), key=lambda cause: -facts[cause].share)
    made = [(cause, facts.advice(cause) or no_setting(facts[cause])) for cause in costly]
    return [Change(cause.value, texts(advice), advice) for cause, advice in made]


def evaluating(rank: RankSnapshot) -> list[Change]:
    """How to evaluate less, where that takes much of the run."""
    wall = rank.time.reached - rank.time.start
    spans = [span for span in rank.time.spans if span.phase is Phase.EVALUATION]
    every = steps_between(span.step for span in spans)
    if every is None or wall <= 0 or rank.framework.name in ROLLOUTS or not any(span.sure for span in spans):
        return []
    share = rank.time.phases.get(Phase.EVALUATION, 0.0) / wall
    again, steps = repeated(wall, rank.time.phases), rank.steps.known
    advice = SPECS[Cause.EVALUATION].advice(
        AdviceInput(share, again, every=every, apart=steps / len(spans), steps=steps, framework=rank.framework.name)
    )
    return [Change(Cause.EVALUATION.value, texts(advice), advice)] if advice else []


def bottleneck(one: FoundBottleneck, facts: Mapping[Cause, AdviceInput]) -> Bottleneck:
    fact = facts.get(one.cause, AdviceInput())
    fact = fact if fact.evidence else replace(fact, evidence=one.claim.evidence)
    summary, advice = one.claim.summary, SPECS[one.cause].advice(fact)
    if summary is not None and SPECS[one.cause].makes_batches and fact.where is not None:
        summary = IN_LINE(what=summary, where=fact.line)
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
