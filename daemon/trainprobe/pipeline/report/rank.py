"""A rank's entry in the report."""

from __future__ import annotations

from trainprobe.causes.registry import SPECS
from trainprobe.causes.run import checkpoint_unsafe, worker_death
from trainprobe.derive.average import median
from trainprobe.derive.steps.clock import Mode
from trainprobe.model.cause import Cause, State
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import template
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Bound, LogFile, PhaseSpan, Rank, Steps, Totals, Warning_, WorkerExit, Workers
from trainprobe.pipeline.rank.phases import PhaseInterval
from trainprobe.pipeline.rank.snapshot import RankSnapshot
from trainprobe.pipeline.report.counters import checkpoints, counters, samples
from trainprobe.pipeline.report.ending import exit_of
from trainprobe.pipeline.report.stalls import bottleneck, changes, evaluating, facts_of, stalls
from trainprobe.pipeline.report.verdict import Losses, bound, losses, reads_by_itself, verdict

NO_STEP = template("steps.none", "no optimiser step or backward was seen")
NO_MARKS = template("steps.no_marks", "{reason}")
_QUEUE = (State.LOCK, State.SLEEP)
"""How a loader other than torch's waits for its queue."""
PAUSED = 0.1
"""Of an ordinary step: who sleeps for more of it is not bound by computing."""
PAUSES = template("bound.pauses", "the training thread sleeps for {share:percent} of a step")
WAITED = 0.3
"""The same of who waits for others so much."""
WAITS = template(
    "bound.waits", "the training thread waits for other ranks, their data and the network for {share:percent} of a step"
)
UNEXPLAINED = template("bound.unexplained", "for {share:percent} of its training time no cause is known")
BY_RHYTHM = template("steps.by_rhythm", "{reason}; each second's waits are held against the usual ones")
BY_GPU = template(
    "steps.by_gpu", "no PyTorch marks them: a step goes from one call of CUDA that recurs evenly to the next"
)
BY_BURSTS = template(
    "steps.by_bursts", "no PyTorch marks them: a step goes from one burst of calls of JAX or TensorFlow to the next"
)
_BY_CALLS = {Mode.GPU: ("gpu", BY_GPU()), Mode.RHYTHM: ("rhythm", BY_BURSTS())}
NO_MARKS_OF_DATA = template("bound.no_marks", "no PyTorch marks tell when it waits for data")
LIST = 200


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A rank among the ranks of its run."""

    run: str
    number: int
    name: str
    world: int
    beside: int  # ranks of it on this host, this one counted in


def rank_report(rank: RankSnapshot, at: Moment, place: RankPlace, cpus: int) -> Rank:
    """The rank's entry; ``cpus``: of the host."""
    wall = max(0, rank.time.reached - rank.time.start)
    lost = losses(rank)
    total = lost.total()
    facts = facts_of(rank, lost, cpus, place.beside)
    warnings, warned = _warnings(rank, at)
    lives, files, named = rank.lives, rank.files, f"{place.run}-{place.name}"
    exits = [
        WorkerExit(d.pid, at.wall_of(d.at_ns), d.code, d.signal, d.reason, d.sender_pid) for d in lives.worker_deaths
    ]
    return Rank(
        rank=place.number,
        world_size=place.world,
        pid=rank.seen.pid,
        container_pid=rank.seen.container_pid,
        name=place.name,
        exit=exit_of(rank),
        wall_seconds=wall / NS,
        productive_seconds=max(0.0, wall - sum(rank.time.phases.values()) - sum(total.values())) / NS,
        verdict=verdict(rank, lost, wall, facts),
        bound=_bound(rank, lost),
        steps=_steps(rank),
        phases=[_span(span, at) for span in rank.time.spans[-LIST:]],
        ledger={state.value: rank.time.states.get(state, 0.0) / NS for state in State},
        lost={cause.value: ns / NS for cause, ns in sorted(total.items(), key=lambda pair: -pair[1]) if ns > 0},
        stalls=stalls(rank, at, named, facts)[-LIST:],
        bottlenecks=[bottleneck(one, facts) for one in rank.bottlenecks],
        warnings=warnings,
        checkpoints=checkpoints(rank, at, LIST),
        workers=Workers(lives.started, lives.ended, lives.count, exits[-LIST:], lives.peak),
        memory=rank.memory,
        fds=rank.fds,
        slow_files=list(files.slow),
        python_lines=list(rank.lines),
        logs=[LogFile(u.path, u.bytes, u.writes, u.ns / NS, u.kind, u.size) for u in files.logs[:20]],
        totals=Totals(rank.stalls.total, files.total, lives.ended, warned, max(files.numbers, default=0)),
        counters=counters(rank, at, lost.stalls),
        ordinary=rank.ordinary,
        samples=samples(rank, at),
        framework=rank.framework,
        startup=rank.startup,
        restores=list(rank.restores),
        started=at.wall_of(rank.time.start),
        changes=[*changes(facts), *evaluating(rank)],
    )


def _span(span: PhaseInterval, at: Moment) -> PhaseSpan:
    end = at.wall_of(span.end_ns) if span.end_ns else None
    states = {state.value: ns / NS for state, ns in span.states.items() if ns > 0}
    return PhaseSpan(span.phase.value, at.wall_of(span.start_ns), end, span.step, states, span.sure)


DECODES = template(
    "bound.decodes",
    "the training thread reads files in its steps, and what it computes to decode them is not told from the training's",
)


def _bound(rank: RankSnapshot, lost: Losses) -> Bound:
    """Data's part of the training's own time: ordinary steps and stalls, without start-up and evaluation."""
    data = rank.time.data + sum(ns for cause, ns in lost.stalls.items() if SPECS[cause].is_input)
    claims = [one.claim for one in rank.bottlenecks if SPECS[one.cause].is_input]
    data += sum(ns for claim in claims for (state, _, _), ns in claim.taken.items() if state in _QUEUE)
    trained = rank.time.ordinary + sum(lost.stalls.values())
    found = bound(data, trained, rank.steps.count)
    if rank.steps.mode in _BY_CALLS and found.by != "input":
        return Bound.of("unknown", NO_MARKS_OF_DATA())
    if found.by == "compute" and reads_by_itself(rank):
        return Bound.of("unknown", DECODES())
    paused = rank.ordinary.states.get(State.SLEEP, 0.0) / (rank.ordinary.seconds or 1.0)
    if paused >= PAUSED and found.by != "input":
        return Bound.of("unknown", PAUSES(share=paused))
    waited = sum(rank.ordinary.states.get(state, 0.0) for state in (State.COLLECTIVE, State.NETWORK))
    waited /= rank.ordinary.seconds or 1.0
    if waited >= WAITED and found.by == "compute":
        return Bound.of("unknown", WAITS(share=waited))
    unexplained = lost.total().get(Cause.UNKNOWN, 0.0) / (trained or 1.0)
    if unexplained >= PAUSED and found.by != "input":
        return Bound.of("unknown", UNEXPLAINED(share=unexplained))
    return found


def _steps(rank: RankSnapshot) -> Steps:
    count = rank.steps.known
    source, reason = _BY_CALLS.get(rank.steps.mode, ("autograd" if count else "none", None))
    if source == "none":
        reason = NO_MARKS(reason=rank.seen.marks) if rank.seen.marks else NO_STEP()
        if rank.steps.rhythm_ns is not None:
            source, reason = "rhythm", BY_RHYTHM(reason=reason)
    steps = Steps(count, source, "" if reason is None else str(reason), message=reason)
    ordered, seen = sorted(rank.steps.lengths), rank.steps
    if not ordered:
        return steps
    steps.median_seconds = median(ordered)
    steps.p99_seconds = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    if seen.boundary_ns is not None and seen.boundary_ns > seen.first_boundary_ns:
        steps.per_second = (seen.count - seen.before_first - 1) / ((seen.boundary_ns - seen.first_boundary_ns) / NS)
    recent = sorted(rank.steps.lengths[-200:])
    middle = median(recent)
    if len(recent) >= 10 and middle > 0:
        steps.variation_ratio = (recent[int(0.9 * (len(recent) - 1))] - recent[int(0.1 * (len(recent) - 1))]) / middle
    steps.drift_ratio_per_1000_steps = _drift(rank)
    return steps


def _drift(rank: RankSnapshot) -> float | None:
    """Slope of the step's length: the difference of medians of the first and the last quarter of what is kept."""
    values = list(rank.steps.lengths)
    quarter = len(values) // 4
    if quarter < 50:
        return None
    first, last = median(values[:quarter]), median(values[-quarter:])
    return (last - first) / first / (len(values) - quarter) * 1000 if first > 0 else None


def _warnings(rank: RankSnapshot, at: Moment) -> tuple[list[Warning_], int]:
    """The latest, and how many there are."""
    told = rank.notices
    explained = {notice.pid for notice in told if notice.cause == Cause.OOM_KILL and notice.happened}
    out = [
        Warning_.of(n.summary, n.cause.value, at.wall_of(n.at_ns), n.eta_seconds, n.evidence, n.advice) for n in told
    ]
    deaths = [death for death in rank.lives.abnormal if death.pid not in explained]
    out += checkpoint_unsafe.warnings(rank.files.safety, rank.time.end, at, rank.seen.pid)
    number = len(out) + len(deaths) + rank.lives.warned
    out += [worker_death.warning(death, at) for death in deaths[-LIST:]]
    return sorted(out, key=lambda warning: warning.time)[-LIST:], number
