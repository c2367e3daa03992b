"""DataLoader workers that outlived their trainer: who they are and what they hold."""

from __future__ import annotations

from collections.abc import Iterable

from trainprobe.collect.descriptors import gpu_files
from trainprobe.collect.procfs import Proc, Stat
from trainprobe.model.moment import NS
from trainprobe.model.sample import OrphanSample

WORKER_COMM = "pt_data_worker"
GRACE_NS = 15 * NS
"""torch's workers look for their parent every 5 s, between two batches: so long they may need to notice."""
MOST = 256
_REMEMBERED = 4096


class Orphans:
    """Remembers whose workers it has seen; finds those whose driver is gone, and those that nobody has seen before."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._workers: dict[tuple[int, int], int] = {}  # (pid, ticks) of a worker -> its driver
        self._alone: dict[tuple[int, int], int] = {}  # since when it has no trainer

    def add_worker(self, pid: int, ticks: int, driver: int) -> None:
        self._workers.pop((pid, ticks), None)
        self._workers[pid, ticks] = driver
        if len(self._workers) > _REMEMBERED:
            self._workers.pop(next(iter(self._workers)))

    def read(self, now_ns: int) -> tuple[OrphanSample, ...]:
        """All orphans of the host. Reads one file of every process."""
        stats = {pid: stat for pid, stat in self._proc.stats(self._proc.pids()).items() if not stat.dead}
        alone = {(pid, stat.ticks) for pid, stat in stats.items() if self._is_alone(pid, stat, stats)}
        self._alone = {key: self._alone.get(key, now_ns) for key in alone}
        self._workers = {key: driver for key, driver in self._workers.items() if _is(key, stats)}
        old = [key for key, since in self._alone.items() if now_ns - since >= GRACE_NS]
        return tuple(self._sample(pid, stats[pid]) for pid, _ in sorted(old)[:MOST])

    def waiting(self) -> bool:
        """Whether one was seen that may become an orphan."""
        return bool(self._alone)

    def _is_alone(self, pid: int, stat: Stat, stats: dict[int, Stat]) -> bool:
        parent = stats.get(stat.ppid)
        driver = self._workers.get((pid, stat.ticks))
        if driver is not None:
            return driver not in stats or (stat.ppid != driver and _adopts(stat.ppid, parent))
        return stat.comm == WORKER_COMM and _adopts(stat.ppid, parent)

    def _sample(self, pid: int, stat: Stat) -> OrphanSample:
        rollup = self._proc.rollup(pid)
        return OrphanSample(
            pid,
            self._proc.started_ns(stat.ticks),
            self._workers.get((pid, stat.ticks)),
            stat.comm,
            rollup.pss_bytes if rollup else None,
            rollup.shm_bytes if rollup else None,
            gpu_files(self._proc, pid),
        )


def _adopts(ppid: int, parent: Stat | None) -> bool:
    """Whether a parent is one that takes in orphans: the init of a pid namespace, or a subreaper that is no Python."""
    return ppid in (0, 1) or parent is None or not parent.comm.startswith(("python", "pt_", "torchrun"))


def _is(key: tuple[int, int], stats: dict[int, Stat]) -> bool:
    stat = stats.get(key[0])
    return stat is not None and stat.ticks == key[1]


def workers_of(watched: Iterable[tuple[int, int, str, int]]) -> Iterable[tuple[int, int, int]]:
    """(pid, ticks, driver) of the workers among (pid, ticks, role, ppid)."""
    drivers = {pid for pid, _, role, _ in watched if role == "driver"}
    return [(pid, ticks, ppid) for pid, ticks, role, ppid in watched if role == "worker" and ppid in drivers]
