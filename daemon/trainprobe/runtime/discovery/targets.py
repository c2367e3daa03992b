"""Which processes are trainings: finds them, tells the kernel side to watch them, gives their launches a name.

A process that maps libtorch is watched; it becomes a run when a thread of it steps (so a server that only infers
never does). What a watched process did before is kept and delivered behind its run's start. What a person names
(``launched``, ``attach``, the configuration's ``include``) is a run from the beginning, and so is a Python that holds
a GPU's memory without libtorch: nothing will tell of its steps.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Sequence

from trainprobe.bpf.probes import Probes
from trainprobe.bpf.read.decode import Candidate
from trainprobe.collect.command import ProgramKind, python_like, redact, understand
from trainprobe.collect.mapping import find_library, uses_cuda
from trainprobe.collect.orphans import WORKER_COMM
from trainprobe.collect.procfs import KERNEL_THREAD, Proc, Stat, exists
from trainprobe.collect.source import Reason
from trainprobe.collect.watched import Watched
from trainprobe.config.schema import TargetsConfig
from trainprobe.model.cells import RowKind
from trainprobe.model.event import (
    CallFailed,
    Event,
    FileEvent,
    FileLooked,
    GpuXid,
    HostStoodStill,
    MarkRow,
    OomLogged,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RunEnded,
    RunStarted,
    StackSeen,
    StartSeen,
)
from trainprobe.model.moment import NS, Moment
from trainprobe.model.resume_state import ResumedJob, ResumedRun
from trainprobe.runtime.discovery.launch import Launches
from trainprobe.runtime.discovery.process_table import Table, WatchedProcess
from trainprobe.runtime.discovery.runs import Runs
from trainprobe.runtime.discovery.search import Search
from trainprobe.runtime.discovery.user_shares import UserShares
from trainprobe.runtime.discovery.watch_locks import WatchLocks
from trainprobe.text.saying import SaidError, saying

FORK = ProcessEventKind.FORK
STEPPING = (RowKind.DRIVER, RowKind.OPTIMIZER, RowKind.BACKWARD)
SWEEP_NS = 10 * NS
RARE_SWEEP_NS = 32 * NS  # so late it asks for a turn of its own; sooner where a process is missing
MISSING_NS = 2 * NS  # an end that the kernel told may lie in the ring for this long
IDLE_NS = 4 * 3600 * NS  # what has not stepped for so long is watched no more, until it hits a mark
EXEC_LOST_NS = NS // 2
ROLES_NS = 2 * NS
CROWD = 64  # where more processes than this are watched,
CROWD_NS = NS // 4  # who came and went is looked at together, so often at most
NAMED_NS = 10 * NS  # of age: until then a forked worker has its name; after it the sweep sees to that


class NoSuchTraining(SaidError):
    """A process cannot be attached to; the text says why."""


class Targets:
    """Folds kernel events into runs. ``step`` is cheap when nothing happens; ``due_ns`` says when it is due."""

    def __init__(
        self,
        probes: Probes,
        config: TargetsConfig,
        *,
        proc: Proc | None = None,
        claims: WatchLocks | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """``claims``: by others, whose processes are left alone."""
        self._kernel = probes
        self._proc = proc or Proc()
        self._clock = clock
        self._table = Table(UserShares(self._proc.owners.of))
        self._out: list[Event] = []
        self._search = Search(probes, self._proc, self._table, config, claims, self._deliver)
        self._launches = Launches(self._proc, os.getpid())
        self._runs = Runs(self._proc, self._table, self._launches, lambda event: self._out.append(event))
        self.attempted = self._runs.attempted
        self.abandoned, self.died = self._proc.pool.abandoned, self._proc.pool.died
        self.seconds = self._proc.pool.seconds
        self._awaited: dict[int, tuple[tuple[str, ...], int]] = {}  # launched; its exec is not seen yet
        self._sweep_ns = 0
        self._missing = False  # a process was, at the last sweep
        self._born: dict[int, Stat] = {}  # of this step's forks, in one request: a user can fork thousands in a second
        self._seen: list[Watched] = []
        self._seen_ns = self._named_ns = 0

    # What a person names

    def launched(self, pid: int, command: Sequence[str]) -> None:
        """A child that is about to exec ``command``: a run from its exec on."""
        now = self._clock()
        if (stat := self._proc.stat(pid)) is not None:
            self._launches.outside.add(stat.ppid)  # the half of us that starts it
        self._awaited[pid] = (tuple(command), now + EXEC_LOST_NS)
        self._search.watch(pid, now, always=True)

    def attach(self, pid: int) -> None:
        """Watch a process that runs already, and its descendants. Raises NoSuchTraining."""
        stat = self._proc.stat(pid)
        if stat is None or stat.dead:
            raise NoSuchTraining(saying("there is no process {pid}", pid=pid))
        who = {"pid": pid, "name": stat.comm}
        if stat.flags & KERNEL_THREAD:
            raise NoSuchTraining(saying("process {pid} ({name}) is a thread of the kernel", **who))
        if pid in self._table:
            raise NoSuchTraining(saying("process {pid} ({name}) is watched already", **who))
        if not any(self._trains(member) for _, member in ((0, pid), *self._proc.descendants(pid))):
            raise NoSuchTraining(
                saying("neither process {pid} ({name}) nor a child of it is a Python or maps libtorch or CUDA", **who)
            )
        process = self._search.watch(pid, self._clock(), attached=True)
        if process is None:
            raise NoSuchTraining(
                saying(
                    "process {pid} ({name}) cannot be watched: it has ended, or too many processes are watched", **who
                )
            )
        self._runs.begin_fixed(process, self._clock(), process.command)

    def remember(self, jobs: Sequence[ResumedJob]) -> None:
        """Jobs of which an earlier process of ours saw attempts."""
        self._out += jobs

    def go_on(self, runs: Sequence[ResumedRun]) -> None:
        """Watch again what an earlier process of ours watched, from now on and not from its next step."""
        for kept in runs:
            numbers = {told.pid: told.rank for told in kept.told}
            for rank in kept.ranks:
                process = self._table.get(rank.pid) or self._search.watch(rank.pid, self._clock(), attached=True)
                if process is not None:
                    self._runs.go_on(process, self._clock(), kept.run, numbers.get(rank.pid, 0))
            self._out.append(kept)  # who is not of the run is no rank of it, so nothing is told of it there

    def _trains(self, pid: int) -> bool:
        stat = self._proc.stat(pid)
        if stat is None or python_like(stat.comm):
            return stat is not None
        maps = self._proc.maps(pid) or b""
        return find_library(maps) is not None or uses_cuda(maps)

    # The fold

    def step(self, now: Moment, events: Sequence[Event | Candidate]) -> list[Event]:
        """What the core should be told: runs, ranks, and the events of their processes in time order."""
        at = now.monotonic_ns
        forks = (event.pid for event in events if isinstance(event, ProcessEvent) and event.kind is FORK)
        self._born = self._proc.stats(forks)
        for event in events:
            self._dispatch(event, at)
        for pid in [pid for pid, (_, limit) in self._awaited.items() if at >= limit]:
            self._executed(pid, at, ())
        included, marked = self._search.search(at)
        for process in included:
            self._runs.begin_fixed(process, at, process.command)
        for process in marked:
            self._runs.tell_marks(process, at)
        if at - self._sweep_ns >= SWEEP_NS:
            self._sweep(at)
        self._runs.end_those_over(at)
        out = self._out[:]
        self._out.clear()
        return out

    def gpu_users(self, now: Moment, pids: Collection[int]) -> None:
        """Who holds memory of a GPU by now: Pythons among them are trainings, whatever library they train with."""
        for process in self._search.gpu_users(pids, now.monotonic_ns):
            self._runs.begin_fixed(process, now.monotonic_ns, process.command)

    def processes(self) -> list[Watched]:
        now = self._clock()
        if now - self._named_ns >= ROLES_NS:
            self._named_ns = now
            self._name_threads(now)
        moved = self._table.moved and (len(self._table) <= CROWD or now - self._seen_ns >= CROWD_NS)
        if self._table.changed or moved:
            self._table.changed = self._table.moved = False
            self._seen_ns = now
            named = self._table.runs_with_named_workers()
            self._seen = [
                Watched(p.pid, p.ticks, p.started_ns, self._table.role(p, named), p.run.name)
                for p in self._table
                if p.run is not None and not p.run.ended
            ]
        return self._seen

    def refusal(self) -> Reason:
        """Why somebody is not watched, of late; "" where there is room for all."""
        return self._table.shares.refusal(self._clock())

    def hanging(self) -> Sequence[int]:
        """Processes whose reads in /proc do not come back: of them, and past some of his of a user, nothing is read."""
        self._proc.pool.look_after()
        return self._proc.hanging()

    def due_ns(self) -> int | None:
        """CLOCK_MONOTONIC when ``step`` has something to do; None: only when an event comes."""
        due = [limit for _, limit in self._awaited.values()]
        if (search := self._search.due_ns(self._clock())) is not None:
            due.append(search)
        if len(self._table):
            due.append(self._sweep_ns + (SWEEP_NS if self._missing else RARE_SWEEP_NS))
        return min(due, default=None)

    def _name_threads(self, now: int) -> None:
        """A worker gets its name some time after its fork."""
        young = [
            process
            for process in self._table
            if now - process.watched_ns < NAMED_NS
            and not (process.run is None or process.driver or process.comm == WORKER_COMM)
        ]
        stats = self._proc.stats(process.pid for process in young)
        for process in young:
            stat = stats.get(process.pid)
            if stat is not None and stat.ticks == process.ticks:
                self._name(process, stat.comm)

    def _name(self, process: WatchedProcess, comm: str) -> None:
        if process.comm != comm:
            process.comm, self._table.changed = comm, True

    # Events

    def _dispatch(self, event: Event | Candidate, now: int) -> None:
        if isinstance(event, ProcessEvent):
            self._process_event(event)
        elif isinstance(event, (MarkRow, FileEvent, StackSeen, StartSeen, CallFailed, FileLooked)):
            process = self._table.get(event.pid)
            if process is not None:
                if isinstance(event, MarkRow) and event.kind in STEPPING and not process.driver:
                    self._runs.drive(process, event.at_ns)
                self._deliver(process, event)
        elif isinstance(event, HostStoodStill):
            self._out.append(event)
        elif not isinstance(event, (RunStarted, RankSeen, ResumedRun, ResumedJob, RunEnded, OomLogged, GpuXid)):
            self._search.hint(event.pid, event.at_ns, event.why == "exec", now)

    def _process_event(self, event: ProcessEvent) -> None:
        if event.kind is FORK:
            self._forked(event)
        elif event.kind is ProcessEventKind.EXEC:
            self._executed(event.pid, event.at_ns, event.command)
        process = self._table.get(event.pid)
        if process is None:
            return
        ends = event.kind is ProcessEventKind.EXIT
        if ends:
            self._runs.before_exit(process, event.at_ns)
        self._deliver(process, dataclasses.replace(event, command=redact(event.command)) if event.command else event)
        if ends:
            self._table.pop(process.pid)
            self._search.forget(process.pid)
            self._awaited.pop(process.pid, None)
            self._runs.exited(process, event.at_ns)

    def _deliver(self, process: WatchedProcess, event: Event) -> None:
        if process.run is None:
            self._table.keep_event(process, event)
        else:
            self._out.append(event)

    def _forked(self, event: ProcessEvent) -> None:
        parent = self._table.get(event.ppid)
        if parent is None:
            return
        if not self._table.shares.another_process(parent.uid, event.at_ns):
            self._search.leave(event.pid)
            return
        stat = self._born.get(event.pid)
        understood = parent.understood
        if understood.kind is ProgramKind.FORKSERVER and not parent.forked:
            understood = dataclasses.replace(understood, kind=ProgramKind.SPAWNED)
        child = WatchedProcess(
            pid=event.pid,
            ppid=event.ppid,
            ticks=stat.ticks if stat else 0,
            started_ns=event.at_ns,
            comm=event.comm or parent.comm,
            command=parent.command,
            understood=understood,
            uid=parent.uid,
            forked=True,
            watched_ns=event.at_ns,
            library=None if self._search.is_marking(parent.pid) else parent.library,
            marks=parent.marks,
            run=parent.run if parent.run and not parent.run.ended else None,
        )
        self._table.put(child)
        if child.library is None:
            self._search.changed(child, event.at_ns)

    def _executed(self, pid: int, at_ns: int, command: tuple[str, ...]) -> None:
        awaited = self._awaited.pop(pid, None)
        process = self._table.get(pid)
        if process is None:
            return
        process.command = command or self._proc.command(pid) or (awaited[0] if awaited else process.command)
        process.understood = understand(process.command)
        process.forked = False
        process.library, process.marks = None, ""
        if process.run is not None and process.run.ended:
            process.run = None
        self._table.changed = True
        self._search.changed(process, at_ns)
        if awaited:
            process.started_ns = at_ns  # it waited for us until here: none of its time
            self._runs.begin_fixed(process, at_ns, awaited[0])

    def _sweep(self, now: int) -> None:
        """Ends that the kernel could not tell (a full ring), and processes that never step."""
        self._sweep_ns, self._missing = now, False
        self._table.changed = True
        self._runs.tell_no_library(now)
        stats = self._proc.stats(process.pid for process in self._table)
        for process in self._table:
            stat = stats.get(process.pid)
            if process.ticks == 0 and stat is not None:
                process.ticks = stat.ticks
            if stat is not None and not stat.dead and stat.ticks == process.ticks:
                process.missing_ns = 0
                self._name(process, stat.comm)
                if process.run is None and now - process.watched_ns >= IDLE_NS:
                    self._search.unwatch(process)
            elif stat is None and exists(self._proc.root, process.pid):
                continue  # it cannot be read now
            elif not process.missing_ns:
                process.missing_ns, self._missing = now, True
            elif now - process.missing_ns >= MISSING_NS:
                for left in self._kernel.ended(process.pid, now):
                    self._deliver(process, left)
                kind = ProcessEventKind.EXIT
                self._process_event(ProcessEvent(kind, now, process.pid, process.ppid, process.comm))
