"""What memory a run takes with other loader settings: the arithmetic, from what was measured, and what is unsure of it.

A worker more takes what it shares with nobody, and its part of the batches that wait in shared memory; one less gives
that back. Everything else is there once, however many workers there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.advise.loader import DEFAULT_PREFETCH, IN_USE, prefetched
from trainprobe.model.amounts import seconds, size
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank
from trainprobe.text.saying import Saying, saying

ROOM = 0.9  # of the memory that is there: a run that takes more is near its end
SAFE = 0.8
REMEMBERED = 128
"""Batches that torch keeps a reference to in each worker after they were sent: until then the holes that they leave on
its heap become more."""
SETTLED = 8.0  # seconds: pages are copied on write most of all in the first ones
GROWTH = 1.1  # of the second half of a run over the first: it still grows


@dataclass(frozen=True, slots=True)
class Taken:
    num_workers: int
    prefetch_factor: int
    bytes: int
    verdict: str


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What the run takes, and what there is for it; bytes."""

    taken: int
    budget: int | None
    worker: int | None  # of one worker
    shared: int  # batches on their way
    workers: int
    scope: str
    batch: float | None = None  # what one takes of shared memory; None: not known, or it takes none
    prefetch: int = DEFAULT_PREFETCH

    @property
    def now(self) -> Taken:
        return Taken(self.workers, self.prefetch, self.taken, self.verdict(self.taken))

    def with_(self, workers: int, prefetch: int | None = None) -> int | None:
        """Bytes with other settings; None where a worker's, or a batch's, were not measured.

        Sooner or later (a save, an evaluation) the workers are as far ahead as they may be.
        """
        prefetch = self.prefetch if prefetch is None else prefetch
        if workers == self.workers and prefetch == self.prefetch:
            return self.taken
        if not self.workers or self.worker is None or (prefetch != self.prefetch and not self.batch):
            return None
        ahead = self.shared * workers / self.workers
        if self.batch:
            ahead = self.batch * (workers * prefetch + IN_USE)
        return round(self.taken + (workers - self.workers) * self.worker + ahead - self.shared)

    def most_workers(self) -> int | None:
        """Workers that fit; None where that cannot be told."""
        if self.budget is None or self.worker is None or not self.workers:
            return None
        each = self.worker + (self.batch * self.prefetch if self.batch else self.shared / self.workers)
        return max(0, self.workers + int((ROOM * self.budget - self.taken) // max(each, 1)))

    def verdict(self, taken: int | None) -> str:
        """safe, tight, "out of memory", or "" where it cannot be told."""
        if taken is None or not self.budget:
            return ""
        return "safe" if taken <= SAFE * self.budget else "tight" if taken <= self.budget else "out of memory"


def measured(rank: Rank) -> MemoryDemand | None:
    """None where its processes were not all read at a time."""
    told = rank.memory
    if told.taken_peak_bytes is None:
        return None
    budget = told.limit_bytes
    if budget is not None and told.others_bytes is not None:
        budget -= told.others_bytes  # what others hold in it is not ours to plan with
    return MemoryDemand(
        told.taken_peak_bytes, budget, told.worker_private_bytes, told.shm_peak_bytes or 0, rank.workers.peak,
        told.limit_scope or "host", told.shm_bytes_per_batch, prefetched(told, rank.workers.peak),
    )  # fmt: skip


def others(memory: MemoryDemand) -> tuple[Taken, ...]:
    """Fewer workers, more of them, and more batches ahead, as far as each can be told."""
    workers, prefetch = memory.workers, memory.prefetch
    settings = dict.fromkeys(((max(1, workers // 2), prefetch), (2 * workers, prefetch), (workers, 2 * prefetch)))
    settings.pop((workers, prefetch), None)
    told = ((setting, memory.with_(*setting)) for setting in settings)
    return tuple(Taken(*setting, taken, memory.verdict(taken)) for setting, taken in told if taken is not None)


def unsure(rank: Rank, memory: MemoryDemand) -> Iterator[Saying]:
    """Why the predictions may not hold."""
    if not memory.workers:
        yield saying("what a worker takes is not known: there was none")
        return
    if (after := rank.memory.read_after_seconds or 0.0) < SETTLED:
        yield saying(
            "these figures may be too low: memory was last read {after} after the workers were started",
            after=seconds(after),
        )
    made = round(rank.steps.count * (rank.ordinary.fetches or 0.0) / memory.workers)
    if made < REMEMBERED:
        yield saying(
            "each worker has made {made:# batch|# batches}: it may grow until it has made {enough}; watch it for "
            "longer",
            made=made, enough=REMEMBERED,
        )  # fmt: skip
    begun = max((span.end or 0.0 for span in rank.phases if span.phase == "startup"), default=0.0)  # it grows at first
    readings = zip(rank.samples.time, rank.samples.pss_bytes)
    points = [value for time, value in readings if value is not None and time >= begun]
    half = len(points) // 2
    if half and max(points[half:]) > GROWTH * (before := max(points[:half])):
        yield saying(
            "memory still grew when it was last looked at, from {before} to {after}: all of this becomes more",
            before=size(before), after=size(max(points[half:])),
        )  # fmt: skip
    if memory.workers == 1:
        yield saying(
            "one worker's own memory cannot be told from what the training left to it: further ones take less than "
            "shown"
        )
    if not memory.batch:
        yield saying("no batches were seen in shared memory: what prefetch_factor takes is not known")
