"""DataLoader workers that outlived their trainer: who they are and what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice, zip_longest

from trainprobe.collect.descriptors import gpu_files
from trainprobe.collect.owners import read_in_turn
from trainprobe.collect.procfs import Proc, Stat
from trainprobe.model.moment import NS
from trainprobe.model.sample import OrphanSample

WORKER_COMM = "pt_data_worker"
GRACE_NS = 15 * NS
"""torch's workers look for their parent every 5 s, between two batches: so long they may need to notice."""
AT_ONCE = 4096
"""Processes that a look reads one file of: anybody can have ten times as many, of which each takes 15 us."""
MOST = 256
"""That are reported: of each owner one after the other, until there are so many."""
READING_SECONDS = 0.1
"""For what they hold, at each look: a process with many mappings and descriptors takes 0.04 s, and anybody can name
hundreds so. Those that are left out come first the next time."""
_REMEMBERED = 4096
_Key = tuple[int, int]  # (pid, ticks)
_Held = tuple[int | None, int | None, int | None]  # memory, of it shared, descriptors of GPUs


class Orphans:
    """Remembers whose workers it has seen; finds those whose driver is gone, and those that nobody has seen before."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._workers: dict[_Key, int] = {}  # a worker -> its driver
        self._alone: dict[_Key, int] = {}  # since when it has no trainer
        self._held: dict[_Key, _Held] = {}  # at the last reading, the oldest first
        self._waiting = False
        self._stats: dict[int, Stat] = {}  # the oldest reading first

    def add_worker(self, pid: int, ticks: int, driver: int) -> None:
        self._workers.pop((pid, ticks), None)
        self._workers[pid, ticks] = driver
        if len(self._workers) > _REMEMBERED:
            self._workers.pop(next(iter(self._workers)))

    def read(self, now_ns: int) -> tuple[OrphanSample, ...]:
        """All orphans of the host."""
        stats = self._living()
        alone = {(pid, stat.ticks) for pid, stat in stats.items() if self._is_alone(pid, stat, stats)}
        self._alone = {key: self._alone.get(key, now_ns) for key in alone}
        self._workers = {key: driver for key, driver in self._workers.items() if _is(key, stats)}
        old = {key for key, since in self._alone.items() if now_ns - since >= GRACE_NS}
        by_owner: dict[int, list[_Key]] = {}
        for key in sorted(old):
            by_owner.setdefault(self._proc.pool.owner(key[0]), []).append(key)
        in_turn = (pair for keys in zip_longest(*by_owner.values()) for pair in zip(keys, by_owner) if pair[0])
        told = dict(islice(in_turn, MOST))
        self._measure(told)
        many = len(self._stats) >= AT_ONCE
        self._waiting = many or len(old) < len(alone) or len(self._held) < len(told)
        return tuple(self._sample(key, stats[key[0]]) for key in sorted(told))

    def _living(self) -> dict[int, Stat]:
        """All processes as they were read last, which is now. Of too many, half of those that are read now are new, and
        half were read longest ago."""
        pids = self._proc.pids()
        there = set(pids)
        known = {pid: stat for pid, stat in self._stats.items() if pid in there}
        new = [pid for pid in pids if pid not in known]
        first = new[: max(AT_ONCE - len(known), AT_ONCE // 2)]
        again = [*islice(known, AT_ONCE - len(first))]
        fresh = self._proc.stats([*first, *again])
        for pid in again:
            del known[pid]
        self._stats = known | fresh
        return {pid: stat for pid, stat in self._stats.items() if not stat.dead}

    def waiting(self) -> bool:
        """Whether one was seen that may become an orphan, or of which is not known yet what it holds."""
        return self._waiting

    def _measure(self, owners: Mapping[_Key, int]) -> None:
        """Read what those hold that wait longest."""
        self._held = {key: held for key, held in self._held.items() if key in owners}
        waiting = [*(key for key in owners if key not in self._held), *self._held]
        read_in_turn({key: owners[key] for key in waiting}, self._read_held, READING_SECONDS)

    def _read_held(self, key: _Key) -> None:
        rollup = self._proc.rollup(key[0])
        memory = (rollup.pss_bytes, rollup.shm_bytes) if rollup else (None, None)
        self._held.pop(key, None)
        self._held[key] = *memory, gpu_files(self._proc, key[0])

    def _is_alone(self, pid: int, stat: Stat, stats: dict[int, Stat]) -> bool:
        parent = stats.get(stat.ppid)
        driver = self._workers.get((pid, stat.ticks))
        if driver is not None:
            return driver not in stats or (stat.ppid != driver and _adopts(stat.ppid, parent))
        return stat.comm == WORKER_COMM and _adopts(stat.ppid, parent)

    def _sample(self, key: _Key, stat: Stat) -> OrphanSample:
        held = self._held.get(key, (None, None, None))
        return OrphanSample(key[0], self._proc.started_ns(stat.ticks), self._workers.get(key), stat.comm, *held)


def _adopts(ppid: int, parent: Stat | None) -> bool:
    """Whether a parent is one that takes in orphans: the init of a pid namespace, or a subreaper that is no Python."""
    return ppid in (0, 1) or parent is None or not parent.comm.startswith(("python", "pt_", "torchrun"))


def _is(key: _Key, stats: dict[int, Stat]) -> bool:
    stat = stats.get(key[0])
    return stat is not None and stat.ticks == key[1]


def workers_of(watched: Iterable[tuple[int, int, str, int]]) -> Iterable[tuple[int, int, int]]:
    """(pid, ticks, driver) of the workers among (pid, ticks, role, ppid)."""
    drivers = {pid for pid, _, role, _ in watched if role == "driver"}
    return [(pid, ticks, ppid) for pid, ticks, role, ppid in watched if role == "worker" and ppid in drivers]
