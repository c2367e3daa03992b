"""Samples of watched processes: cheap fields each time, proportional memory seldom and for few at a time.

Measured on a process with torch (1500 mappings): all cheap fields together 0.05 ms; smaps_rollup 2.5 to 5 ms, with the
process's memory map locked for reading. So the latter is asked every 10 s at most (every 3 s while a limit is near),
for PSS_AT_ONCE processes a round. Where two readings in a row say the same, the pause doubles, up to PSS_STEADY_NS;
resident memory that moves ends it. A worker that is started makes all of them begin anew: what forked processes share
is divided among more of them, and readings from before and after it do not add up. Away from limits all readings but
the first two take no more than PSS_SHARE of a processor together (PSS_STEADY_SHARE where resident memory is as it was
at the last one), however many processes there are; the second tells of the pages that were copied on write in the first
seconds. A driver that has just been started is asked at each round in which its resident memory has moved: it grows
quickly, and may not live for long. (psutil is no cheaper: 0.07 and 2.5 ms.)

Of a process that has used no processor since it was read, and whose memory is as it was, only the one file is read that
tells so, where there are more than FEW: it has opened and read nothing. With a thousand processes most are like that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from trainprobe.collect.procfs import Details, Proc, Rollup, Stat
from trainprobe.collect.watched import Watched
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import ProcessSample

PSS_EVERY_NS = 10 * NS
PSS_NEAR_NS = 3 * NS
PSS_STEADY_NS = 60 * NS
MOVED = 0.02  # of what it was: this is another reading
PSS_AT_ONCE = 2
PSS_NEAR_AT_ONCE = 6
PSS_SHARE = 0.0002
PSS_STEADY_SHARE = 0.00005  # of those whose memory is as it was
PSS_AT_FIRST = 2
PSS_NEAR_SHARE = 0.001  # for one process, near a limit
BEGUN_NS, YOUNG_NS = NS, 10 * NS  # before, an interpreter is all that is there
FEW = 16
"""Of so few processes all is read together: waking a helper costs more than the files of a few that were idle."""
IDLE_NS = 20 * NS  # one that seems to have done nothing is read again after this: the kernel counts in ticks


@dataclass(frozen=True, slots=True)
class _Details:
    """What changes only when the process does something."""

    state: tuple[int, int, int]  # processor time, resident memory and threads when it was read
    read_ns: int
    swap_bytes: int | None
    anonymous_bytes: int | None
    open_fds: int | None
    max_fds: int | None


@dataclass(slots=True)
class _Memory:
    """Of one process: the last reading of its proportional memory, and when the next one is due."""

    read_ns: int  # the last reading; before the first one, since when it waits
    rollup: Rollup | None = None
    pause_ns: int = 0  # 0: never read
    times: int = 0  # it was read since the newest worker shares its memory
    least_ns: int = 0  # of a pause, for what a reading costs
    rss_bytes: int = 0  # now, and at the last reading
    rss_then: int = 0
    shm_held: int | None = None
    anonymous_then: int | None = None  # at the last reading, swapped pages too; None: it was made just now
    details: _Details | None = None

    def grown(self, now: _Details) -> int:
        """Anonymous bytes since the last reading. Pages that went to swap or came back from there are no growth."""
        anonymous = (now.anonymous_bytes or 0) + (now.swap_bytes or 0)
        if self.anonymous_then is None:
            self.anonymous_then = anonymous
        return max(0, anonymous - self.anonymous_then)

    def forked(self, at_ns: int) -> None:
        """The newest worker was started then."""
        if self.read_ns < at_ns:
            self.times = 0

    def due_ns(self, near: bool, every_ns: int) -> int:
        if not self.times:
            return self.read_ns
        pause = self.pause_ns
        if near:
            pause = PSS_NEAR_NS
        elif _moved(self.rss_then, self.rss_bytes):
            pause = every_ns
        return self.read_ns + max(pause, self.least_ns)

    def add_rollup(self, rollup: Rollup | None, now_ns: int, took_ns: int, every_ns: int) -> None:
        """A new reading; None: it could not be made, the old one stands."""
        before = self.rollup.pss_bytes if self.rollup else None
        after = rollup.pss_bytes if rollup else None
        steady = bool(self.pause_ns) and not _moved(before, after)
        self.pause_ns = min(2 * self.pause_ns, PSS_STEADY_NS) if steady else every_ns
        self.least_ns = round(took_ns / PSS_NEAR_SHARE)
        self.read_ns, self.rss_then = now_ns, self.rss_bytes
        self.times += 1
        self.rollup = rollup or self.rollup


def young(process: Watched, now_ns: int) -> bool:
    """Whether it is a driver that was started just now."""
    return process.role == "driver" and now_ns - process.started_ns < YOUNG_NS


def _moved(before: int | None, after: int | None) -> bool:
    return before is None or after is None or abs(after - before) > MOVED * before


class Processes:
    """Reads samples; remembers each process's last proportional memory, which a sample repeats until the next one."""

    def __init__(self, proc: Proc, pss_every_ns: int = PSS_EVERY_NS, pss_at_once: int = PSS_AT_ONCE) -> None:
        self._proc = proc
        self._every = pss_every_ns
        self._at_once = pss_at_once
        self._free_ns = 0  # before this, further readings would take too much
        self._memory: dict[tuple[int, int], _Memory] = {}

    def read(self, watched: Iterable[Watched], now_ns: int, *, near: bool = False) -> tuple[ProcessSample, ...]:
        """One sample for each process that still lives and is still the same one. ``near``: memory runs short."""
        samples, alive = [], {}
        wanted = list(watched)
        pids = [process.pid for process in wanted]
        read: Mapping[int, Details] = {}
        if len(pids) <= FEW:
            stats, read = self._proc.stats_and_details(pids)
        else:
            stats = self._proc.stats(pids)
        for process in wanted:
            if (now := stats.get(process.pid)) is not None and now.ticks == process.ticks:
                self._memory.setdefault((process.pid, process.ticks), _Memory(now_ns)).rss_bytes = now.rss_bytes
        self._measure(wanted, now_ns, near)
        for process in wanted:
            stat = stats.get(process.pid)
            if stat is not None and not stat.dead and stat.ticks == process.ticks:
                key = (process.pid, process.ticks)
                alive[key] = self._memory.get(key) or _Memory(now_ns)
        living = [process for process in wanted if (process.pid, process.ticks) in alive]
        memories = {process.pid: alive[process.pid, process.ticks] for process in living}
        self._take_details(memories, stats, read, now_ns, near)
        for process in living:
            stat, memory = stats[process.pid], alive[process.pid, process.ticks]
            details, rollup = memory.details, memory.rollup
            assert details is not None
            samples.append(
                ProcessSample(
                    pid=process.pid,
                    ppid=stat.ppid,
                    role=process.role,
                    started_ns=process.started_ns,
                    cpu_ns=stat.cpu_ns,
                    rss_bytes=stat.rss_bytes,
                    pss_bytes=rollup.pss_bytes if rollup else None,
                    swap_bytes=details.swap_bytes,
                    shm_bytes=rollup.shm_bytes if rollup else None,
                    open_fds=details.open_fds,
                    max_fds=details.max_fds,
                    threads=stat.threads,
                    comm=stat.comm,
                    private_bytes=rollup.private_bytes if rollup else None,
                    shm_held_bytes=memory.shm_held,
                    swap_share_bytes=rollup.swap_bytes if rollup else None,
                    swap_read_bytes=rollup.swap_all_bytes if rollup else None,
                    grown_bytes=memory.grown(details),
                    pss_read_ns=memory.read_ns if rollup else None,
                    major_faults=stat.major_faults,
                )
            )
        self._memory = alive
        return tuple(samples)

    def _take_details(
        self,
        memories: Mapping[int, _Memory],
        stats: Mapping[int, Stat],
        read: Mapping[int, Details],
        now_ns: int,
        near: bool,
    ) -> None:
        """Of those that did something since they were read, or were read long ago; by pid. What is not in ``read`` is
        read for it."""
        wanted = {}
        for pid, memory in memories.items():
            stat, before = stats[pid], memory.details
            state = stat.cpu_ns, stat.rss_bytes, stat.threads
            if near or before is None or before.state != state or now_ns - before.read_ns >= IDLE_NS:
                wanted[pid] = state
        missing = [pid for pid in wanted if pid not in read]
        found = {**read, **self._proc.details_of(missing)} if missing else read
        for pid in wanted:
            status, *others = found[pid]
            swap, anonymous = (status.swap_bytes, status.anonymous_bytes) if status else (None, None)
            memories[pid].details = _Details(wanted[pid], now_ns, swap, anonymous, *others)

    def _measure(self, wanted: list[Watched], now_ns: int, near: bool) -> None:
        """Proportional memory of those that wait longest."""
        due = []
        forked: dict[str, int] = {}
        for process in wanted:
            if process.role == "worker":
                forked[process.run] = max(forked.get(process.run, 0), process.started_ns)
        for process in wanted:
            memory = self._memory.setdefault((process.pid, process.ticks), _Memory(now_ns))
            memory.forked(forked.get(process.run, 0))
            if young(process, now_ns):
                resident = memory.rss_then if memory.times else None
                if now_ns - process.started_ns >= BEGUN_NS and _moved(resident, memory.rss_bytes):
                    due.append((memory.read_ns, process.pid, memory))
                continue
            if not (near or memory.times < PSS_AT_FIRST or now_ns >= self._free_ns):
                continue
            if (due_ns := memory.due_ns(near, self._every)) <= now_ns:
                due.append((due_ns, process.pid, memory))
        for _, pid, memory in sorted(due, key=lambda item: item[:2])[: PSS_NEAR_AT_ONCE if near else self._at_once]:
            began = time.perf_counter_ns()
            rollup, held = self._proc.rollup_and_held(pid)
            took = time.perf_counter_ns() - began
            if memory.times >= PSS_AT_FIRST:
                share = PSS_SHARE if _moved(memory.rss_then, memory.rss_bytes) else PSS_STEADY_SHARE
                self._free_ns = max(self._free_ns, now_ns) + round(took / share)
            memory.add_rollup(rollup, now_ns, took, self._every)
            memory.anonymous_then = None
            memory.shm_held = held
