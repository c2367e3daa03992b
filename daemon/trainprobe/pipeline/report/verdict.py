"""The one line of a rank: what matters most. An event that ended the run outranks seconds."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.causes.registry import SPECS
from trainprobe.causes.run import worker_death
from trainprobe.causes.spec import LINE_AND, SHORT
from trainprobe.causes.stalls import unknown, worker_hang
from trainprobe.causes.waiting import IN_CALL
from trainprobe.derive.workers import Death
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import ThreadState
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Bound, Exit, Verdict
from trainprobe.model.vocabulary import Ending
from trainprobe.pipeline.rank.lives import Sender
from trainprobe.pipeline.rank.snapshot import RankSnapshot
from trainprobe.pipeline.report.ending import ending_death, ending_notice, exit_of, hung_at_end, sender_of, signal_of
from trainprobe.pipeline.report.facts import Facts
from trainprobe.pipeline.stalls import StallEntry

HEALTHY = template(
    "verdict.healthy", "healthy: {steps} steps in {seconds:seconds}, nothing lost that is worth a change"
)
READS = template(
    "verdict.reads",
    "{steps} steps in {seconds:seconds}, no wait that is worth a change; the training thread reads files in its steps: "
    "what it computes to decode them counts as the training's",
)
NOT_MARKED = template(
    "verdict.not_marked", "no step is marked; in {seconds:seconds} watched no unusual wait has a known cause"
)
TOO_SHORT = template(
    "verdict.too_short", "no step is marked, and {seconds:seconds} are too few to know which waits are usual"
)
TOO_FEW = template("verdict.too_few", "{steps:# step|# steps}: too few to know what an ordinary step is")
NO_STEP = template("verdict.no_step", "no training step was seen")
NO_STEP_YET = template(
    "verdict.no_step_yet",
    "cannot tell yet: no step has ended in the {seconds:seconds} since we watch; the training thread is in {where}",
)
ON_CPU = template("verdict.on_cpu", "on the CPU")
A_WAIT = template("verdict.a_wait", "a wait")
STALLS_COST = template(
    "verdict.stalls", "{cause} cost {seconds:seconds} ({share:percent} of the run) in {times}{rhythm}{what}{first}"
)
STEPS_COST = template(
    "verdict.bottleneck", "{cause} costs {seconds:seconds} ({share:percent} of the run){part}{what}{first}"
)
ONE_STALL = template("verdict.one_stall", "1 stall")
STALLS = template("verdict.stall_count", "{count} stalls")
EVERY = template("verdict.every", ", {steps:every step|every # steps}")
EVERY_SECONDS = template("verdict.every_seconds", ", every {seconds:span}")
OF_EACH_STEP = template("verdict.of_each_step", ", {share:percent} of each ordinary step")
IN_LINE = template("verdict.in_line", ", in {where}")
LONGEST = template("verdict.longest", "; the longest: {what}")
LONGEST_OF = template(
    "verdict.longest_of", "; the longest lasted {seconds:seconds} in {steps} steps, one of them: {what}"
)
FIRST = template("verdict.first", "; change first: {advice}")
BECAUSE = template("verdict.because", ": {what}")
IN_STEPS = template("verdict.in_steps", ": {what}, in the longest of its {steps} steps")
IN_ORDINARY = template("verdict.in_ordinary", "; in ordinary steps alone: {what}")
DEAD_WAITS = template(
    "verdict.dead_waits", "{death}, and the training thread waits for its batch: {seconds:seconds} so far"
)
DEAD_WAITED = template(
    "verdict.dead_waited",
    "{death}, and the training thread waited for its batch for {seconds:seconds}, until it was killed",
)
ENDED = template("verdict.ended", "{what}{later}{rest}")
ENDED_LATER = template("verdict.ended_later", "; the training ended {seconds:seconds} later")
CONSEQUENCES = template(
    "verdict.consequences", " ({ends}errors of its connections, ConnectionResetError or EPIPE, are the consequence)"
)
ONE_MORE = template("verdict.one_more", "the end of 1 more worker and ")
MORE = template("verdict.more", "the end of {workers} more workers and ")
OOM_KILLED = template("verdict.oom_killed", "the training (pid {pid}) was killed for want of memory{by}")
BEFORE_STEPS = template("verdict.before_steps", "{what} before the first training step")
UNTIL_THEN = template(
    "verdict.until_then", "{what} after {steps:# step|# steps}; until then nothing was lost that is worth a change"
)
AFTER_STEPS = template("verdict.after_steps", "{what} after {steps:# step|# steps}")

TOO_FEW_STEPS = template("bound.too_few_steps", "too few steps")
DATA_SHARE = template(
    "bound.data_share",
    "the training thread loses {share:percent} of its training time to waiting for data or loading it",
)
_UNSENT = frozenset({Cause.SHM_EXHAUSTION, Cause.FD_EXHAUSTION})
ASKS_TO_END = frozenset({1, 3, 15})  # SIGHUP, SIGQUIT, SIGTERM
INPUT, COMPUTE = 0.2, 0.05
"""Share of data time from which a run is input-bound, and below which compute-bound (GPU < 80 %, > 95 %)."""

WATCHED_LEAST = 5.0
"""Seconds without marked steps, start-up aside, from which on it is said that no unusual wait has a known cause."""

READ_LEAST_NS = 20_000
"""In files, of an ordinary step: a few calls."""
NEARLY_ALL = 0.9
"""Of a cause's loss: what a bottleneck's sentence tells is then told as all of it."""
HEALTHY_LOST = 0.02
"""Of the run: who loses less, and waits for no input, is healthy."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Lost ns by cause: in stalls (the open one included), and in ordinary steps."""

    stalls: dict[Cause, float]
    bottlenecks: dict[Cause, float]

    def total(self) -> dict[Cause, float]:
        out = dict(self.stalls)
        for cause, ns in self.bottlenecks.items():
            out[cause] = out.get(cause, 0.0) + ns
        return out


def losses(rank: RankSnapshot) -> Losses:
    stalls = dict(rank.stalls.ns)
    if rank.stalls.open is not None:
        for cause, ns in rank.stalls.open.shares.items():
            stalls[cause] = stalls.get(cause, 0.0) + ns
    return Losses(stalls, {found.cause: found.ns for found in rank.bottlenecks})


def verdict(rank: RankSnapshot, lost: Losses, wall_ns: float, facts: Facts) -> Verdict:
    """What matters most for this rank, and what to change first."""
    hung = rank.stalls.open or (hung_at_end(rank) if rank.lives.exit_event and rank.lives.exit_event.signal else None)
    first = _first_failure(rank, hung) if hung is not None and wall_ns > 0 else None
    if hung is not None and first is not None:
        cause, what = first
        made = DEAD_WAITS if hung.end_ns is None else DEAD_WAITED
        return Verdict.of(made(death=what, seconds=hung.ns / NS), "stall", cause.value, hung.ns / NS, hung.ns / wall_ns)
    ended = _ended(rank)
    if ended is not None:
        return ended
    total = lost.total()
    if not total or wall_ns <= 0:
        return _none(rank, wall_ns)
    cause = max(total, key=lambda c: total[c] / (2 if SPECS[c].of_others else 1))
    ns = total[cause]
    share = ns / wall_ns
    if share < 0.005 and ns < 0.3 * NS and sum(total.values()) < HEALTHY_LOST * wall_ns:
        return _none(rank, wall_ns)
    by_stall = lost.stalls.get(cause, 0.0) >= lost.bottlenecks.get(cause, 0.0)
    make = _stall if by_stall else _bottleneck
    message = make(rank, cause, ns, share, facts)
    return Verdict.of(message, "stall" if by_stall else "bottleneck", cause.value, ns / NS, share)


def _ended(rank: RankSnapshot) -> Verdict | None:
    """The end of a rank that failed. A person's Ctrl-C, a SIGTERM, a time-out or the run's own signal is no failure: it
    is reported beside what was lost."""
    event, exit_ = rank.lives.exit_event, exit_of(rank)
    if event is None or exit_ is None or exit_.message is None or exit_.ending == Ending.FINISHED:
        return None
    death, notice = ending_death(rank), ending_notice(rank)
    if notice is not None and (death is None or notice.at_ns <= death.at_ns or notice.pid == death.pid):
        after = max(0, event.at_ns - notice.at_ns) / NS
        later = ENDED_LATER(seconds=after) if notice.pid != rank.seen.pid or after >= 1 else None
        return Verdict.of(ENDED(what=notice.summary, later=later, rest=None), "end", notice.cause.value)
    if death is not None:
        cause = worker_death.cause_of(death)
        later = ENDED_LATER(seconds=(event.at_ns - death.at_ns) / NS)
        message = ENDED(what=death.message(), later=later, rest=_consequences(rank, death))
        return Verdict.of(message, "end", cause.value)
    if exit_.ending == Ending.OOM:
        by = sender_of(rank.lives.signal)
        return Verdict.of(OOM_KILLED(pid=rank.seen.pid, by=by), "end", Cause.OOM_KILL.value)
    if rank.steps.known == 0 and rank.steps.rhythm_ns is None:
        return Verdict.of(BEFORE_STEPS(what=exit_.message), "end")
    if not _is_failure(rank, exit_) or hung_at_end(rank) is not None:
        return None
    if rank.steps.known == 0:
        return Verdict.of(exit_.message, "end")
    return Verdict.of(AFTER_STEPS(what=exit_.message, steps=rank.steps.known), "end")


def _is_failure(rank: RankSnapshot, exit_: Exit) -> bool:
    sent = signal_of(rank)
    if exit_.ending == Ending.KILLED:
        return sent is None or sent.event.signal not in ASKS_TO_END
    aborted = exit_.ending == Ending.WATCHDOG and sent is not None and sent.by is Sender.OF_THE_RUN
    return exit_.ending == Ending.EXCEPTION or aborted


def _first_failure(rank: RankSnapshot, entry: StallEntry) -> tuple[Cause, Message] | None:
    """Why the batch never comes that a hang waits for: a worker died, or had no room or descriptor to send it."""
    death = _death_behind(rank, entry)
    if death is not None:
        return Cause.WORKER_DEATH, death.message()
    if not any(one.key == worker_hang.UNSENT.id for one in entry.evidence):
        return None
    failed = [one for one in rank.notices if one.happened and one.cause in _UNSENT]
    return (failed[-1].cause, failed[-1].summary) if failed else None


def _death_behind(rank: RankSnapshot, entry: StallEntry) -> Death | None:
    """The worker's death that a hang followed."""
    if entry.cause != Cause.WORKER_HANG:
        return None
    since = entry.start_ns - rank.policy.death_stalls_ns
    return next((d for d in reversed(rank.lives.abnormal) if since <= d.at_ns and _blames(entry, d)), None)


def _blames(entry: StallEntry, death: Death) -> bool:
    return any(one.key == worker_hang.SINCE_DEATH.id and one.pid == death.pid for one in entry.evidence)


def _consequences(rank: RankSnapshot, first: Death) -> Message:
    """What the first death brought with it, so that nobody looks for its cause there."""
    later = [d for d in rank.lives.abnormal if d is not first and d.at_ns >= first.at_ns]
    if not later:
        return CONSEQUENCES(ends=None)
    return CONSEQUENCES(ends=ONE_MORE() if len(later) == 1 else MORE(workers=len(later)))


def _none(rank: RankSnapshot, wall_ns: float) -> Verdict:
    if rank.steps.rhythm_ns is not None and rank.steps.known == 0:
        seconds = rank.steps.rhythm_ns / NS
        said = NOT_MARKED if seconds >= WATCHED_LEAST else TOO_SHORT
        return Verdict.of(said(seconds=seconds))
    if rank.steps.known == 0:
        return Verdict.of(_without_steps(rank))
    if rank.steps.baseline_ns is None:
        return Verdict.of(TOO_FEW(steps=rank.steps.known))
    exit_ = exit_of(rank)
    if exit_ is not None and exit_.message is not None and exit_.ending not in (Ending.FINISHED, Ending.RUNNING):
        return Verdict.of(UNTIL_THEN(what=exit_.message, steps=rank.steps.known))
    told = READS if reads_by_itself(rank) else HEALTHY
    return Verdict.of(told(steps=rank.steps.known, seconds=wall_ns / NS))


def reads_by_itself(rank: RankSnapshot) -> bool:
    """Whether the training thread reads files in its ordinary steps, where no loader is seen to fetch."""
    read = rank.ordinary.states.get(State.DATA_INLINE, 0.0) * NS
    return not rank.ordinary.fetches and read >= READ_LEAST_NS


def _without_steps(rank: RankSnapshot) -> Message:
    """We came when it was running: what is ordinary for it is not known, what it does now is."""
    sample = rank.sample
    if not rank.attached or sample is None or rank.time.end is not None:
        return NO_STEP()
    watched = max(0, rank.time.sampled - rank.time.start) / NS
    now = ON_CPU() if sample.run == ThreadState.ON else IN_CALL.get(sample.leaf, A_WAIT())
    return NO_STEP_YET(seconds=watched, where=now)


def _first(cause: Cause, facts: Facts) -> Message | None:
    advice = facts.advice(cause)
    return FIRST(advice=advice[0]) if advice else None


def _stall(rank: RankSnapshot, cause: Cause, ns: float, share: float, facts: Facts) -> Message:
    fact, count = facts.of(cause), stall_count(rank, cause)
    largest = rank.stalls.memo.get(_largest, rank.stalls.entries).get(cause, rank.stalls.open)
    open_ = rank.stalls.open is not None and rank.stalls.open.cause == cause
    rhythm = EVERY(steps=fact.every) if fact.every else EVERY_SECONDS(seconds=fact.period) if fact.period else None
    line = IN_LINE(where=fact.where.message()) if SPECS[cause].in_line and fact.where is not None else None
    what = None
    if largest and largest.summary:
        if largest.steps > 1 and rank.steps.count > 0:  # the sentence is of one step
            of_all = LONGEST_OF(seconds=largest.ns / NS, steps=largest.steps, what=largest.summary)
            what = of_all if count > 1 else IN_STEPS(steps=largest.steps, what=largest.summary)
        else:
            what = (LONGEST if count > 1 else BECAUSE)(what=largest.summary)
    if line is not None:
        what = LINE_AND(line=line, what=what) if SPECS[cause].in_line is LINE_AND else line
    named = rank.stalls.memo.get(_unknown, rank.stalls.entries) if cause is Cause.UNKNOWN else None
    return STALLS_COST(
        cause=named or SPECS[cause].named(SHORT if open_ or largest is None else largest.ns / NS),
        seconds=ns / NS,
        share=share,
        times=stalls(max(1, count)),
        rhythm=rhythm,
        what=what,
        first=_first(cause, facts),
    )


def _largest(entries: Sequence[StallEntry]) -> dict[Cause, StallEntry]:
    out: dict[Cause, StallEntry] = {}
    for entry in entries:
        if (before := out.get(entry.cause)) is None or entry.ns > before.ns:
            out[entry.cause] = entry
    return out


def _unknown(entries: Sequence[StallEntry]) -> Message | None:
    return unknown.named((entry.summary, entry.ns) for entry in entries if entry.cause == Cause.UNKNOWN)


def stall_count(rank: RankSnapshot, cause: Cause) -> int:
    """Its stalls that are mostly of a cause, an open one included."""
    return rank.stalls.counts.get(cause, 0) + (rank.stalls.open is not None and rank.stalls.open.cause == cause)


def stalls(count: int) -> Message:
    return ONE_STALL() if count == 1 else STALLS(count=count)


def _bottleneck(rank: RankSnapshot, cause: Cause, ns: float, share: float, facts: Facts) -> Message:
    fact, one = facts.of(cause), next((f for f in rank.bottlenecks if f.cause == cause), None)
    what: Message | None = (
        IN_LINE(where=fact.where.message()) if SPECS[cause].in_line and fact.where is not None else None
    )
    if what is None and one is not None and one.claim.summary:
        what = (BECAUSE if one.claim.ns >= NEARLY_ALL * ns else IN_ORDINARY)(what=one.claim.summary)
    return STEPS_COST(
        cause=SPECS[cause].named(),
        seconds=ns / NS,
        share=share,
        part=OF_EACH_STEP(share=one.share) if one and rank.steps.known else None,
        what=what,
        first=_first(cause, facts),
    )


def bound(data_ns: float, train_ns: float, steps: int) -> Bound:
    """Whether data or compute sets the pace, with the reason."""
    if steps < 8 or train_ns <= 0:
        return Bound.of("unknown", TOO_FEW_STEPS())
    share = data_ns / train_ns
    by = "input" if share >= INPUT else "compute" if share <= COMPUTE else "mixed"
    return Bound.of(by, DATA_SHARE(share=share))
