"""The settings that a run should have: measured now, proposed, what it gains, what memory it takes, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from trainprobe.advise import loader as loading
from trainprobe.advise import memory as memories
from trainprobe.advise import queue
from trainprobe.advise.frameworks import Subject, setting
from trainprobe.advise.loader import DEFAULT_PREFETCH, Loader
from trainprobe.advise.memory import Memory
from trainprobe.advise.numbers import interval_for_share
from trainprobe.model.amounts import percent, seconds, size
from trainprobe.model.message import Message
from trainprobe.model.report import PhaseSpan, Rank, Run, Stall
from trainprobe.text.saying import Saying, saying, word

LEAST_GAIN = 0.01  # of the run: what gains less is not proposed
LITTLE = 0.05  # of a step: a wait for data that is less needs no explanation
SWAPPED = ("swap", "memory_pressure")
ROLLOUTS = ("stable_baselines3",)  # whose loops collect what they train on
KEEPS_STACKS = "format_stack (torch/traceback.py:"
SAVING, EVALUATING = 0.01, 0.05
"""Share of a run that saves, or logs, and evaluations should take at most."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One line. ``proposed`` None: leave it. ``gain``: seconds of the watched run that are safe to promise;
    ``gain_at_most``: what they may be, where that is more; ``memory``: of the run, in bytes."""

    name: str
    now: Saying
    proposed: str | None
    gain: float
    reason: Saying
    limit: Saying | None = None
    memory: int | None = None
    verdict: str = ""  # of the memory: safe, tight, out of memory
    gain_at_most: float | None = None
    setting: Message | None = None  # what the framework calls it


@dataclass(frozen=True, slots=True)
class Advice:
    """All settings of a rank; ``refused``: why there is none."""

    settings: tuple[Setting, ...]
    wall: float
    trained: float  # seconds of training steps, phases left out
    steps: int
    refused: Saying | None = None
    memory: Memory | None = None  # None: not known
    taken: tuple[memories.Taken, ...] = ()  # with other workers and more batches ahead
    unsure: tuple[Saying, ...] = ()  # about it

    @property
    def proposals(self) -> list[Setting]:
        """The settings that should be others."""
        return [setting for setting in self.settings if setting.proposed is not None]

    @property
    def gain(self) -> float:
        """Seconds of the watched run, all proposals together: each is about other seconds."""
        return sum(setting.gain for setting in self.proposals)

    @property
    def speed(self) -> tuple[float, float] | None:
        """Steps per second of training: now, and with all proposals."""
        if self.trained <= 0 or not self.steps:
            return None
        return self.steps / self.trained, self.steps / max(self.trained - self.gain, 1e-9)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the proposals are computed from."""

    rank: Rank
    loader: Loader | None
    memory: Memory | None

    @property
    def worth(self) -> float:
        """Seconds from which a gain is proposed."""
        return LEAST_GAIN * self.rank.wall_seconds

    def stalls(self, *causes: str) -> list[Stall]:
        """Those that were mostly of these causes."""
        return [stall for stall in self.rank.stalls if stall.cause in causes]

    def stalled(self, *causes: str) -> float:
        """Seconds in stalls."""
        return sum(self.rank.counters.stall_seconds.get(cause, 0.0) for cause in causes)


def advice(run: Run, rank: Rank, cpus: int) -> Advice:
    """Every setting of the table for one rank. ``cpus``: of the host, shared by the ranks that run on it."""
    phases = sum(seconds for phase, seconds in rank.counters.phase_seconds.items() if phase != "train")
    trained = max(0.0, rank.wall_seconds - phases)
    empty = Advice((), rank.wall_seconds, trained, rank.steps.count)
    if not rank.ordinary.count or rank.ordinary.seconds is None:
        why = saying("too few steps were seen to know what an ordinary step is made of; watch it for a minute")
        return Advice((), empty.wall, empty.trained, empty.steps, why)
    own_cpus = max(1, cpus // max(1, len(run.ranks))) if cpus else 0
    memory = memories.measured(rank)
    facts = Facts(rank, loading.measured(rank, own_cpus, max(1, len(run.ranks))), memory)
    makers: tuple[Callable[[Facts], Setting], ...] = (
        _workers, _prefetch, _persistent, _pinned, _checkpoints, _logs, _evaluations,
    )  # fmt: skip
    lines = [_named(make(facts), rank.framework.name) for make in makers]
    made = Advice((*lines, *_anomalies(facts, trained)), empty.wall, empty.trained, empty.steps, memory=memory)
    if memory is None:
        return made
    return replace(made, taken=memories.others(memory), unsure=tuple(memories.unsure(rank, memory)))


SUBJECTS = {
    "num_workers": Subject.WORKERS,
    "prefetch_factor": Subject.PREFETCH,
    "persistent_workers": Subject.PERSISTENT,
    "checkpoint interval": Subject.SAVE,
    "log interval": Subject.LOG,
    "evaluation interval": Subject.EVALUATE,
}


def _named(line: Setting, framework: str | None) -> Setting:
    """With what the framework calls it."""
    subject = SUBJECTS.get(line.name)
    return line if subject is None else replace(line, setting=setting(framework, subject, line.proposed))


def _workers(facts: Facts) -> Setting:
    load, memory, count = facts.loader, facts.memory, facts.rank.ordinary.count
    now = saying("{workers}", workers=facts.rank.ordinary.workers or facts.rank.workers.peak)
    if load is None:
        return Setting(word("num_workers"), now, None, 0.0, saying("what a batch costs a worker was not measured"))
    fit = memory.most_workers() if memory is not None else None
    if memory is not None and fit is not None and fit < load.workers:
        return _fewer(facts, load, memory, max(1, fit), now)
    best = load.best()
    if fit is not None:
        best = min(best, max(fit, 1))
    gain = load.gain(best) * count
    reason = _batch_and_step(load)
    if best <= load.workers or gain < facts.worth:
        return Setting(word("num_workers"), now, None, 0.0, _enough(load, best))
    taken = memory.with_(best) if memory is not None else None
    return Setting(
        word("num_workers"), now, str(best), gain, reason, _worker_limit(load, fit, best), taken,
        memory.verdict(taken) if memory is not None else "", load.gain_at_most(best) * count,
    )  # fmt: skip


def _batch_and_step(load: Loader) -> Saying:
    if not load.workers:
        return saying(
            "the driver loads by itself for {wait} of each step; workers do it beside the step of {own}",
            wait=seconds(load.wait), own=seconds(load.own),
        )  # fmt: skip
    if load.blocked > load.cpu:
        return saying(
            "a batch takes a worker {each}, {blocked} of it blocked (storage, network, a sleep); a step without "
            "waiting takes {own}: with num_workers={workers} one comes every {pace}",
            each=seconds(load.each), blocked=seconds(load.blocked), own=seconds(load.own), workers=load.workers,
            pace=seconds(load.each / load.workers),
        )  # fmt: skip
    return saying(
        "a batch costs a worker {each}, a step without waiting takes {own}: with num_workers={workers} one comes every "
        "{pace}",
        each=seconds(load.each), own=seconds(load.own), workers=load.workers, pace=seconds(load.each / load.workers),
    )  # fmt: skip


def _enough(load: Loader, best: int) -> Saying:
    step = load.own + load.wait
    if load.wait < LITTLE * step:
        return saying(
            "a step waits {wait} of {step} for data: that is little", wait=seconds(load.wait), step=seconds(step)
        )
    if best > load.workers:
        return saying("more workers would gain less than 1 % of the run")
    if load.keeps_up:
        return saying(
            "a batch costs a worker {each} and a step takes {own}: workers keep up but for single batches",
            each=seconds(load.each), own=seconds(load.own),
        )  # fmt: skip
    return saying(
        "a batch costs a worker {each_amount}: more workers would share the same {cpus} CPUs; make the samples cheaper "
        "(decode, resize, cache)",
        each_amount=seconds(load.each), cpus=load.cpus,
    )  # fmt: skip


def _worker_limit(load: Loader, fit: int | None, best: int) -> Saying:
    if fit is not None and fit <= best:
        return saying("memory: {fit} workers fit", fit=fit)
    if load.blocked > load.cpu:
        return saying("workers hide the latency of storage and network, not their bandwidth")
    return saying("{cpus} CPUs: more than {most} workers would not be faster", cpus=load.cpus, most=load.most())


def _fewer(facts: Facts, load: Loader, memory: Memory, fit: int, now: Saying) -> Setting:
    """More workers than the memory holds: what swapping and reclaim took comes back.

    That is in late steps what was lost to them, and behind workers that swap (the driver waits for their batches, and
    for a CPU); in ordinary ones what they become shorter by, or what was lost to them where no worker swaps.
    """
    rank = facts.rank
    ordinary = rank.ordinary.seconds or 0.0
    best = min(fit, load.unswapped(fit).best())
    calm = load.unswapped(best)
    then = calm.step(best)
    slower = max(0.0, then - calm.quickest(load.workers)) * rank.ordinary.count
    swapping = load.swapping * load.fetches * rank.ordinary.count
    lost, late = sum(rank.lost.get(cause, 0.0) for cause in SWAPPED), facts.stalled(*SWAPPED)
    behind = load.swapped * facts.stalled("cpu_contention", "data_cpu")
    shorter = (ordinary - then) * rank.ordinary.count if swapping else lost - late - slower
    gain = max(0.0, late + behind + shorter)
    taken = memory.with_(best)
    reason = saying(
        "{workers} workers of {each} each leave too little of {budget} ({scope}); swapping and reclaim took {lost} of "
        "the run and {swapping} of the workers' time",
        workers=load.workers, each=size(memory.worker or 0), budget=size(memory.budget or 0), scope=memory.scope,
        lost=seconds(lost), swapping=seconds(swapping),
    )  # fmt: skip
    limit = saying("a step then takes {step}", step=seconds(then)) if slower else None
    return Setting(word("num_workers"), now, str(best), gain, reason, limit, taken, memory.verdict(taken))


def _prefetch(facts: Facts) -> Setting:
    load, memory = facts.loader, facts.memory
    ahead = memory.prefetch if memory is not None else DEFAULT_PREFETCH
    inferred = memory is not None and memory.batch
    now = (
        saying("{prefetch} (inferred)", prefetch=ahead)
        if inferred
        else saying("{prefetch} (torch's default)", prefetch=ahead)
    )
    if load is None or not load.workers:
        return Setting(word("prefetch_factor"), now, None, 0.0, saying("it counts with workers only"))
    late = [stall.seconds for stall in facts.stalls(*queue.CAUSES)]
    if not late or facts.stalled(*queue.CAUSES) < facts.worth:
        return Setting(word("prefetch_factor"), now, None, 0.0, saying("no step waited for one dear batch"))
    if not load.keeps_up:
        return Setting(
            word("prefetch_factor"), now, None, 0.0,
            saying("workers are slower than the training on the whole: batches ahead are used up; see num_workers"),
        )  # fmt: skip
    found = queue.ahead(load, [(stall.first_step, stall.seconds) for stall in facts.stalls(*queue.CAUSES)], ahead)
    if found is None:
        why = saying("{number} batches came late, {each} in the middle: batches made ahead would not cover them",
                     number=len(late), each=seconds(median(late)))  # fmt: skip
        return Setting(word("prefetch_factor"), now, None, 0.0, why)
    wanted = found.factor
    taken = memory.with_(load.workers, wanted) if memory is not None else None
    verdict = memory.verdict(taken) if memory is not None else ""
    if verdict == "out of memory":
        why = saying("{prefetch} would cover late batches, and take {memory}: more than there is",
                     prefetch=wanted, memory=size(taken or 0))  # fmt: skip
        return Setting(word("prefetch_factor"), now, None, 0.0, why)
    reason = saying(
        "{number} batches came late, {each} in the middle; replayed with {ahead} batches made ahead, {saves} of the "
        "wait is gone",
        number=len(late), each=seconds(median(late)), ahead=wanted * load.workers, saves=percent(found.saves),
    )  # fmt: skip
    gain = found.saves * facts.stalled(*queue.CAUSES)
    limit = saying("batches ahead are kept in shared memory")
    proposed = str(wanted) if gain >= facts.worth else None
    return Setting(word("prefetch_factor"), now, proposed, gain, reason, limit, taken, verdict)


def _persistent(facts: Facts) -> Setting:
    lost, load = facts.stalled("worker_startup"), facts.loader
    edges = facts.rank.counters.stalls.get("worker_startup", 0)
    if not edges:
        return Setting(
            word("persistent_workers"), saying("not seen"), None, 0.0,
            saying("no workers were started again between epochs while it was watched"),
        )  # fmt: skip
    first = load.each if load is not None else 0.0
    gain = max(0.0, lost - edges * first)
    reason = saying("workers were started again {edges} times, {each} each", edges=edges, each=seconds(lost / edges))
    limit = saying("workers keep their memory between epochs, and their copy of the dataset")
    proposed = "True" if gain >= facts.worth else None
    return Setting(word("persistent_workers"), saying("False"), proposed, gain, reason, limit)


def _pinned(facts: Facts) -> Setting:
    now = saying("cannot be seen")
    if not facts.rank.gpus:
        return Setting(word("pin_memory"), now, None, 0.0, saying("no GPU is used: there is nothing to copy to"))
    return Setting(
        word("pin_memory"), now, None, 0.0,
        saying("True lets copies to the GPU overlap with its work; what it gains here cannot be told from outside"),
    )  # fmt: skip


def _checkpoints(facts: Facts) -> Setting:
    rank, name = facts.rank, word("checkpoint interval")
    lost, stalls, saves = rank.lost.get("checkpoint", 0.0), facts.stalls("checkpoint"), rank.counters.saves
    number = saves or max(rank.counters.stalls.get("checkpoint", 0), len(stalls))
    if not number or not lost:
        return Setting(name, saying("no save was waited for"), None, 0.0, saying("saving costs nothing here"))
    every, each = rank.counters.save_every_steps or _every(stalls, rank.steps.count, number), lost / number
    share = lost / rank.wall_seconds if rank.wall_seconds else 0.0
    now = _each(every)
    reason = saying("a save takes {each}, all of them {share} of the run", each=seconds(each), share=percent(share))
    if share <= SAVING:
        return Setting(name, now, None, 0.0, reason)
    better = interval_for_share(every, share, SAVING)
    step = rank.wall_seconds * (1 - share) / max(1, rank.steps.count)
    limit = saying(
        "a crash then costs up to {work} of work; saving from another process costs nothing of it",
        work=seconds(better * step),
    )
    return Setting(name, now, str(better), lost * (1 - every / better), reason, limit)


def _every(stalls: list[Stall], steps: int, number: int) -> int:
    """Steps between occurrences: the rhythm where there is one, else the mean."""
    rhythms = [stall.period.steps for stall in stalls if stall.period is not None and stall.period.steps]
    return rhythms[-1] if rhythms else max(1, steps // number)


def _between(spans: Sequence[PhaseSpan], steps: int) -> int:
    """Steps between phases: the median where it is known after which steps they came, else the mean."""
    at = sorted({span.step for span in spans if span.step})
    if not at:
        return max(1, steps // len(spans))
    return round(median(later - earlier for earlier, later in pairwise(at))) if at[1:] else at[0]


def _logs(facts: Facts) -> Setting:
    rank, name = facts.rank, word("log interval")
    lost = rank.lost.get("logging", 0.0)
    writes = sum(log.writes for log in rank.logs)
    if lost < facts.worth or not writes:
        return Setting(
            name, saying("{writes} writes in all", writes=writes), None, 0.0, saying("logging costs nothing here")
        )
    dearest = max(rank.logs, key=lambda log: log.seconds)
    reason = saying(
        "{writes} writes took {lost}, most of it {path_text}", writes=writes, lost=seconds(lost), path_text=dearest.path
    )
    limit = saying("fewer points in the curves; values in between can be averaged")
    bursts = facts.stalls("logging")
    if facts.stalled("logging") > lost / 2 and bursts:  # seldom and much, not a little in each step
        every = _every(bursts, rank.steps.count, len(bursts))
    else:
        every = max(1, round(rank.steps.count / writes))
    better = interval_for_share(every, lost / rank.wall_seconds, SAVING)
    if better <= every:
        return Setting(name, _each(every), None, 0.0, reason)
    gain = lost * (1 - every / better)
    return Setting(name, _each(every), str(better), gain, reason, limit)


def _anomalies(facts: Facts, trained: float) -> list[Setting]:
    """Where stacks show that autograd keeps the Python stack of each operation, for the error that may come."""
    rank = facts.rank
    seen = [line for line in rank.python_lines if line.frame.startswith(KEEPS_STACKS)]
    stacks = [frame for stall in rank.stalls for frame in stall.python_stack or ()]
    if not seen and not any(frame.startswith(KEEPS_STACKS) for frame in stacks):
        return []
    share = max((line.hits / line.samples for line in seen), default=0.0)
    reason = saying("each operation keeps its Python stack, and each backward looks for NaN: for debugging only")
    limit = saying("the error then does not name the operation; switch it on again to look for one")
    name = word("set_detect_anomaly")
    return [Setting(name, saying("True"), "False", share * trained, reason, limit)]


def _each(every: int) -> Saying:
    return saying("every {every} steps", every=every) if every > 1 else saying("every step")


def _evaluations(facts: Facts) -> Setting:
    rank, name = facts.rank, word("evaluation interval")
    spent = rank.counters.phase_seconds.get("evaluation", 0.0)
    spans = [phase for phase in rank.phases if phase.phase == "evaluation"]
    number = len({span.start if span.step is None else span.step for span in spans})
    if not spent or not number:
        return Setting(name, saying("none seen"), None, 0.0, saying("no evaluation was seen"))
    if rank.framework.name in ROLLOUTS:
        return Setting(name, saying("none seen"), None, 0.0, saying("rollouts run without gradients, and are needed"))
    every, share = _between(spans, rank.steps.count), spent / rank.wall_seconds
    now = _each(every)
    reason = saying("{number} of {each}, {share} of the run", number=number, each=seconds(spent / number),
                    share=percent(share))  # fmt: skip
    better = interval_for_share(every, share, EVALUATING)
    gain = spent * (1 - every / better)
    if gain < facts.worth:
        return Setting(name, now, None, 0.0, reason)
    limit = saying("the best checkpoint is known later; a smaller evaluation set is the other way")
    return Setting(name, now, str(better), gain, reason, limit)
