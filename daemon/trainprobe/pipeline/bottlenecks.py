"""Time lost in ordinary steps: what evidence ties to a cause although no single step is late."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainprobe.derive.ledger import Item, by_state
from trainprobe.detect.base import Claim, Window, WrittenLog
from trainprobe.detect.policy import Policy
from trainprobe.detect.registry import ORDINARY, claims_of
from trainprobe.detect.rules import gpu_memory, gpu_throttle
from trainprobe.detect.waiting import CPU, FETCHING, STORAGE, SWAP
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.pipeline.drifting import drift
from trainprobe.pipeline.rank import RankFold

_FETCHING = frozenset({Cause.DATA_CPU, Cause.DATA_STORAGE, Cause.DATA_INLINE, Cause.FAKE_BATCHING})
BUSY = 0.5
"""Workers that are busy for less of their time than this are not what the driver waits for."""


@dataclass(frozen=True, slots=True)
class Found:
    """A bottleneck: ns in ordinary steps and in the ordinary part of late ones; its share of an ordinary step."""

    claim: Claim
    cause: Cause
    ns: float
    share: float

    def beside(self, other: Found | None) -> Found:
        """Two rules' time of one cause; the larger one's words."""
        if other is None:
            return self
        larger = max(self, other, key=lambda one: one.ns)
        return replace(larger, ns=self.ns + other.ns, share=self.share + other.share)


def _limit(policy: Policy, item: Item) -> float | None:
    state, _, leaf = item
    if leaf == Leaf.THROTTLED:
        return policy.throttled_bottleneck
    return {
        State.DATA_WAIT: policy.data_bottleneck,
        State.DATA_INLINE: policy.inline_bottleneck,
        State.FAULT_IO: policy.data_bottleneck,
        State.LOGGING: policy.logging_bottleneck,
        State.RUNQUEUE: policy.contention_bottleneck,
        State.MEMORY: policy.memory_bottleneck,
        State.NETWORK: policy.network_bottleneck,
        State.COLLECTIVE: policy.collective_bottleneck,
    }.get(state)


def bottlenecks(fold: RankFold) -> list[Found]:
    """What the rank's ordinary steps lose, by cause; each above its threshold, the largest first."""
    found = _tied(fold)
    found += [one for one in (_throttled(fold), _churning(fold)) if one is not None]
    grown = drift(fold, {item[0] for one in found for item in one.claim.taken})
    if grown is not None:
        found.append(Found(grown, Cause.DRIFT, grown.ns, grown.ns / fold.ordinary_ns))
    return sorted(found, key=lambda one: -one.ns)


def _tied(fold: RankFold) -> list[Found]:
    """What evidence of the steps' own make-up ties to a cause."""
    total = fold.ordinary_ns
    if total <= 0 or fold.ordinary_steps < 8:
        return []
    sums = by_state(fold.ordinary)
    throttled = sum(ns for (_, _, leaf), ns in fold.ordinary.items() if leaf == Leaf.THROTTLED)
    starved = _starved(fold)
    idle_workers = _busy(fold) < BUSY and not starved
    suspects: dict[Item, float] = {}
    for item, ns in fold.ordinary.items():
        limit = fold.policy.starved_bottleneck if starved and item[0] == State.DATA_WAIT else _limit(fold.policy, item)
        whole = throttled if item[2] == Leaf.THROTTLED else sums.get(item[0], 0.0)
        if limit is None or whole < limit * total:
            continue
        if item[0] == State.DATA_WAIT and idle_workers and fold.worker_ns > 0:
            continue
        suspects[item] = ns
    if not suspects:
        return []
    logs: list[WrittenLog] = []
    if any(state == State.LOGGING for state, _, _ in suspects):  # what lies between calls may be the lines' making
        written = fold.saves.all_logs()
        logs.append(WrittenLog("", sum(log.ns for log in written), 0, sum(log.writes for log in written)))
        suspects |= {
            item: ns for item, ns in fold.ordinary.items() if item[0] == State.COMPUTE and item[2] == Leaf.FILE_GAP
        }
    latest = fold.latest
    backwards = latest.backwards if latest else 0
    window = Window(
        0,
        int(total),
        0.0,
        suspects,
        {item: int(ns) for item, ns in fold.ordinary.items()},
        fold.ordinary_pool,
        fold.setting(),
        fold.policy,
        workers=fold.workers.count,
        cpus=fold.devices.cpus,
        logs=logs,
        devices=fold.devices,
        quota=fold.quota.over(fold.start_ns, fold.sample_ns),
        rivals=fold.devices.rivals_at(fold.start_ns),
        own=frozenset((fold.seen.pid, *fold.workers.live)),
        stolen=fold.devices.stolen,
        slow_files=fold.slow_files.slowest(3),
        fetches_per_backward=latest.fetches / backwards if latest and backwards else 0.0,
        driver_pid=fold.seen.pid,
        driver_tid=fold.tid,
    )
    claims, _ = claims_of(window, ORDINARY)
    claims = _with_queueing(fold, claims)
    everywhere = 1 + fold.late_ns / total  # late steps have their ordinary part, too
    merged: dict[Cause, Found] = {}
    for claim in claims:
        if claim.cause is not None:
            found = Found(claim, claim.cause, claim.ns * everywhere, claim.ns / total)
            merged[claim.cause] = found.beside(merged.get(claim.cause))
    return [found for found in merged.values() if found.share >= 0.5 * _least(fold.policy)]


def _throttled(fold: RankFold) -> Found | None:
    """What a lowered clock made of ordinary steps: it is in no state of its own, the GPU's readings tell."""
    slowed, total = fold.gpu_pace.whole(), fold.ordinary_ns
    if slowed is None or slowed.lost_ns is None or total <= 0 or fold.ordinary_steps < 8:
        return None
    lost = slowed.lost_ns - fold.book.seconds.get(Cause.GPU_THROTTLE, 0.0)
    if lost < fold.policy.gpu_bottleneck * total:
        return None
    items = {item: int(ns) for item, ns in fold.ordinary.items()}
    window = Window(0, int(total), 0.0, fold.ordinary, items, fold.ordinary_pool, fold.setting(), fold.policy,
                    slowed=replace(slowed, lost_ns=lost), driver_pid=fold.seen.pid, driver_tid=fold.tid)  # fmt: skip
    claim = gpu_throttle.claim(window, fold.ordinary)
    return Found(claim, Cause.GPU_THROTTLE, claim.ns, claim.ns / total) if claim is not None else None


def _churning(fold: RankFold) -> Found | None:
    """Allocating and freeing the GPU's memory in every step: the allocator's cache should make that rare."""
    total, churned = fold.ordinary_ns, fold.ordinary_churn
    if total <= 0 or fold.ordinary_steps < 8 or churned.ns < fold.policy.gpu_bottleneck * total:
        return None
    items = {item: int(ns) for item, ns in fold.ordinary.items()}
    window = Window(0, int(total), 0.0, fold.ordinary, items, fold.ordinary_pool, fold.setting(), fold.policy,
                    churn=churned, driver_pid=fold.seen.pid, driver_tid=fold.tid)  # fmt: skip
    claim = gpu_memory.claim(window, fold.ordinary)
    return Found(claim, Cause.GPU_MEMORY, claim.ns, claim.ns / total) if claim is not None else None


def _with_queueing(fold: RankFold, claims: list[Claim]) -> list[Claim]:
    """Waiting for a CPU inside of a fetch lengthens the fetch: it goes to the cause that owns fetching, unless it is
    contention by itself."""
    owners = [c for c in claims if c.cause in _FETCHING]
    if not owners or any(c.cause == Cause.CPU_CONTENTION for c in claims):
        return claims
    queued = {item: ns for item, ns in fold.ordinary.items() if item[1] == Region.FETCH and item[2] == Leaf.RUNQUEUE}
    largest = max(owners, key=lambda c: c.ns)
    return [replace(c, taken={**c.taken, **queued}) if c is largest else c for c in claims]


def _least(policy: Policy) -> float:
    return min(policy.logging_bottleneck, policy.data_bottleneck, policy.memory_bottleneck)


def _starved(fold: RankFold) -> bool:
    """Whether late batches stall the run already: then the shorter waits are theirs, too."""
    stalled = sum(fold.book.seconds.get(cause, 0.0) for cause in (Cause.DATA_CPU, Cause.DATA_STORAGE))
    return stalled >= fold.policy.starved_share * (fold.ordinary_ns + fold.late_ns + stalled)


def _busy(fold: RankFold) -> float:
    """Part of the workers' time in which they worked (0 when there are none)."""
    blocked = FETCHING if fold.ordinary_fetches else ()
    work = sum(fold.ordinary_pool[leaf] for leaf in (*CPU, *STORAGE, *SWAP, *blocked))
    return work / fold.worker_ns if fold.worker_ns > 0 else 0.0
