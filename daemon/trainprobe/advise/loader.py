"""How long a step takes with other loader settings: the arithmetic, from what was measured.

A step waits for data when its batches take longer to make than the step: with n workers a batch is ready every w/n
seconds. It cannot be shorter than the training's own part, and the CPU seconds of training and workers together must
fit the CPUs that there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from trainprobe.model.report import Rank

DEFAULT_PREFETCH = 2  # torch's prefetch_factor; what a training has set cannot be seen from outside
WAITING = ("data_wait", "data_inline")
FAIR = 0.5  # of the CPUs: what a training gets of them at least, however busy others are
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
    queueing: float = 0.0  # of `cpu`, the worker runnable without a CPU
    others: float = 0.0  # CPUs that other programs use

    @property
    def swapped(self) -> float:
        """Share of the time in which workers do something that they swap; what queues behind them does so for it."""
        return self.swapping / (self.cpu - self.queueing + self.swapping) if self.swapping else 0.0

    def unswapped(self) -> Loader:
        """The same if all of it fitted the memory.

        Swap in memory and reclaim use CPUs: for the workers' part of it in all that they use, the driver queued. They
        themselves queue no more: where the CPUs are too few then, all CPU seconds together make the step.
        """
        own = max(1e-6, self.own - self.starved - self.queued * self.swapped)
        cpu = self.cpu - self.queueing
        return replace(self, own=own, cpu=cpu, swapping=0.0, queued=0.0, starved=0.0, queueing=0.0)

    def step(self, workers: int) -> float:
        """Seconds of a mean step with so many workers."""
        made = self.fetches * (self.cpu + self.storage)
        if workers == 0:
            return self.own + made
        free = max(self.cpus - self.others, FAIR * self.cpus)
        together = (self.driver_cpu + self.fetches * self.cpu) / max(free, FAIR)
        return max(self.own, made / workers, together)

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


def measured(rank: Rank, cpus: int, ranks: int = 1) -> Loader | None:
    """None where too little was measured: no ordinary steps, or nothing of how batches are made.

    ``cpus``: its part of the host's, which it shares with ``ranks`` that do the same.
    """
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
    queueing, swapping = ordinary.worker_queue_seconds_per_batch or 0.0, ordinary.worker_memory_seconds_per_batch or 0.0
    used = (driver if driver is not None else own) + ordinary.fetches * (cpu - queueing + swapping)
    others = max(0.0, (ordinary.busy_cpus or 0.0) / ranks - used / ordinary.seconds)
    return Loader(
        rank.workers.peak, own, wait, ordinary.fetches, cpu, storage, driver if driver is not None else own, cpus,
        swapping, ordinary.states.get("runqueue", 0.0), ordinary.states.get("memory", 0.0), queueing, others,
    )  # fmt: skip


def prefetch_for(extra: float, loader: Loader, now: int) -> int:
    """prefetch_factor with which batches made beforehand cover a batch that is late by ``extra`` seconds."""
    return now + ceil(extra / max(loader.own * loader.workers, 1e-6))
