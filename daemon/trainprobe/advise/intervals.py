"""How often a run should save, log and evaluate."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from trainprobe.advise.facts import NOT_READ, ProposedSetting, SettingsInput
from trainprobe.advise.numbers import EVALUATING, SAVING, interval_for_share, repeated
from trainprobe.derive.average import median
from trainprobe.model.amounts import percent, seconds
from trainprobe.model.report import Bottleneck, Rank, Stall
from trainprobe.text.saying import Saying, saying, word

ROLLOUTS = ("stable_baselines3", "torchrl", "tianshou", "gymnasium", "gym")  # whose loops collect what they train on
SEEN = 0.5
"""Of what writing logs took, at least, in late steps: with less, most bursts were too short for one, and how often they
come is not known."""

WATCHED = 0.6e-6
"""Seconds that watching takes of each small write (docs/cost.md). They end with the watching, whatever is set."""
TOLD = 0.01
"""Of what the writes took."""


def checkpoints(facts: SettingsInput) -> ProposedSetting:
    rank, name = facts.rank, word("checkpoint interval")
    lost, stalls, saves = rank.lost.get("checkpoint", 0.0), facts.stalls("checkpoint"), rank.counters.saves
    number = saves or max(rank.counters.stalls.get("checkpoint", 0), len(stalls))
    waited = sum(save.blocked_seconds for save in rank.checkpoints)
    if waited and not lost:
        reason = saying("the training waited {seconds} for them: that is little", seconds=seconds(waited))
        return ProposedSetting(name, saying("{saves:# save|# saves}", saves=rank.totals.saves), None, 0.0, reason)
    if not number and not lost:
        reason = saying("no save was seen: what ends the run early takes all of its work")
        return ProposedSetting(name, saying("none seen"), None, 0.0, reason)
    if not number or not lost:
        return ProposedSetting(name, saying("no save was waited for"), None, 0.0, saying("saving costs nothing here"))
    share = lost / rank.wall_seconds if rank.wall_seconds else 0.0
    if number == 1 and any("checkpoint" in one.shares and one.first_step >= rank.steps.count for one in rank.stalls):
        return ProposedSetting(name, saying("once, after the last step"), None, 0.0, _each_save(lost, share))
    every, each = rank.counters.save_every_steps or _every(stalls, rank.steps.count, number), lost / number
    now, reason = _each(every), _each_save(each, share)
    if share <= SAVING:
        return ProposedSetting(name, now, None, 0.0, reason)
    better = _interval(rank, number, lost, SAVING)
    gain = lost * (1 - every / better)
    if gain < facts.worth:
        return ProposedSetting(name, now, None, 0.0, reason)
    step = max(0.0, _lasting(rank) - lost) / max(1, rank.steps.count)
    limit = saying(
        "a crash then costs up to {work} of work; with saves from another process the interval may stay short",
        work=seconds(better * step),
    )
    return ProposedSetting(name, now, str(better), gain, reason, limit)


def _interval(rank: Rank, number: int, spent: float, wanted: float) -> int:
    """Steps between occurrences, of which so many took ``spent`` seconds in all, so that they take ``wanted`` of a
    longer run."""
    wall, apart = rank.wall_seconds, max(1.0, rank.steps.count / max(1, number))
    share = spent / wall if wall else 0.0
    return interval_for_share(apart, share, wanted, repeated(wall, rank.counters.phase_seconds))


def _lasting(rank: Rank) -> float:
    """Seconds of the run without what comes once in it."""
    return rank.wall_seconds * repeated(rank.wall_seconds, rank.counters.phase_seconds)


def _each_save(each: float, share: float) -> Saying:
    return saying("a save takes {each}, all of them {share} of the run", each=seconds(each), share=percent(share))


def _every(stalls: list[Stall], steps: int, number: int) -> int:
    """Steps between occurrences: the rhythm where there is one, else the mean."""
    rhythms = [stall.period.steps for stall in stalls if stall.period is not None and stall.period.steps]
    return rhythms[-1] if rhythms else max(1, steps // number)


def steps_between(came: Iterable[int | None]) -> int | None:
    """The median of the steps between phases; None where it is not known after which steps any of them came."""
    at = sorted({step for step in came if step})
    if not at:
        return None
    return round(median(later - earlier for earlier, later in pairwise(at))) if at[1:] else at[0]


def logs(facts: SettingsInput) -> ProposedSetting:
    rank, name = facts.rank, word("log interval")
    lost = rank.lost.get("logging", 0.0)
    writes = sum(log.writes for log in rank.logs)
    if lost < facts.worth or not writes:
        return ProposedSetting(
            name,
            saying("{writes:# write|# writes} in all", writes=writes),
            None,
            0.0,
            saying("logging costs nothing here"),
        )
    told: list[Stall | Bottleneck] = [*facts.stalls("logging"), *rank.bottlenecks]
    unread = [one.seconds for one in told if any(seen.key == NOT_READ for seen in one.evidence)]
    if sum(unread) > SEEN * lost:  # a pipe, or a terminal, whose reader is slow
        now = saying("{writes:# write|# writes} in all", writes=writes)
        return ProposedSetting(name, now, None, 0.0, saying("most of it waits for whoever reads the output"))
    dearest = max(rank.logs, key=lambda log: log.seconds)
    took, watched = {"writes": writes, "lost": seconds(lost), "path_text": dearest.path}, WATCHED * writes
    reason = saying("{writes:# write|# writes} took {lost}, most of it {path_text}", **took)
    if watched > TOLD * lost:
        reason = saying(
            "{writes:# write|# writes} took {lost}, most of it {path_text}; {watched} of it is for being watched",
            watched=seconds(watched),
            **took,
        )
    limit, bursts = saying("fewer points in the curves; values in between can be averaged"), facts.sharing("logging")
    if facts.stalled("logging") > lost / 2 and bursts:  # seldom and much, not a little in each step
        if len(bursts) == 1 or facts.stalled("logging") < SEEN * sum(log.seconds for log in rank.logs):  # no rhythm
            now = saying("{writes:# write|# writes} in all", writes=writes)
            return ProposedSetting(name, now, None, 0.0, reason)
        every, number = _every(facts.stalls("logging"), rank.steps.count, len(bursts)), len(bursts)
    else:
        every, number = max(1, round(rank.steps.count / writes)), writes
    better = _interval(rank, number, lost, SAVING)
    gain = (lost - watched) * (1 - every / better)
    if gain < facts.worth:  # it is seldom enough, or all of it is for being watched
        return ProposedSetting(name, _each(every), None, 0.0, reason)
    return ProposedSetting(name, _each(every), str(better), gain, reason, limit)


def _each(every: int) -> Saying:
    return saying("every {every} steps", every=every) if every > 1 else saying("every step")


def evaluations(facts: SettingsInput) -> ProposedSetting:
    rank, name = facts.rank, word("evaluation interval")
    spent = rank.counters.phase_seconds.get("evaluation", 0.0)
    spans = [phase for phase in rank.phases if phase.phase == "evaluation"]
    number = len({span.start if span.step is None else span.step for span in spans})
    if not spent or not number:
        return ProposedSetting(name, saying("none seen"), None, 0.0, saying("no evaluation was seen"))
    if rank.framework.name in ROLLOUTS:
        reason = saying("rollouts run without gradients, and are needed")
        return ProposedSetting(name, saying("none seen"), None, 0.0, reason)
    if not any(span.sure for span in spans):
        reason = saying(
            "{spent} ran without gradients: evaluations, or rollouts that the training needs", spent=seconds(spent)
        )
        return ProposedSetting(name, saying("not known"), None, 0.0, reason)
    every = steps_between(span.step for span in spans) or max(1, rank.steps.count // len(spans))
    share = spent / rank.wall_seconds
    now = _each(every)
    reason = saying("{number} of {each}, {share} of the run", number=number, each=seconds(spent / number),
                    share=percent(share))  # fmt: skip
    better = _interval(rank, len(spans), spent, EVALUATING)
    gain = spent * (1 - every / better)
    if gain < facts.worth:
        return ProposedSetting(name, now, None, 0.0, reason)
    return ProposedSetting(
        name,
        now,
        str(better),
        gain,
        reason,
        saying("the best checkpoint is known later; a smaller evaluation set is the other way"),
    )
