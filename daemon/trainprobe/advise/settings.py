"""The settings that a run should have: measured now, proposed, what it gains, what memory it takes, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from statistics import median

from trainprobe.advise import intervals, queue
from trainprobe.advise import loader as loading
from trainprobe.advise import memory as memories
from trainprobe.advise.facts import ProposedSetting, SettingsInput
from trainprobe.advise.frameworks import Subject, is_fixed, setting
from trainprobe.advise.loader import Loader, prefetched
from trainprobe.advise.memory import MemoryDemand
from trainprobe.model.amounts import percent, seconds, size
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank, Run
from trainprobe.text.saying import Saying, saying, word

LITTLE = 0.05  # of a step: a wait for data that is less needs no explanation
SWAPPED = ("swap", "memory_pressure")
KEEPS_STACKS = "format_stack (torch/traceback.py:"


@dataclass(frozen=True, slots=True)
class Advice:
    """All settings of a rank; ``refused``: why there is none."""

    settings: tuple[ProposedSetting, ...]
    wall: float
    steps: int
    per_second: float | None = None  # steps, evaluations and stalls between them included: as the report has it
    refused: Saying | None = None
    memory: MemoryDemand | None = None  # None: not known
    taken: tuple[memories.Taken, ...] = ()  # with other workers and more batches ahead
    unsure: tuple[Saying, ...] = ()  # about it

    @property
    def proposals(self) -> list[ProposedSetting]:
        """The settings that should be others, the one that gains most first."""
        return [setting for setting in self.settings if setting.proposed is not None]

    @property
    def mended(self) -> frozenset[str]:
        return frozenset(chain.from_iterable(CAUSES.get(setting.name, ()) for setting in self.proposals))

    @property
    def gain(self) -> float:
        """Seconds of the watched run, all proposals together: each is about other seconds."""
        return sum(setting.gain for setting in self.proposals)

    @property
    def speed(self) -> tuple[float, float] | None:
        """Steps per second: now, and with all proposals."""
        if not self.per_second or not self.steps:
            return None
        lasted = self.steps / self.per_second
        return self.per_second, self.steps / max(lasted - self.gain, 1e-9)


def advice(run: Run, rank: Rank, cpus: int) -> Advice:
    """Every setting of the table for one rank. ``cpus``: of the host, shared by the ranks that run on it."""
    empty = Advice((), rank.wall_seconds, rank.steps.count, rank.steps.per_second)
    if min(rank.ordinary.count, rank.ordinary.seconds or 0.0, rank.wall_seconds) <= 0:
        why = saying("too few steps were seen to know what an ordinary step is made of; watch it for a minute")
        return replace(empty, refused=why)
    own_cpus = max(1, cpus // max(1, len(run.ranks))) if cpus else 0
    facts = SettingsInput(rank, loading.measured(rank, own_cpus, max(1, len(run.ranks))), memories.measured(rank))
    makers: tuple[Callable[[SettingsInput], ProposedSetting], ...] = (
        _workers, _prefetch, _persistent, _pinned, intervals.checkpoints, intervals.logs, intervals.evaluations,
    )  # fmt: skip
    lines = [_named(make(facts), rank) for make in makers]
    lines += _batch_size(facts, lines[0])
    ordered = sorted([*lines, *_anomalies(facts)], key=lambda one: (one.proposed is None, -one.gain))
    made = replace(empty, settings=tuple(ordered), memory=facts.memory)
    if facts.memory is None:
        return made
    return replace(made, taken=memories.others(facts.memory), unsure=tuple(memories.unsure(rank, facts.memory)))


PROCESSES = "worker_startup.processes_started"  # the evidence that those started were no loader's
EPOCH = "worker_startup.epoch_seconds"  # the evidence of what one epoch loses to it
CAUSES = {
    "batch_size": ("fake_batching",),
    "num_workers": ("data_cpu", "data_storage", "data_inline", "memory_pressure", "swap"),
    "prefetch_factor": queue.CAUSES,
    "persistent_workers": ("worker_startup",),
    "checkpoint interval": ("checkpoint",),
    "log interval": ("logging",),
}
"""What is lost to these, a proposal of the setting is about."""
SUBJECTS = {
    "num_workers": Subject.WORKERS,
    "prefetch_factor": Subject.PREFETCH,
    "persistent_workers": Subject.PERSISTENT,
    "checkpoint interval": Subject.SAVE,
    "log interval": Subject.LOG,
    "evaluation interval": Subject.EVALUATE,
}


def _named(line: ProposedSetting, rank: Rank) -> ProposedSetting:
    """With what the framework calls it; without a proposal where it lets nobody set it."""
    subject, framework = SUBJECTS.get(line.name), rank.framework.name
    if subject is None:
        return line
    if line.proposed is not None and is_fixed(framework, subject):
        why = saying("{framework} lets nobody set it", framework=framework)
        return ProposedSetting(line.name, line.now, None, 0.0, why)
    return replace(line, setting=setting(framework, subject, line.proposed, rank.ordinary.fetches))


def _workers(facts: SettingsInput) -> ProposedSetting:
    load, memory, count = facts.loader, facts.memory, facts.rank.ordinary.count
    seen = facts.rank.workers
    idle = load.without_data if load is not None else 0
    now = saying("{workers}", workers=(facts.rank.ordinary.workers or min(seen.peak, seen.started)) + idle)
    if load is None:
        return ProposedSetting(
            word("num_workers"), now, None, 0.0, saying("what a batch costs a worker was not measured")
        )
    beside = facts.workers_beside
    fit = memory.most_workers() if memory is not None else None
    fit = fit if fit is None else fit - beside
    if memory is not None and fit is not None and fit < load.workers:
        return _fewer(facts, load, memory, max(1, fit), now)
    best = load.best()
    if fit is not None:
        best = min(best, max(fit, 1))
    gain = load.gain(best) * count
    gain -= facts.handed_over(gain)
    reason = _batch_and_step(load)
    if best <= load.workers or gain < facts.worth:
        return ProposedSetting(word("num_workers"), now, None, 0.0, _enough(load, best))
    if idle:
        why = saying("{idle} of them got nothing to load: a data set of {best} shards or more would gain {gain}",
                     idle=idle, best=best, gain=seconds(gain))  # fmt: skip
        return ProposedSetting(word("num_workers"), now, None, 0.0, why)
    taken = memory.with_(best + beside) if memory is not None else None
    return ProposedSetting(
        word("num_workers"), now, str(best), gain, reason, _worker_limit(load, fit, best), taken,
        memory.verdict(taken) if memory is not None else "", load.gain_at_most(best) * count,
    )  # fmt: skip


def _batch_and_step(load: Loader) -> Saying:
    if not load.workers:
        return saying(
            "the training thread loads by itself for {wait} of each step; workers do it beside the step of {own}",
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
    if load.crowded:
        return saying(
            "a batch costs a worker {each}, and other programs use {others:.1f} of the {cpus} CPUs: more workers would "
            "gain nothing beside them",
            each=seconds(load.each), others=load.others, cpus=load.cpus,
        )  # fmt: skip
    return saying(
        "a batch costs a worker {each_amount}: more workers would share the same {cpus} CPUs; make the samples cheaper "
        "(decode, resize, cache)",
        each_amount=seconds(load.each), cpus=load.cpus,
    )  # fmt: skip


def _worker_limit(load: Loader, fit: int | None, best: int) -> Saying:
    if fit is not None and fit <= best:
        return saying("memory: {fit:# worker fits|# workers fit}", fit=fit)
    if load.blocked > load.cpu:
        return saying("workers hide the latency of storage and network, not their bandwidth")
    return saying(
        "{cpus:# CPU|# CPUs}: more than {most:# worker|# workers} would not be faster", cpus=load.cpus, most=load.most()
    )


def _fewer(facts: SettingsInput, load: Loader, memory: MemoryDemand, fit: int, now: Saying) -> ProposedSetting:
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
    taken = memory.with_(best + facts.workers_beside)
    reason = saying(
        "{workers:# worker|# workers} of {each} {workers:leaves|each leave} too little of {budget} ({scope}); "
        "swapping and reclaim took {lost} of the run and {swapping} of the workers' time",
        workers=load.workers, each=size(memory.worker or 0), budget=size(memory.budget or 0), scope=memory.scope,
        lost=seconds(lost), swapping=seconds(swapping),
    )  # fmt: skip
    limit = saying("a step then takes {step}", step=seconds(then)) if slower else None
    return ProposedSetting(word("num_workers"), now, str(best), gain, reason, limit, taken, memory.verdict(taken))


def _prefetch(facts: SettingsInput) -> ProposedSetting:
    load, memory = facts.loader, facts.memory
    ahead = prefetched(facts.rank.memory, facts.rank.workers.peak)
    now = (
        saying("{prefetch}, inferred", prefetch=ahead)
        if facts.rank.memory.shm_bytes_per_batch
        else saying("{prefetch}, assumed", prefetch=ahead)
    )
    if load is None and facts.rank.workers.started:
        return ProposedSetting(
            word("prefetch_factor"), now, None, 0.0, saying("what a batch costs a worker was not measured")
        )
    if load is None or not load.workers:
        return ProposedSetting(
            word("prefetch_factor"), saying("no workers"), None, 0.0, saying("it counts with workers only")
        )
    stalls = [stall for stall in facts.stalls(*queue.CAUSES) if queue.of_loader(stall.evidence)]
    late = [stall.seconds for stall in stalls]
    if not late or facts.stalled(*queue.CAUSES) < facts.worth:
        return ProposedSetting(word("prefetch_factor"), now, None, 0.0, saying("hardly a stall was for one slow batch"))
    if not load.keeps_up:
        return ProposedSetting(
            word("prefetch_factor"), now, None, 0.0,
            saying("workers are slower than the training on the whole: batches ahead are used up; see num_workers"),
        )  # fmt: skip
    batches = [queue.LateBatch.of(stall.first_step, stall.seconds, stall.evidence) for stall in stalls]
    found = queue.ahead(load, batches, ahead)
    if found is None:
        why = saying("{number:# batch|# batches} came late, median {each}: batches made ahead would not cover them",
                     number=len(late), each=seconds(median(late)))  # fmt: skip
        return ProposedSetting(word("prefetch_factor"), now, None, 0.0, why)
    wanted = found.factor
    taken = memory.with_(load.workers + facts.workers_beside, wanted) if memory is not None else None
    verdict = memory.verdict(taken) if memory is not None else ""
    if verdict == "out of memory":
        why = saying("{prefetch} would cover late batches, and take {memory}: more than there is",
                     prefetch=wanted, memory=size(taken or 0))  # fmt: skip
        return ProposedSetting(word("prefetch_factor"), now, None, 0.0, why)
    reason = saying(
        "{number:# batch|# batches} came late by {lost} in all, median {each}; replayed with "
        "{ahead:# batch|# batches} made ahead, {saves} of the wait is gone",
        number=len(late), lost=seconds(facts.stalled(*queue.CAUSES)), each=seconds(median(late)),
        ahead=wanted * load.workers, saves=percent(found.saves),
    )  # fmt: skip
    gain = found.saves * facts.stalled(*queue.CAUSES)
    limit = saying("batches ahead are kept in shared memory")
    proposed = str(wanted) if gain >= facts.worth else None
    return ProposedSetting(word("prefetch_factor"), now, proposed, gain, reason, limit, taken, verdict)


def _batch_size(facts: SettingsInput, workers: ProposedSetting) -> list[ProposedSetting]:
    """Where a loop calls next() for each piece of a batch: whole batches come by one call.

    Without workers it gains what the calls would take once there are ``workers``. With workers it gains what the calls
    take, but for the time in which the workers cannot be quicker.
    """
    calls, load, fake = facts.calls, facts.loader, facts.rank.lost.get("fake_batching", 0.0)
    if load is None or calls < 2:
        return []
    if load.workers:
        waits = max(0.0, load.fetches * load.each / load.workers - load.own) * facts.rank.ordinary.count
        gain = max(0.0, fake * (1 - 1 / calls) - waits)
    else:
        gain = facts.handed_over(workers.gain) if workers.proposed is not None else 0.0
    return [
        ProposedSetting(
            word("batch_size"), saying("{calls} calls a step", calls=calls),
            f"x{calls}" if gain >= facts.worth else None, gain,
            saying("the loop calls next() {calls} times for a batch; a DataLoader's workers put it together beside the "
                   "step", calls=calls),
        )
    ]  # fmt: skip


def _persistent(facts: SettingsInput) -> ProposedSetting:
    lost = facts.stalled("worker_startup")
    others = [stall for stall in facts.rank.stalls if any(one.key == PROCESSES for one in stall.evidence)]
    lost -= sum(stall.shares.get("worker_startup", 0.0) for stall in others)
    shared = sum("worker_startup" in stall.shares for stall in facts.rank.stalls)  # a save at the same edge may be more
    edges = max(facts.rank.counters.stalls.get("worker_startup", 0), shared)
    edges -= len(others)
    for found in (one for one in facts.rank.bottlenecks if one.cause == "worker_startup"):
        each = next((one.value for one in found.evidence if one.key == EPOCH), None)
        edges += round(found.seconds / each) if isinstance(each, float) and each > 0 else 0
        lost += found.seconds
    if edges <= 0:
        seen = facts.rank.workers
        reason = saying("no workers were started again between epochs while it was watched")
        if seen.started > seen.peak > 0:
            reason = saying(
                "{started} workers were started, {peak} at most at once: no step was late for one that was new",
                started=seen.started, peak=seen.peak,
            )  # fmt: skip
        return ProposedSetting(word("persistent_workers"), saying("not seen"), None, 0.0, reason)
    reason = saying(
        "workers were started again {edges:once|# times}, {each} each", edges=edges, each=seconds(lost / edges)
    )
    limit = saying("workers keep their memory between epochs, and their copy of the dataset")
    proposed = "True" if lost >= facts.worth else None
    return ProposedSetting(word("persistent_workers"), saying("False"), proposed, lost, reason, limit)


def _pinned(facts: SettingsInput) -> ProposedSetting:
    now = saying("cannot be seen")
    if not facts.rank.gpus:
        return ProposedSetting(
            word("pin_memory"), now, None, 0.0, saying("no GPU is used: there is nothing to copy to")
        )
    load, ordinary = facts.loader, facts.rank.ordinary
    taking, step = ordinary.states.get("data_wait", 0.0), ordinary.seconds or 0.0
    if load is not None and load.keeps_up and taking >= LITTLE * step:
        why = saying(
            "taking ready batches over from workers costs the training thread {taking} of a step of {step}: with True "
            "another thread takes them over and pins them; copies to the GPU overlap with the step only by "
            ".to(…, non_blocking=True); the gain cannot be told from outside",
            taking=seconds(taking), step=seconds(step),
        )  # fmt: skip
    else:
        why = saying(
            "True lets copies to the GPU overlap with its work, if they are made by .to(…, non_blocking=True); what it "
            "gains here cannot be told from outside"
        )
    return ProposedSetting(word("pin_memory"), now, None, 0.0, why)


def _anomalies(facts: SettingsInput) -> list[ProposedSetting]:
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
    gain = share * (rank.wall_seconds - sum(rank.counters.phase_seconds.values()))
    return [ProposedSetting(name, saying("True"), "False", max(0.0, gain), reason, limit)]
