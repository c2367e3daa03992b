"""How long a step takes with other loader settings, and how much memory: the arithmetic, from what was measured.

A step waits for data when its batches take longer to make than the step: with n workers a batch is ready every w/n
seconds. It cannot be shorter than the training's own part, and the CPU seconds of training and workers together must
fit the CPUs that there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from trainprobe.model.report import Rank

DEFAULT_PREFETCH = 2  # torch's prefetch_factor; what a training has set cannot be seen from outside
WAITING = ("data_wait", "data_inline")
ROOM = 0.9  # of the memory that is there: a run that takes more is near its end
SAFE = 0.8
WORTH = 0.02  # of a step: what is gained by one more worker must be more
MORE_FOR_STORAGE = 4  # workers per CPU, at most, where they wait for storage and not for a CPU


@dataclass(frozen=True, slots=True)
class Loader:
    """One rank's loading as it was measured; seconds and bytes."""

    workers: int
    own: float  # of a step, without its data
    wait: float  # for data, of a mean step, stalls included
    fetches: float  # batches per step
    cpu: float  # of a worker for a batch (of the driver itself without workers)
    storage: float
    driver_cpu: float  # of all threads of the driver per step, without its own loading
    cpus: int
    swapping: float = 0.0  # of a worker for a batch, in swap-in and reclaim
    queued: float = 0.0  # of a step, the driver runnable without a CPU
    starved: float = 0.0  # of a step, the driver itself in swap-in and reclaim

    def unswapped(self, workers: int) -> float:
        """Seconds of a mean step with so many workers if all of them fit the memory.

        Swap in memory and reclaim use CPUs: for the workers' part of it in all that they use, the driver queued.
        """
        used = self.cpu + self.swapping
        own = self.own - self.starved - (self.queued * self.swapping / used if used else 0.0)
        return self.step(workers, own)

    def step(self, workers: int, own: float | None = None) -> float:
        """Seconds of a mean step with so many workers. ``own``: of the training itself, if not as measured."""
        own = self.own if own is None else own
        made = self.fetches * (self.cpu + self.storage)
        if workers == 0:
            return own + made
        together = (self.driver_cpu + self.fetches * self.cpu) / max(self.cpus, 1)
        return max(own, made / workers, together)

    def gain(self, workers: int) -> float:
        """Seconds that a mean step becomes shorter; never more than it waits."""
        return max(0.0, min(self.wait, self.step(self.workers) - self.step(workers)))

    def most(self) -> int:
        """Workers beyond which more bring nothing on these CPUs."""
        return self.cpus * (MORE_FOR_STORAGE if self.storage > self.cpu else 1)

    def best(self, least: int = 1) -> int:
        """The fewest workers (not fewer than ``least``) with which a step is as short as it can be made by workers."""
        most = max(self.most(), least)
        shortest = min(self.step(number) for number in range(least, most + 1))
        return next(n for n in range(least, most + 1) if self.step(n) <= shortest * (1 + WORTH))


def measured(rank: Rank, cpus: int) -> Loader | None:
    """None where too little was measured: no ordinary steps, or nothing of how batches are made."""
    ordinary = rank.ordinary
    if ordinary.seconds is None or not ordinary.fetches or not ordinary.count or not cpus:
        return None
    waiting = sum(ordinary.states.get(state, 0.0) for state in WAITING)
    stalled = sum(rank.counters.stall_seconds.get(cause, 0.0) for cause in ("data_cpu", "data_storage", "data_inline"))
    wait = waiting + stalled / ordinary.count
    own = max(ordinary.seconds - waiting, 1e-6)
    cpu, storage = ordinary.worker_cpu_seconds_per_batch, ordinary.worker_storage_seconds_per_batch
    driver = ordinary.driver_cpu_seconds
    if not rank.workers.peak:
        made = wait / ordinary.fetches
        # Loading is on the driver's own thread: what it costs is what it takes, and it leaves with the loading.
        alone = max(0.0, (driver if driver is not None else own + wait) - wait)
        return Loader(0, own, wait, ordinary.fetches, made, 0.0, alone, cpus)
    if cpu is None or storage is None:
        return None
    return Loader(
        rank.workers.peak, own, wait, ordinary.fetches, cpu, storage, driver if driver is not None else own, cpus,
        ordinary.worker_memory_seconds_per_batch or 0.0, ordinary.states.get("runqueue", 0.0),
        ordinary.states.get("memory", 0.0),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Memory:
    """What the run takes, and what there is for it; bytes."""

    taken: int
    budget: int | None
    worker: int | None  # of one worker
    shared: int  # batches on their way
    workers: int
    scope: str

    def with_(self, workers: int, prefetch: int = DEFAULT_PREFETCH) -> int | None:
        """Bytes with other settings; None where a worker's were not measured."""
        if workers == self.workers and prefetch == DEFAULT_PREFETCH:
            return self.taken
        if not self.workers or self.worker is None:
            return None
        batches = self.shared * workers * prefetch / (self.workers * DEFAULT_PREFETCH)
        return round(self.taken + (workers - self.workers) * self.worker + batches - self.shared)

    def most_workers(self) -> int | None:
        """Workers that fit; None where that cannot be told."""
        if self.budget is None or self.worker is None or not self.workers:
            return None
        each = self.worker + self.shared / self.workers
        return max(0, self.workers + int((ROOM * self.budget - self.taken) // max(each, 1)))

    def verdict(self, taken: int | None) -> str:
        """safe, tight, "out of memory", or "" where it cannot be told."""
        if taken is None or not self.budget:
            return ""
        return "safe" if taken <= SAFE * self.budget else "tight" if taken <= self.budget else "out of memory"


def memory(rank: Rank, used: int | None) -> Memory | None:
    """``used``: of the limit's memory, by everybody in it."""
    told = rank.memory
    taken = told.taken_peak_bytes if told.taken_peak_bytes is not None else told.pss_peak_bytes
    if taken is None:
        return None
    # What a worker shares with the others stays when it goes, and is there before it comes.
    worker = told.worker_private_bytes if told.worker_private_bytes is not None else told.worker_pss_bytes
    budget = told.limit_bytes
    if budget is not None and used is not None and told.pss_bytes is not None:
        budget -= max(0, used - told.pss_bytes)  # what others hold in it is not ours to plan with
    shared = told.shm_peak_bytes if told.shm_peak_bytes is not None else told.shm_bytes or 0
    return Memory(taken, budget, worker, shared, rank.workers.peak, told.limit_scope or "host")


def prefetch_for(extra: float, loader: Loader) -> int:
    """prefetch_factor with which batches made beforehand cover a batch that is late by ``extra`` seconds."""
    return DEFAULT_PREFETCH + ceil(extra / max(loader.own * loader.workers, 1e-6))
