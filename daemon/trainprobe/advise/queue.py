"""A loader's queue replayed: what late batches would have cost with more batches made ahead.

Torch gives batches to its workers in turn, prefetch_factor times as many as there are workers, and takes them in order.
How long a late batch took its worker follows from the wait that was measured, and from how far ahead the workers were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from trainprobe.advise.loader import Loader
from trainprobe.model.dataclass import dataclass

CAUSES = ("data_cpu", "data_storage", "worker_hang")
"""Whose stalls are waits for a batch that is late."""
FACTORS = (3, 4, 6, 8, 12, 16)
ENOUGH = 0.95  # of what the largest factor gains: a smaller one is proposed
WORTH = 0.05  # of what late batches cost: what gains less is not proposed
LATEST, FARTHEST = 20, 200  # late batches, and steps between two of them, that are replayed


@dataclass(frozen=True, slots=True)
class Ahead:
    """A prefetch_factor and the part of the seconds of late batches that it saves."""

    factor: int
    saves: float


def ahead(load: Loader, late: Sequence[tuple[int, float]], now: int) -> Ahead | None:
    """The smallest factor beyond ``now`` that saves nearly all that can be saved; None: none does, or workers are
    slower than the training on the whole. ``late``: step and seconds waited, by step."""
    if not late or not load.keeps_up or load.own <= 0:
        return None
    queue = Queue(load.workers, _rounded(load.each), _rounded(load.own / load.fetches))
    return _ahead(queue, tuple((step, round(seconds, 3)) for step, seconds in late[-LATEST:]), now)


def _rounded(seconds: float) -> float:
    """Two digits: the answer is kept while figures only wander."""
    return float(f"{seconds:.1e}")


@dataclass(frozen=True, slots=True)
class Queue:
    """Seconds that a batch takes a worker, and a step without waiting."""

    workers: int
    batch: float
    own: float

    def replay(self, factor: int, took: dict[int, float], waits: Mapping[int, float]) -> float:
        """Seconds that the training waits once the queue was filled. ``took``: by number, seconds of late batches;
        those of ``waits`` are entered there, so that as much is waited for them."""
        last = max(took, default=0) + factor * self.workers if took else max(waits)
        free, taken, now, waited = [0.0] * self.workers, [0.0] * (last + 1), 0.0, 0.0
        for number in range(last + 1):
            asked = taken[number - factor * self.workers] if number >= factor * self.workers else 0.0
            worker = number % self.workers
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
def _ahead(queue: Queue, late: tuple[tuple[int, float], ...], now: int) -> Ahead | None:
    waits: dict[int, float] = {}
    at, before = 0, late[0][0]
    for step, seconds in late:
        at += min(max(1, step - before), FARTHEST) if waits else FARTHEST
        waits[at], before = seconds, step
    took: dict[int, float] = {}
    queue.replay(now, took, waits)
    costs = {factor: queue.replay(factor, dict(took), {}) for factor in (now, *FACTORS) if factor >= now}
    most = costs[now] - min(costs.values())
    if costs[now] <= 0 or most < WORTH * costs[now]:
        return None
    factor = next(one for one in sorted(costs) if costs[now] - costs[one] >= ENOUGH * most)
    return Ahead(factor, (costs[now] - costs[factor]) / costs[now])
