"""How long a step takes with other loader settings: the arithmetic, from what was measured.

A step waits for data when its batches take longer to make than the step: with n workers a batch is ready every w/n
seconds. It cannot be shorter than the training's own part, and the CPU seconds of training and workers together must
fit the CPUs that there are.

Each is reckoned twice. What is promised: other programs stay, some of the CPUs' time cannot be used, workers that want
a CPU at the same time take it from the driver. What it can be at most: the host is all its own, and nothing queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import comb, erf, exp, pi, sqrt

from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Evidence, Memory, OrdinaryStep, Rank

DEFAULT_PREFETCH = 2  # torch's prefetch_factor
IN_USE = 1  # batches: the one that the training works on
UNEVEN = 0.25  # of a batch for each worker: by what their sizes may differ
WAITING = ("data_wait", "data_inline")
LATE = ("data_cpu", "data_storage", "data_inline")  # causes of late batches
OUTSIDE = "data.outside"  # the evidence that the training thread loaded by itself, in no fetch
USABLE = 0.93
"""Of the CPUs: what driver and workers together get to use of them at least (93 to 99 % was seen on 2 CPUs)."""
FAIR = 0.5  # of the CPUs: what a training gets of them at least, however busy others are
WORTH = 0.02  # of a step: what is gained by one more worker must be more
MORE_FOR_WAITING = 4  # workers per CPU, at most, where they wait for storage or the network and not for a CPU
MOST = 4096  # workers: no loader has more
COUNTED = 128  # workers, up to which each number of them that may be on a CPU is counted
ROUNDS = 3  # until a step and the workers' share of the CPUs in it agree


@dataclass(frozen=True, slots=True)
class Loader:
    """One rank's loading as it was measured; seconds and bytes."""

    workers: int
    own: float  # of a step, without its data
    wait: float  # for data, of a mean step, stalls included
    fetches: float  # batches per step
    cpu: float  # of a worker for a batch, on a CPU (of the driver itself without workers)
    blocked: float  # of a worker for a batch, in storage, the network, a sleep
    driver_cpu: float  # of all threads of the driver per step, without its own loading
    cpus: int
    swapping: float = 0.0  # of a worker for a batch, in swap-in and reclaim
    queued: float = 0.0  # of a step, the driver runnable without a CPU
    starved: float = 0.0  # of a step, the driver itself in swap-in and reclaim
    queueing: float = 0.0  # of a worker for a batch, runnable without a CPU
    others: float = 0.0  # CPUs that other programs use
    without_data: int = 0  # workers that were started with them, and got nothing to load

    @property
    def each(self) -> float:
        """Seconds that a batch takes a worker."""
        return self.cpu + self.queueing + self.blocked

    @property
    def keeps_up(self) -> bool:
        """Whether its workers make batches as fast as steps use them, but for single ones."""
        return self.workers > 0 and self.fetches * self.each / self.workers <= self.own

    @property
    def swapped(self) -> float:
        """Share of the time in which workers do something that they swap; what queues behind them does so for it."""
        return self.swapping / (self.cpu + self.swapping) if self.swapping else 0.0

    def unswapped(self, workers: int) -> Loader:
        """The same if all of it fitted the memory, with so many workers.

        Swap in memory and reclaim use CPUs: for the workers' part of it in all that they use, the driver queued. What
        is left of its queueing goes too, as far as there is then a CPU for each.
        """
        crowded = min(1.0, max(0.0, workers + 1 + self.others - self.cpus))
        queued = self.queued * (1 - self.swapped) * crowded
        own = max(1e-6, self.own - self.starved - self.queued + queued)
        return replace(self, own=own, swapping=0.0, queued=queued, starved=0.0, queueing=0.0)

    @property
    def used(self) -> float:
        """CPU seconds of a step, the workers' too."""
        return self.driver_cpu + self.fetches * self.cpu

    def step(self, workers: int) -> float:
        """Seconds of a mean step with so many workers: it will not be longer."""
        if workers == 0:
            return self.own + self.fetches * self.each
        free = max(USABLE * self.cpus - self.others, FAIR * self.cpus, FAIR)
        least = max(self.own, self.fetches * self.each / workers, self.used / free)
        longest = least
        for _ in range(ROUNDS):
            longest = max(least, self._beside(workers, longest))
        return longest

    def _beside(self, workers: int, step: float) -> float:
        """The training's own part of a step while so many workers want CPUs too, each for its share of ``step``."""
        busy = min(1.0, max(0.0, self.fetches * self.cpu / workers / step))
        slower = _beyond(workers, busy, self.cpus - 1) / self.cpus
        on_cpu = min(self.driver_cpu, self.own - self.queued)
        return self.own - self.queued + max(0.0, on_cpu) * slower

    def quickest(self, workers: int) -> float:
        """Seconds of a mean step with so many workers: it will not be shorter."""
        if workers == 0:
            return self.own - self.queued + self.fetches * (self.cpu + self.blocked)
        made = self.fetches * (self.cpu + self.blocked) / workers
        return max(self.own - self.queued, made, self.used / self.cpus)

    def gain(self, workers: int) -> float:
        """Seconds that a mean step becomes shorter at least: of what it waits because too few workers make batches."""
        paced = self.fetches * self.each / self.workers if self.workers else self.own + self.wait
        return max(0.0, min(self.own + self.wait, paced) - self.step(workers))

    def gain_at_most(self, workers: int) -> float:
        """Seconds that it may become shorter where nothing else is in the way."""
        return max(self.gain(workers), self.own + self.wait - self.quickest(workers))

    @property
    def crowded(self) -> bool:
        """Whether more workers would gain something if no other program used the CPUs."""
        alone = replace(self, others=0.0)
        return self.others > 0 and alone.gain(alone.best()) > WORTH * (self.own + self.wait)

    def most(self) -> int:
        """Workers beyond which more bring nothing on these CPUs."""
        return min(self.cpus * (MORE_FOR_WAITING if self.blocked > self.cpu else 1), MOST)

    def best(self) -> int:
        """The fewest workers with which a step is as short as it can be made by workers."""
        steps = [self.step(number) for number in range(1, max(self.most(), 1) + 1)]
        enough = min(steps) * (1 + WORTH)
        return next(number for number, step in enumerate(steps, 1) if step <= enough)


def _beyond(workers: int, busy: float, free: int) -> float:
    """The mean number of workers on a CPU beyond ``free``, where each is on one for a ``busy`` part of the time."""
    if workers <= COUNTED:
        chances = ((n, comb(workers, n) * busy**n * (1 - busy) ** (workers - n)) for n in range(free + 1, workers + 1))
        return sum((n - free) * chance for n, chance in chances)
    # So many are spread about their mean as a normal distribution is.
    over, wide = workers * busy - free, max(sqrt(workers * busy * (1 - busy)), 1e-9)
    return over * (1 + erf(over / wide / sqrt(2))) / 2 + wide * exp(-((over / wide) ** 2) / 2) / sqrt(2 * pi)


def prefetched(memory: Memory, workers: int) -> int:
    """As many batches a worker as were seen in shared memory at once; torch's default where they were fewer. Loops that
    keep a further batch in use (accelerate's) have more there: what is no whole batch for each worker is not ahead."""
    batch = memory.shm_bytes_per_batch
    if not batch or not workers:
        return DEFAULT_PREFETCH
    return max(DEFAULT_PREFETCH, int(((memory.shm_peak_bytes or 0) / batch - IN_USE) / workers + UNEVEN))


def measured(rank: Rank, cpus: int, ranks: int = 1) -> Loader | None:
    """None where too little was measured: no ordinary steps, or nothing of how batches are made.

    ``cpus``: its part of the host's, which it shares with ``ranks`` that do the same.
    """
    stalls = of_loader(rank.counters.stall_seconds, ((stall.cause, stall.evidence) for stall in rank.stalls))
    return loader(rank.ordinary, rank.workers.peak, stalls, cpus, ranks)


def outside_seconds(evidence: Sequence[Evidence]) -> float:
    """Of a stall: what the training thread loaded in no fetch of a loader."""
    return sum(one.value for one in evidence if one.key == OUTSIDE and isinstance(one.value, float))


def of_loader(lost: Mapping[str, float], stalls: Iterable[tuple[str, Sequence[Evidence]]]) -> dict[str, float]:
    """Seconds by cause, without what was loaded in no fetch."""
    left = dict(lost)
    for cause, evidence in stalls:
        if cause in left:
            left[cause] = max(0.0, left[cause] - outside_seconds(evidence))
    return left


def loader(
    ordinary: OrdinaryStep, workers: int, stalls: Mapping[str, float], cpus: int, ranks: int = 1
) -> Loader | None:
    """The same from its parts. ``workers``: at most, those of an evaluation too; ``stalls``: seconds by cause."""
    if ordinary.seconds is None or not ordinary.fetches or not ordinary.count or not cpus:
        return None
    workers = ordinary.workers or workers
    waiting = sum(ordinary.states.get(state, 0.0) for state in WAITING)
    blocked = (ordinary.worker_storage_seconds_per_batch or 0.0) + (ordinary.worker_blocked_seconds_per_batch or 0.0)
    late = (*LATE, "unknown") if blocked > (ordinary.worker_cpu_seconds_per_batch or 0.0) else LATE
    wait = waiting + sum(stalls.get(cause, 0.0) for cause in late) / ordinary.count
    own = max(ordinary.seconds - waiting, 1e-6)
    wanted, storage = ordinary.worker_cpu_seconds_per_batch, ordinary.worker_storage_seconds_per_batch
    driver = ordinary.driver_cpu_seconds
    if not workers:
        made = wait / ordinary.fetches
        # Loading is on the driver's own thread: what it costs is what it takes, and it leaves with the loading.
        alone = max(0.0, (driver if driver is not None else own + wait) - wait)
        return Loader(0, own, wait, ordinary.fetches, made, 0.0, alone, cpus)
    if wanted is None or storage is None:
        return None
    queueing, swapping = ordinary.worker_queue_seconds_per_batch or 0.0, ordinary.worker_memory_seconds_per_batch or 0.0
    cpu = wanted - queueing
    used = (driver if driver is not None else own) + ordinary.fetches * (cpu + swapping)
    others = max(0.0, (ordinary.busy_cpus or 0.0) / ranks - used / ordinary.seconds)
    return Loader(
        workers, own, wait, ordinary.fetches, cpu, blocked, driver if driver is not None else own, cpus,
        swapping, ordinary.states.get("runqueue", 0.0), ordinary.states.get("memory", 0.0), queueing, others,
        ordinary.workers_without_data,
    )  # fmt: skip
