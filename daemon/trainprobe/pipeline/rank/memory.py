"""Memory, descriptors and CPU time of a rank's processes, as /proc has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field

from trainprobe.derive.memory.batch_bytes import BatchBytes
from trainprobe.derive.trend.resource_timeline import ResourceTimeline
from trainprobe.derive.workers import WorkerPool
from trainprobe.model.dataclass import dataclass
from trainprobe.model.sample import ProcessSample

ENDED = 256
"""Children that have ended whose last sample is kept: a failure, a kill or a reading of theirs may come after."""
OUTDATED = 2
"""Times the last reading: so much more is no shared memory that RSS counts in full."""


@dataclass(slots=True)
class MemoryState:
    """The latest sample of each process that lives or has ended of late, and peaks over the run. Bytes; None: not
    measured yet."""

    workers: WorkerPool
    processes: dict[int, ProcessSample] = field(default_factory=dict)
    pss_peak: int | None = None
    read_ns: int = 0  # the latest reading
    held_peak: int = 0  # of shared memory what they have open …
    mapped_peak: int | None = None  # … and what they map, as CUDA does
    worker_pss: int | None = None  # of one worker without shared memory, the largest mean
    worker_private: int | None = None  # of one worker what it shares with nobody, the largest mean
    taken_peak: int | None = None
    taken_workers: int = 0  # that were there then
    read_after_ns: int | None = None
    others_bytes: int | None = None
    fds_peak: int | None = None
    cpu_from: tuple[int, int] | None = None  # (CPU ns of the driver's process, steps) when the baseline stood
    cpu_last: tuple[int, int] | None = None
    course: ResourceTimeline = field(default_factory=ResourceTimeline)
    batch_bytes: BatchBytes = field(default_factory=BatchBytes)
    _ended: deque[int] = field(default_factory=deque)
    _fullest: ProcessSample | None = None  # of those that are kept no longer: the one nearest to its descriptors' limit

    def add_sample(self, sample: ProcessSample) -> None:
        """One process; ``read`` follows the last one of a frame."""
        self.processes[sample.pid] = sample
        if sample.open_fds is not None:
            self.add_open_fds(sample.open_fds)

    def forget(self, pid: int) -> None:
        """It has ended."""
        if pid not in self.processes:
            return
        self._ended.append(pid)
        if len(self._ended) > ENDED and not self.workers.owns(oldest := self._ended.popleft()):
            gone = self.processes.pop(oldest, None)
            self._fullest = max((one for one in (self._fullest, gone) if one is not None), key=_fds_used, default=None)

    def with_descriptors(self) -> Sequence[ProcessSample]:
        """The latest samples, those kept no longer among them as far as their descriptors count."""
        gone = (self._fullest,) if self._fullest is not None else ()
        return [*self.processes.values(), *gone]

    def add_open_fds(self, count: int) -> None:
        """Descriptors that one of its processes has open, whoever counted them."""
        self.fds_peak = max(self.fds_peak or 0, count)

    def add_cpu(self, cpu_ns: int, steps: int) -> None:
        """CPU time of the driver's process after so many steps."""
        self.cpu_last = (cpu_ns, steps)
        self.cpu_from = self.cpu_from or self.cpu_last

    def add_used(self, used: int) -> None:
        """Bytes of the run's memory limit that are in use, by anybody, when the processes were read."""
        pss = self.summed("pss_bytes")
        if pss is not None and self.taken_peak is not None and self.workers.count == self.workers.peak:
            self.others_bytes = max(0, used - pss)

    def read(self, started_ns: int, at_ns: int) -> None:
        """All processes have been read; ``started_ns``: when the driver's was started."""
        self.read_ns = at_ns
        pss, shm = self.summed("pss_bytes"), self.summed("shm_bytes")
        if shm is not None:
            self.held_peak = max(self.held_peak, self.summed("shm_held_bytes") or 0)
            self.mapped_peak = max(self.mapped_peak or 0, shm)
        if pss is not None:
            self.pss_peak = max(self.pss_peak or 0, self.proportional() or 0)
        if pss is not None and (old_ns := self._read_after_ns(started_ns)) is not None and old_ns >= 0:
            self.read_after_ns = max(self.read_after_ns or 0, old_ns)
            taken = pss - (shm or 0) + self._held(shm or 0) + self._swapped() + (self.summed("grown_bytes") or 0)
            if self.workers.count > self.taken_workers:
                self.taken_workers, self.taken_peak = self.workers.count, None
            self.taken_peak = max(self.taken_peak or 0, taken)
        self._read_workers()

    @property
    def shm_peak(self) -> int | None:
        """What they map counts where they never open any; None: not read."""
        return self.held_peak or self.mapped_peak

    def summed(self, name: str) -> int | None:
        """A field of ProcessSample over all live processes of the rank; None where none is known."""
        known = [value for p in self.owned() if (value := getattr(p, name)) is not None]
        return sum(known) if known else None

    def owned(self) -> list[ProcessSample]:
        """The samples of the driver's process and of its live children."""
        return [p for p in self.processes.values() if self.workers.owns(p.pid)]

    def live_workers(self) -> list[ProcessSample]:
        return [p for p in self.processes.values() if p.role == "worker" and p.pid in self.workers.live]

    def _read_after_ns(self, started_ns: int) -> int | None:
        """How long after the newest worker's start the oldest of the readings was made: before it, they do not add up.

        None: a process was not read. Older recordings do not tell when one was.
        """
        workers = {pid: life.start_ns for pid, life in self.workers.live.items() if life.role == "worker"}
        forked = max(workers.values(), default=started_ns)
        pids = (self.workers.driver, *workers)
        read = [p for pid in pids if (p := self.processes.get(pid)) and p.pss_bytes is not None]
        if len(read) <= len(workers):
            return None
        return min(forked if p.pss_read_ns is None else p.pss_read_ns for p in read) - forked

    def proportional(self) -> int | None:
        """PSS of all its processes. Where the readings, which are rare, are outdated, what the driver's has grown by
        counts, and where it has no workers what is resident. None: not read."""
        read = self.summed("pss_bytes")
        if read is None:
            return None
        driver = self.processes.get(self.workers.driver)
        alone = driver.rss_bytes if driver is not None and not self.workers.started else None
        now = max(read + (driver.grown_bytes if driver is not None else 0), alone or 0)
        return now if now > OUTDATED * read else read

    def _swapped(self) -> int:
        """Swapped memory of all its processes, what forked ones share once."""
        return sum(_swapped(p) for p in self.owned())

    def _held(self, mapped: int) -> int:
        """Shared memory of all its processes: what they map, or have open, if that is more."""
        return max(mapped, self.summed("shm_held_bytes") or 0)

    def _read_workers(self) -> None:
        live = self.live_workers()
        own = [p.pss_bytes - (p.shm_bytes or 0) for p in live if p.pss_bytes is not None]
        if own:
            self.worker_pss = max(self.worker_pss or 0, sum(own) // len(own))
        family = 1 + self.workers.count
        private = [
            max(0, p.private_bytes - (p.shm_bytes or 0)) + p.grown_bytes + _swapped_alone(p, family)
            for p in live
            if p.private_bytes is not None
        ]
        if private:
            self.worker_private = max(self.worker_private or 0, sum(private) // len(private))


def _fds_used(process: ProcessSample) -> float:
    return process.open_fds / process.max_fds if process.open_fds and process.max_fds else 0.0


def _swapped(process: ProcessSample) -> int:
    """Its part of swapped pages. VmSwap counts in each forked process what all of them share."""
    return (process.swap_bytes if process.swap_share_bytes is None else process.swap_share_bytes) or 0


def _swapped_alone(process: ProcessSample, family: int) -> int:
    """Its own swapped pages: the others are swapped in each of the ``family`` of forked processes, a part for each."""
    part, all_ = process.swap_share_bytes, process.swap_read_bytes
    if part is None or all_ is None or family < 2:
        return _swapped(process)
    return max(0, (family * part - all_) // (family - 1))
