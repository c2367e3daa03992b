"""Limits of a run that can be reached: memory, /dev/shm, descriptors, processes. A reading takes a few files each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from trainprobe.collect.cgroup import Cgroups, Known
from trainprobe.collect.cgroup_path import parse_cgroups, place
from trainprobe.collect.procfs import SMALL, Proc, Stat, parse_fd_limit
from trainprobe.collect.shared_memory import SharedMemoryReader
from trainprobe.collect.watched import Watched
from trainprobe.model.moment import NS
from trainprobe.model.sample import LimitSample

EXITING = 0x4  # PF_EXITING
CONSTANT_NS, RAISED_NS = 120 * NS, 12 * NS
"""A process's own limit is asked again after this, after the latter where many are open (somebody may raise it), and
when more are open than ever under it: a training may set its own after we have read it."""
CLOSE = 0.1  # of the limit of descriptors: who holds so many is counted each time
IN_TURN, ROUNDS = 64, 8  # of the others so many, or more where not all would have their turn in so many readings


class LimitReader:
    """Reads used and limit of everything that a run may exhaust."""

    def __init__(self, proc: Proc, cgroups: Cgroups, shared: SharedMemoryReader) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._shared = shared
        self._fd_limits: dict[tuple[int, int], tuple[int | None, int, int]] = {}  # how many were open then; when
        self._containers: dict[str, str] = {}  # by cgroups
        self._places: dict[int, tuple[int, str]] = {}  # by pid: its start, and its cgroups while it lived
        self._until_ns = 0
        self._close: set[int] = set()  # pids that held many descriptors when they were counted
        self._readings = 0

    def read(
        self, watched: Sequence[Watched], now_ns: int, asked: Collection[int] = (), *, placed: bool = False
    ) -> list[LimitSample]:
        """All of all runs; what has no limit is left out, and where many processes are far from their limit of
        descriptors, those that are not in turn. ``asked``: processes whose descriptors are counted now; ``placed``:
        their cgroups are taken to be what they were at the last reading."""
        if now_ns >= self._until_ns or len(self._fd_limits) > 2 * len(watched) + IN_TURN:
            self._until_ns = now_ns + CONSTANT_NS
            self._fd_limits, self._containers = {}, {}
            self._shared.forget(process.pid for process in watched)
        self._cgroups.hidden = False
        chosen = first_of_each_run(watched)
        counted = self._in_turn(watched, asked)
        known = placed and all(pid in self._places for pid in chosen.values())
        unplaced, pids = () if known else chosen.values(), [one.pid for one in counted]
        seen, rooms, counts = self._proc.limited(unplaced, chosen.values(), pids)
        if not known:
            self._places = {pid: at for pid in chosen.values() if (at := self._place(pid, *seen[pid])) is not None}
        found: list[LimitSample] = []
        alike: dict[str, list[LimitSample]] = {}  # runs of one cgroup have the same limits
        levels: Known = {}
        for run, pid in chosen.items():
            if pid not in self._places:
                continue
            cgroups = self._places[pid][1]
            if cgroups not in alike:
                memory, count = self._cgroups.memory, self._cgroups.processes
                alike[cgroups] = [*memory(run, pid, cgroups, levels), *count(run, pid, cgroups, levels)]
            found += [replace(one, run=run) for one in alike[cgroups]]
            shm = self._shared.limit(run, pid, self._container(cgroups), now_ns, rooms[pid])
            found += [shm] if shm is not None else []
        return found + self._descriptors([one for one in counted if one.pid in counts], counts, asked, now_ns)

    def cgroups(self, pid: int) -> str | None:
        """/proc/PID/cgroup as it was at the last reading, of a process that was asked for then."""
        known = self._places.get(pid)
        return self._proc.cgroup(pid) if known is None else known[1]

    def _in_turn(self, watched: Sequence[Watched], asked: Collection[int]) -> list[Watched]:
        """Whose descriptors are counted in this reading."""
        rounds = min(ROUNDS, math.ceil(len(watched) / IN_TURN))
        self._readings += 1
        return [
            process
            for place, process in enumerate(watched)
            if (place + self._readings) % rounds == 0 or process.pid in self._close or process.pid in asked
        ]

    def _descriptors(
        self, counted: Sequence[Watched], counts: Mapping[int, int], asked: Collection[int], now_ns: int
    ) -> list[LimitSample]:
        found, close = [], set()
        self._ask_fd_limits(counted, counts, asked, now_ns)
        for process in counted:
            used, (limit, *_) = counts[process.pid], self._fd_limits.get((process.pid, process.ticks), (None,))
            if limit is not None:
                found.append(LimitSample(process.run, "fds", used, limit, pid=process.pid))
                if used >= CLOSE * limit:
                    close.add(process.pid)
        self._close = close
        return found

    def _place(self, pid: int, cgroups: str | None, stat: Stat | None) -> tuple[int, str] | None:
        """Start and cgroups of a process; None when it is gone.

        cgroup v1 shows a process that exits in the root, whose limits are not its own: what it showed before counts,
        and whether it exits is asked after reading, for it may begin to in between.
        """
        if stat is None or stat.dead or cgroups is None:
            return None
        if not stat.flags & EXITING:
            return stat.ticks, cgroups
        before = self._places.get(pid)
        return before if before is not None and before[0] == stat.ticks else None

    def _ask_fd_limits(
        self, counted: Sequence[Watched], counts: Mapping[int, int], asked: Collection[int], now_ns: int
    ) -> None:
        """Limits that are not known, or may have changed. What cannot be read now is asked the next time."""
        wanted = {}
        for process in counted:
            known = self._fd_limits.get((process.pid, process.ticks))
            more = known is None or counts[process.pid] > known[1]
            old = known is not None and process.pid in self._close and now_ns - known[2] >= RAISED_NS
            if more or old or process.pid in asked:
                wanted[process.pid] = process
        for pid, data in self._proc.each(wanted, "read", "limits", SMALL).items() if wanted else ():
            self._fd_limits[pid, wanted[pid].ticks] = parse_fd_limit(data), counts[pid], now_ns

    def _container(self, cgroups: str) -> str:
        if cgroups not in self._containers:
            self._containers[cgroups] = place(parse_cgroups(cgroups)).container or ""
        return self._containers[cgroups]


def first_of_each_run(watched: Sequence[Watched]) -> dict[str, int]:
    """A process of each run that its limits and its quota are asked of: its first driver, else any."""
    chosen: dict[str, int] = {}
    for process in sorted(watched, key=lambda process: (process.role != "driver", process.started_ns)):
        chosen.setdefault(process.run, process.pid)
    return chosen
