"""A loader's queue replayed: what late batches would have cost with more batches made ahead.

Torch gives batches to its workers in turn, prefetch_factor times as many as there are workers, and takes them in order.
It ends with the epoch: nobody makes the next one's first batches ahead.
How long a late batch took its worker follows from the wait that was measured, and from how far ahead the workers were.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from trainprobe.advise.loader import MOST, Loader, outside_seconds
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Evidence

CAUSES = ("data_cpu", "data_storage", "worker_hang")
"""Whose stalls are waits for a batch that is late."""
NEW_EPOCH = "data.new_epoch"  # the evidence that the loader began anew in the step
FACTORS = (3, 4, 6, 8, 12, 16)
ENOUGH = 0.95  # of what the largest factor gains: a smaller one is proposed
WORTH = 0.05  # of what late batches cost: what gains less is not proposed
LATEST, FARTHEST = 20, 200  # late batches, and steps between two of them, that are replayed


@dataclass(frozen=True, slots=True)
class Ahead:
    """A prefetch_factor and the part of the seconds of late batches that it saves."""

    factor: int
    saves: float


@dataclass(frozen=True, slots=True)
class LateBatch:
    step: int
    seconds: float  # that the training waited for it
    first: bool = False  # of an epoch

    @classmethod
    def of(cls, step: int, seconds: float, evidence: Sequence[Evidence]) -> LateBatch:
        """Of a stall."""
        return cls(step, round(seconds, 3), any(one.key == NEW_EPOCH for one in evidence))


def of_loader(evidence: Sequence[Evidence]) -> bool:
    """Whether a stall was a wait for a batch of the loader."""
    return not outside_seconds(evidence)


def ahead(load: Loader, late: Sequence[LateBatch], now: int) -> Ahead | None:
    """The smallest factor beyond ``now`` that saves nearly all that can be saved; None: none does, or workers are
    slower than the training on the whole. ``late``: by step."""
    if not late or not load.keeps_up or load.own <= 0 or now >= FACTORS[-1] or load.workers > MOST:
        return None
    queue = Queue(load.workers, _rounded(load.each), _rounded(load.own / load.fetches))
    return _ahead(queue, tuple(late[-LATEST:]), now)


def _rounded(seconds: float) -> float:
    """Two digits: the answer is kept while figures only wander."""
    return float(f"{seconds:.1e}")


@dataclass(frozen=True, slots=True)
class Queue:
    """Seconds that a batch takes a worker, and a step without waiting."""

    workers: int
    batch: float
    own: float

    def replay(
        self, factor: int, took: dict[int, float], waits: Mapping[int, float], firsts: Collection[int] = ()
    ) -> float:
        """Seconds that the training waits once the queue was filled. ``took``: by number, seconds of late batches;
        those of ``waits`` are entered there, so that as much is waited for them; ``firsts``: numbers of epochs' first
        batches."""
        length = factor * self.workers
        last = max(took, default=0) + length if took else max(waits)
        free, taken, now, waited = [0.0] * self.workers, [0.0] * (last + 1), 0.0, 0.0
        first, filled = 0, 0.0  # of the epoch, and when it began
        for number in range(last + 1):
            if number in firsts:
                first, filled, free = number, now, [now] * self.workers
            asked = taken[number - length] if number >= first + length else filled
            worker = (number - first) % self.workers
            begun = max(free[worker], asked)
            if number in waits:
                took[number] = max(self.batch, now + waits[number] - begun)
            free[worker] = begun + took.get(number, self.batch)
            if number > self.workers:
                waited += max(0.0, free[worker] - now)
            taken[number] = now = max(now, free[worker])
            now += self.own
        return waited


@lru_cache(maxsize=64)
def _ahead(queue: Queue, late: tuple[LateBatch, ...], now: int) -> Ahead | None:
    waits: dict[int, float] = {}
    firsts: set[int] = set()
    at, before = 0, late[0].step
    for one in late:
        at += min(max(1, one.step - before), FARTHEST) if waits else FARTHEST
        waits[at], before = one.seconds, one.step
        if one.first:
            firsts.add(at)
    took: dict[int, float] = {}
    queue.replay(now, took, waits, firsts)
    costs = {factor: queue.replay(factor, dict(took), {}, firsts) for factor in (now, *FACTORS) if factor >= now}
    most = costs[now] - min(costs.values())
    if costs[now] <= 0 or most < WORTH * costs[now]:
        return None
    factor = next(one for one in sorted(costs) if costs[now] - costs[one] >= ENOUGH * most)
    return Ahead(factor, (costs[now] - costs[factor]) / costs[now])
