"""Time lost in ordinary steps: what evidence ties to a cause although no single step is late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainprobe.causes.base import Claim, at_most, take_items
from trainprobe.causes.order import claims_of
from trainprobe.causes.registry import ORDINARY_RULES, SPECS
from trainprobe.causes.run import drift
from trainprobe.causes.stalls import checkpoint, gpu_memory, gpu_throttle
from trainprobe.causes.waiting import CPU, FETCHING, STORAGE, SWAP
from trainprobe.derive.average import mean
from trainprobe.derive.files.save_spans import COPIES, blocked_ns
from trainprobe.derive.steps.changed_work import OrdinarySums
from trainprobe.derive.steps.clock import Mode
from trainprobe.derive.steps.ledger import Item, by_state
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import COMPUTING, LEAVES, Leaf, Region
from trainprobe.model.dataclass import dataclass
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.rank.surroundings import Surroundings
from trainprobe.pipeline.rank.window import ordinary_fetches, window_of_ordinary

BUSY = 0.5
"""Workers that are busy for less of their time than this are not what the driver waits for."""
UNPICKLE_NS = 5_000_000
"""For each batch that a worker has ready: so long the driver computes to take it over …"""
HANDOVER_NS = 1_000_000
"""… so long it waits for the worker's threads …"""
ROUND_TRIPS = 2.0
"""… or, where the descriptor of each tensor comes over a socket, so many times as long as it computes."""
IDLE_CPUS = 0.5
"""A host of which no more is idle is wholly used."""
LAUNCHED = 0.8
"""Of the waits for the GPU, it works for so much: the rest are launches, and the way of its answer."""
MINOR = 0.01
"""Of an ordinary step: a smaller claim goes to the largest one."""
_DATA = (State.DATA_WAIT, State.DATA_INLINE)
_OF_DATA = (*_DATA, State.FAULT_IO)


@dataclass(frozen=True, slots=True)
class FoundBottleneck:
    """A bottleneck: ns in ordinary steps and in the ordinary part of late ones; its share of an ordinary step."""

    claim: Claim
    cause: Cause
    ns: float
    share: float

    def beside(self, other: FoundBottleneck | None) -> FoundBottleneck:
        """Two rules' time of one cause; the larger one's words."""
        if other is None:
            return self
        larger = max(self, other, key=lambda one: one.ns)
        return replace(larger, ns=self.ns + other.ns, share=self.share + other.share)


def _limit(fold: RankState, state: State) -> float:
    """The share of ordinary steps from which on a state's waits are lost; below it they are the system's own noise."""
    policy = fold.policy
    if state == State.DATA_WAIT and _starved(fold):
        return policy.starved_bottleneck
    if state == State.MEMORY and fold.stalls.seconds.get(Cause.SWAP, 0.0) > 0:
        return 0.0  # shorter waits for swapped pages are no noise
    return {
        State.DATA_WAIT: policy.data_bottleneck,
        State.DATA_INLINE: policy.inline_bottleneck,
        State.LOGGING: policy.logging_bottleneck,
        State.RUNQUEUE: policy.runqueue_bottleneck,
    }.get(state, policy.wait_bottleneck)


def lost_waits(fold: RankState, items: dict[Item, float]) -> dict[Item, float]:
    """Ordinary steps' waits that are lost, in ns. The exceptions: the process's own compute threads, taking over ready
    batches, and what is below its limit, both of all steps and of those between two changes of the training's work.
    ``items``: as of ``waits``."""
    ordinary, parts = fold.ordinary, dict[Item, float]()
    whole, all_items = OrdinarySums(ordinary.items, ordinary.ns, ordinary.count), _own_locks(fold, ordinary.items)
    for part in fold.progress.changed.between(whole):
        of_part = _own_locks(fold, part.items)
        waited = {item: ns * of_part.get(item, 0.0) / all_items[item] for item, ns in items.items()}
        for item, ns in _above_limits(fold, waited, part).items():
            parts[item] = parts.get(item, 0.0) + ns
    return parts | _above_limits(fold, items, whole)


def _above_limits(fold: RankState, items: dict[Item, float], of: OrdinarySums) -> dict[Item, float]:
    """Those of the waits ``items`` of some ordinary steps that are above their limits."""
    total = of.ns
    sums = by_state({item: ns for item, ns in items.items() if item[2] != Leaf.THROTTLED})
    blocked = sum(ns for (state, _, leaf), ns in items.items() if state == State.DATA_WAIT and leaf not in COMPUTING)
    throttled = sum(ns for item, ns in items.items() if item[2] == Leaf.THROTTLED)
    noise = fold.policy.wake_up_ns * of.count
    lost = {state for state, ns in sums.items() if ns >= max(noise, _limit(fold, state) * total)}
    if blocked >= fold.policy.blocked_bottleneck * total:
        lost.add(State.DATA_WAIT)
    cut = throttled >= fold.policy.throttled_bottleneck * total
    rest = sum(ns for item, ns in items.items() if item[0] not in lost and item[2] not in (*COMPUTING, Leaf.THROTTLED))
    if rest >= max(noise, fold.policy.rest_bottleneck * total):
        return items
    return {item: ns for item, ns in items.items() if (cut if item[2] == Leaf.THROTTLED else item[0] in lost)}


def waits(fold: RankState) -> dict[Item, float]:
    """Ordinary steps' waits that are not excepted, in ns."""
    barriers, (waiting, computing) = _barriers(fold), _handed_over(fold)
    late, unfelt, productive = _late_ranks(fold), _unfelt(fold), fold.ordinary.productive
    contended = _contended(fold, fold.ordinary.items, fold.ordinary.ns)
    beside = fold.files.beside_saves.beyond(fold.ordinary.items, fold.ordinary.count)
    interpreter = beside.items if beside is not None else {}
    found: dict[Item, float] = {}
    for item, ns in _own_locks(fold, fold.ordinary.items).items():
        state, region, leaf = item
        if state == State.LOCK:
            ns -= min(ns, barriers.get(region, ns))
        elif state == State.DATA_WAIT:
            ns *= 1.0 - (computing if leaf in COMPUTING else waiting)
        elif state == State.COLLECTIVE:
            own = interpreter.get(item, 0.0)
            ns = own + (ns - own) * late
        elif leaf == Leaf.RUNQUEUE:
            ns *= contended
        if state != State.COLLECTIVE:
            ns *= 1.0 - unfelt
        if ns > 0 and state not in productive and (leaf not in COMPUTING or state in _DATA):
            found[item] = ns
    return found


def _own_locks(fold: RankState, items: Mapping[Item, float]) -> Mapping[Item, float]:
    """All items; a rank's waits at the queue that a thread of its own fills are no waits for other ranks. Those are
    waited for in the backward pass, and by FSDP and sharded optimisers with gradients off."""
    if fold.ordinary.lines.feeders.most() is None:
        return items
    found: dict[Item, float] = {}
    for (state, region, leaf), ns in items.items():
        own = state == State.COLLECTIVE and leaf == Leaf.LOCK and region == Region.STEP
        item = (State.LOCK if own else state, region, leaf)
        found[item] = found.get(item, 0.0) + ns
    return found


def _barriers(fold: RankState) -> dict[Region, float]:
    """Waits at locks that are for the process's own compute threads, in ns, by region. In the backward pass and in the
    optimiser they all are (autograd, OpenMP); in forward OpenMP's barriers take as much of the computing as there. All
    are where other threads run the model: JAX's or TensorFlow's own, or those of torch.nn.DataParallel."""
    mode, items = fold.progress.clock.mode, fold.ordinary.items
    if mode == Mode.RHYTHM or fold.ordinary.lines.replicas:
        return {}
    locked = {region: ns for (state, region, _), ns in items.items() if state == State.LOCK}
    if mode == Mode.GPU:
        part = _waited_for_gpu(fold, sum(locked.values()))
        return {region: part * ns for region, ns in locked.items()}
    compute = {region: ns for (_, region, leaf), ns in items.items() if leaf == Leaf.CPU}
    gpu = any(state == State.GPU_WAIT for state, _, _ in items)  # its backward is another thread's: no barrier
    alike = (Region.OPTIMIZER,) if gpu else (Region.BACKWARD, Region.OPTIMIZER)
    rate = max((locked.get(region, 0.0) / compute[region] for region in alike if compute.get(region)), default=0.0)
    return {region: rate * compute.get(region, 0.0) for region in (Region.STEP, Region.NO_GRAD)}


def _waited_for_gpu(fold: RankState, locked_ns: float) -> float:
    """The part of the waits at locks that is for the GPU, where XLA runs the model: a thread of its own tells the
    training's that the GPU is done. It is as long as the GPU worked, waits inside of CUDA's calls left out."""
    share = fold.surroundings.gpu_in_ordinary.share
    if share is None or locked_ns <= 0:
        return 1.0
    waited = by_state(fold.ordinary.items).get(State.GPU_WAIT, 0.0)
    part = (share * fold.ordinary.ns - waited) / locked_ns
    return 1.0 if part >= LAUNCHED else max(0.0, part)


def _handed_over(fold: RankState) -> tuple[float, float]:
    """Which part of the waits for data, and of the computing in them, is taking over batches that idle workers have
    ready."""
    ordinary = fold.ordinary
    if not ordinary.worker_ns or _busy(fold) >= BUSY or ordinary_fetches(fold) >= fold.policy.fake_fetches:
        return 0.0, 0.0
    spent = {item: ns for item, ns in ordinary.items.items() if item[0] == State.DATA_WAIT}
    computing = sum(ns for (_, _, leaf), ns in spent.items() if leaf in COMPUTING)
    waiting = sum(spent.values()) - computing
    sockets = sum(ns for (_, _, leaf), ns in spent.items() if leaf == Leaf.SOCKET)
    unpickling = min(computing, UNPICKLE_NS * ordinary.fetches)
    handover = max(HANDOVER_NS * ordinary.fetches, min(sockets, ROUND_TRIPS * unpickling))
    return (
        min(1.0, handover / waiting) if waiting else 0.0,
        unpickling / computing if computing else 0.0,
    )


def _late_ranks(fold: RankState) -> float:
    """The part of the waits for other ranks that is not the collective's own transfer, beyond what others wait for this
    one: of ranks that do the same work now one comes last, now another. None where peers are unseen, and where it is no
    more than such ranks scatter."""
    waited, seen = by_state(fold.ordinary.items).get(State.COLLECTIVE, 0.0), fold.ordinary.collectives
    if not waited or not seen.steps:
        return 0.0
    late = max(0.0, 1.0 - (seen.transfer_ns + seen.held_ns) / seen.steps * fold.ordinary.count / waited)
    return late if late * waited >= fold.policy.ranks_bottleneck * fold.ordinary.ns else 0.0


def _contended(fold: RankState, items: Mapping[Item, float], spent_ns: float) -> float:
    """The part of the waits for a processor among ``items``, of so much time, that other programs or workers can have
    made: they ran no longer than that. The rest is for the process's own threads, and for those of ranks whose compute
    threads all find a processor."""
    ordinary = fold.ordinary
    queued = sum(ns for (_, _, leaf), ns in items.items() if leaf == Leaf.RUNQUEUE)
    used = [point["others"] for _, point in ordinary.growth.trend.around.points]
    if not queued or not used or not fold.surroundings.devices.cpus:
        return 1.0
    worked = sum(ordinary.pool[leaf] for leaf in CPU if leaf != Leaf.RUNQUEUE)
    if fold.ledger.ranks:
        if not _ranks_fit(fold.surroundings, worked / spent_ns):
            return 1.0
        worked *= fold.surroundings.company.ranks
    others = mean(used) * spent_ns  # the scheduler spreads them over all processors
    return min(1.0, (others + worked) / queued)


def _ranks_fit(around: Surroundings, worked: float) -> bool:
    """Whether the ranks' compute threads and workers (``worked``: CPUs that one rank's use) have room on this host, all
    of which they may use: a processor that is idle meanwhile is one that they may not."""
    company, cpus, busy = around.company, around.devices.cpus or 0, around.busy.cpus
    if not company.threads or busy is None or busy < cpus - IDLE_CPUS:
        return False
    return company.threads + company.ranks * worked <= cpus


def _unfelt(fold: RankState) -> float:
    """The part of the time in which the rank's GPUs worked on: what the driver waits for meanwhile is not lost."""
    around = fold.surroundings
    return around.gpu_worked_ns / around.gpu_seen_ns if around.gpu_seen_ns else 0.0


def data_ns(items: Mapping[Item, float]) -> float:
    """What ordinary steps wait for data, or load it, in ns, of their ``waits``."""
    return sum(ns for (state, _, _), ns in items.items() if state in _OF_DATA)


def bottlenecks(fold: RankState, items: dict[Item, float]) -> list[FoundBottleneck]:
    """What the rank's ordinary steps lose, by cause; each above its threshold, the largest first. ``items``: their
    ``waits``."""
    alone = (_saving(fold), _saving_unmarked(fold), _throttled(fold), _churning(fold))
    found = [*_tied(fold, items), *_queueing_unmarked(fold), *filter(None, alone)]
    growth = fold.ordinary.growth
    steps = drift.DriftInput(fold.ordinary.ns, growth.trend, growth.makeup, growth.counters, fold.seen.pid)
    owned = {
        item[0] for one in found for item in one.claim.taken if one.cause != Cause.CHECKPOINT or item not in COPIES
    }
    grown = drift.claim(steps, fold.policy, owned)  # a save's copies are a part of the waits for the GPU, no more
    if grown is not None:
        found.append(FoundBottleneck(grown, Cause.DRIFT, grown.ns, grown.ns / fold.ordinary.ns))
    merged: dict[Cause, FoundBottleneck] = {}
    for one in found:
        merged[one.cause] = one.beside(merged.get(one.cause))
    return sorted(merged.values(), key=lambda one: -one.ns)


def _tied(fold: RankState, waited: dict[Item, float]) -> list[FoundBottleneck]:
    """What evidence of the steps' own make-up ties to a cause."""
    total, items = fold.ordinary.ns, fold.ordinary.items
    if total <= 0 or fold.ordinary.count < 8:
        return []
    suspects = lost_waits(fold, waited)
    if not suspects:
        return []
    if any(state == State.LOGGING for state, _, _ in suspects):  # what lies between calls may be the lines' making
        gaps = {item: ns for item, ns in items.items() if item[0] == State.COMPUTE and item[2] == Leaf.FILE_GAP}
        suspects = suspects | gaps
    window = window_of_ordinary(fold, suspects, None)
    if _idle_workers(fold):  # what they did is not what it waited for
        window = replace(window, pool=[0.0] * LEAVES)
    claims, _ = claims_of(window, ORDINARY_RULES)
    claims = _handed_over_late(_with_queueing(fold, claims))
    everywhere = 1 + fold.ordinary.late_ns / total  # late steps have their ordinary part, too
    merged: dict[Cause, FoundBottleneck] = {}
    main = max(claims, key=lambda claim: claim.ns)
    for claim in claims:
        cause = claim.cause if claim.ns >= MINOR * total else main.cause
        if cause is not None:
            found = FoundBottleneck(claim, cause, claim.ns * everywhere, claim.ns / total)
            merged[cause] = found.beside(merged.get(cause))
    return list(merged.values())


def _saving(fold: RankState) -> FoundBottleneck | None:
    """Saves that come with ordinary steps: their calls, and the CPU that goes into their bytes."""
    ordinary, saves = fold.ordinary, fold.files.saving_steps
    if ordinary.ns <= 0 or ordinary.count < 8 or not saves.ordinary:
        return None
    window = window_of_ordinary(fold, ordinary.items, None)
    serializing = saves.serializing(ordinary.items, ordinary.count, ordinary.fetches)
    claim, felt = checkpoint.in_ordinary_steps(window, saves, serializing), 1.0 - _unfelt(fold)
    claim = replace(claim, taken={item: felt * ns for item, ns in claim.taken.items()})
    share = claim.ns / ordinary.ns
    stalled = fold.stalls.seconds.get(Cause.CHECKPOINT, 0.0) > 0  # then shorter saves are no noise
    if share < (0.0 if stalled else fold.policy.checkpoint_bottleneck):
        return None
    return FoundBottleneck(claim, Cause.CHECKPOINT, claim.ns * (1 + ordinary.late_ns / ordinary.ns), share)


def _saving_unmarked(fold: RankState) -> FoundBottleneck | None:
    """Saves of a driver whose steps nothing marks, by their records: what no stall has of them."""
    rhythm, saves, stalls = fold.progress.wait_baseline, fold.files.saves, fold.stalls.seconds
    if not rhythm.stands or fold.stepped or rhythm.judged_ns <= 0:
        return None
    blocked = blocked_ns(saves)
    ns = min(blocked - stalls.get(Cause.CHECKPOINT, 0.0), rhythm.judged_ns - sum(stalls.values()))
    if blocked < fold.policy.checkpoint_bottleneck * rhythm.judged_ns or ns < MINOR * blocked:
        return None
    claim = checkpoint.without_steps(saves.closed_checkpoints(), ns, blocked, fold.seen.pid)
    return FoundBottleneck(claim, Cause.CHECKPOINT, ns, ns / rhythm.judged_ns)


def _queueing_unmarked(fold: RankState) -> list[FoundBottleneck]:
    """Waits for a processor of a driver whose steps nothing marks: these are lost, however usual they are."""
    rhythm = fold.progress.wait_baseline
    total, queued = rhythm.judged_ns, rhythm.queued
    if not rhythm.stands or fold.stepped or not queued:
        return []
    part = _contended(fold, queued, total)
    queued = {item: ns * (1.0 if item[2] == Leaf.THROTTLED else part) for item, ns in queued.items()}
    lost = _above_limits(fold, queued, OrdinarySums(queued, total, 1))
    if not lost:
        return []
    claims, _ = claims_of(window_of_ordinary(fold, lost, None), ORDINARY_RULES)
    return [FoundBottleneck(one, one.cause, one.ns, one.ns / total) for one in claims if one.cause is not None]


def _throttled(fold: RankState) -> FoundBottleneck | None:
    """What a lowered clock made of ordinary steps: it is in no state of its own, the GPU's readings tell."""
    slowed, total = fold.surroundings.gpu_pace.whole(), fold.ordinary.ns
    if slowed is None or slowed.lost_ns is None or total <= 0 or fold.ordinary.count < 8:
        return None
    lost = slowed.lost_ns - fold.stalls.seconds.get(Cause.GPU_THROTTLE, 0.0)
    if lost < fold.policy.gpu_bottleneck * total:
        return None
    window = window_of_ordinary(fold, fold.ordinary.items, replace(slowed, lost_ns=lost))
    claim = gpu_throttle.claim(window, fold.ordinary.items)
    return FoundBottleneck(claim, Cause.GPU_THROTTLE, claim.ns, claim.ns / total) if claim is not None else None


def _churning(fold: RankState) -> FoundBottleneck | None:
    """Allocating and freeing the GPU's memory in every step: the allocator's cache should make that rare."""
    total, churned = fold.ordinary.ns, fold.ordinary.churn
    if total <= 0 or fold.ordinary.count < 8 or churned.ns < fold.policy.gpu_bottleneck * total:
        return None
    window = window_of_ordinary(fold, fold.ordinary.items, None)
    claim = gpu_memory.claim(window, fold.ordinary.items)
    return FoundBottleneck(claim, Cause.GPU_MEMORY, claim.ns, claim.ns / total) if claim is not None else None


def _with_queueing(fold: RankState, claims: list[Claim]) -> list[Claim]:
    """Waiting for a CPU inside of a fetch lengthens the fetch: it goes to the cause that owns fetching, unless it is
    contention by itself."""
    owners = [c for c in claims if c.cause is not None and SPECS[c.cause].is_input]
    if not owners or any(c.cause == Cause.CPU_CONTENTION for c in claims):
        return claims
    queued = {
        item: ns for item, ns in fold.ordinary.items.items() if item[1] == Region.FETCH and item[2] == Leaf.RUNQUEUE
    }
    largest = max(owners, key=lambda c: c.ns)
    return [replace(c, taken={**c.taken, **queued}) if c is largest else c for c in claims]


def _handed_over_late(claims: list[Claim]) -> list[Claim]:
    """Threads of a worker hand its batches over, by a socket. What nothing else explains of the waits for them is
    contention where other programs keep the driver from a processor in its fetches: at most as long as they do."""
    contention = next((one for one in claims if one.cause == Cause.CPU_CONTENTION), None)
    unknown = next((one for one in claims if one.cause == Cause.UNKNOWN), None)
    if contention is None or unknown is None:
        return claims
    queued = sum(ns for (_, region, _), ns in contention.taken.items() if region == Region.FETCH)
    late = at_most(take_items(unknown.taken, states=[State.DATA_WAIT], leaves=[Leaf.SOCKET]), queued)
    rest = {item: ns - late.get(item, 0.0) for item, ns in unknown.taken.items()}
    new = [replace(contention, taken={**contention.taken, **late}), replace(unknown, taken=rest)]
    return [*(one for one in claims if one not in (contention, unknown)), *(one for one in new if one.ns > 0)]


def _starved(fold: RankState) -> bool:
    """Whether late batches stall the run already: then the shorter waits are theirs, too."""
    stalled = sum(fold.stalls.seconds.get(cause, 0.0) for cause, spec in SPECS.items() if spec.makes_batches)
    return stalled >= fold.policy.starved_share * (fold.ordinary.ns + fold.ordinary.late_ns + stalled)


def _idle_workers(fold: RankState) -> bool:
    return _busy(fold) < BUSY and not (_starved(fold) or fold.ordinary.works_in_waits or fold.lives.renewed.waited_for)


def _busy(fold: RankState) -> float:
    """Part of the workers' time in which they worked while they were waited for: 0 without any, 1 with a busy one."""
    blocked = FETCHING if fold.ordinary.fetches else ()
    pool, worker_ns = fold.ordinary.pool_in_waits()
    work = sum(pool[leaf] for leaf in (*CPU, *STORAGE, *SWAP, *blocked))
    return 1.0 if fold.ordinary.saturated else work / worker_ns if worker_ns > 0 else 0.0
