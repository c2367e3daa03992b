"""Which processes are trainings: finds them, tells the kernel side to watch them, gives their launches a name.

A process that maps libtorch is watched; it becomes a run when a thread of it steps (so a server that only infers
never does). What a watched process did before is kept and delivered behind its run's start. What a person names
(``launched``, ``attach``, the configuration's ``include``) is a run from the beginning.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from trainprobe.collect.cgroup_path import parse_cgroups
from trainprobe.collect.command import Kind, python_like, redact, understand
from trainprobe.collect.mapping import Mapping
from trainprobe.collect.procfs import KERNEL_THREAD, Proc, Stat
from trainprobe.model.event import (
    Event,
    FileEvent,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RowKind,
    RunEnded,
    RunStarted,
    StackSeen,
)
from trainprobe.model.moment import NS, Moment
from trainprobe.runtime import identity
from trainprobe.runtime.target_launch import Launch, Launches
from trainprobe.runtime.target_polls import Poll, Polls
from trainprobe.runtime.target_rules import TargetRules, matches
from trainprobe.runtime.target_table import Process, Run, Table, Watched

STEPPING = (RowKind.DRIVER, RowKind.OPTIMIZER, RowKind.BACKWARD)
WATCHED_LIMIT = 4096
SWEEP_NS = 10 * NS
MISSING_NS = 2 * NS  # an end that the kernel told may lie in the ring for this long
IDLE_NS = 3600 * NS  # a process that has not stepped for so long is watched no more, until a mark is hit
LINGER_NS = 10 * NS  # a run without live drivers waits for further ranks at most so long
EXEC_LOST_NS = NS // 2
BUDGET_NS = 10_000_000  # for looking at maps in one step
NO_LIBRARY = "no libtorch mapped: marks need PyTorch"
NO_STEP = "libtorch is mapped, but no optimizer step and no backward was seen"


class Attached(Protocol):
    """Outcome of putting marks on a library: which were found; ``reason`` says what is missing."""

    @property
    def found(self) -> dict[str, bool]: ...
    @property
    def reason(self) -> str: ...


class Kernel(Protocol):
    """What is needed of ``trainprobe.bpf.probes.Probes``. Each may raise OSError when the process is gone."""

    def watch(self, pid: int, /) -> None: ...
    def unwatch(self, pid: int, /) -> None: ...
    def attach_marks(self, pid: int, path: str, start: int, end: int, /) -> Attached: ...


class Hint(Protocol):
    """A process that is not watched did something: ``why`` is "exec" or "mark"."""

    @property
    def at_ns(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def why(self) -> str: ...


class NoSuchTraining(Exception):  # noqa: N818 (reads as what it says)
    """A process cannot be attached to; the text says why."""


class Targets:
    """Folds kernel events into runs. ``step`` is cheap when nothing happens; ``due_ns`` says when it is due."""

    def __init__(
        self,
        probes: Kernel,
        *,
        auto: bool,
        rules: TargetRules | None = None,
        proc: Proc | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._probes = probes
        self._auto = auto
        self._rules = rules or TargetRules()
        self._proc = proc or Proc()
        self._clock = clock
        self._launches = Launches(self._proc, os.getpid())
        self._table = Table()
        self._polls = Polls()
        self._runs: dict[str, Run] = {}
        self._ended: dict[str, int] = {}  # launches that ended, by the name that they all began with
        self._libraries: dict[tuple[tuple[int, int], int], Attached] = {}
        self._awaited: dict[int, tuple[tuple[str, ...], int]] = {}  # launched, exec not seen yet
        self._out: list[Event] = []
        self._sweep_ns = 0
        self._scanned = not (auto or self._rules.includes)
        self._seen: list[Watched] | None = None
        self._seen_ns = 0

    # What a person names

    def launched(self, pid: int, command: Sequence[str]) -> None:
        """A child that is about to exec ``command``: a run from its exec on."""
        self._awaited[pid] = (tuple(command), self._clock() + EXEC_LOST_NS)
        self._watch(pid, self._clock())

    def attach(self, pid: int) -> None:
        """Watch a process that runs already, and its descendants. Raises NoSuchTraining."""
        stat = self._proc.stat(pid)
        if stat is None or stat.dead:
            raise NoSuchTraining(f"there is no process {pid}")
        if stat.flags & KERNEL_THREAD:
            raise NoSuchTraining(f"process {pid} ({stat.comm}) is a thread of the kernel")
        family = [pid, *self._proc.descendants(pid)]
        if not any(self._proc.library(member) or self._is_python(member) for member in family):
            raise NoSuchTraining(
                f"process {pid} ({stat.comm}) is no Python, maps no libtorch, and none of its children does"
            )
        process = self._watch(pid, self._clock(), attached=True)
        if process is None:
            raise NoSuchTraining(f"process {pid} ({stat.comm}) cannot be watched")
        self._begin_fixed(process, self._clock(), process.command)

    def _is_python(self, pid: int) -> bool:
        stat = self._proc.stat(pid)
        return stat is not None and python_like(stat.comm)

    # The fold

    def step(self, now: Moment, events: Sequence[Event | Hint]) -> list[Event]:
        """What the core should be told: runs, ranks, and the events of watched processes in time order."""
        at = now.monotonic_ns
        if not self._scanned:
            self._scan(at)
        for event in events:
            self._take(event, at)
        for pid in [pid for pid, (_, limit) in self._awaited.items() if at >= limit]:
            self._executed(pid, at, ())
        self._look(at)
        if at - self._sweep_ns >= SWEEP_NS:
            self._sweep(at)
        for run in [run for run in self._runs.values() if self._over(run, at)]:
            self._end(run, at)
        out, self._out = self._out, []
        return out

    def processes(self) -> list[Watched]:
        """Those of runs and those that may become one."""
        if self._seen is None or self._clock() - self._seen_ns > NS:
            self._seen, self._seen_ns = [], self._clock()
            for process in self._table:
                if not process.driver and (stat := self._proc.stat(process.pid)) and stat.ticks == process.ticks:
                    process.comm = stat.comm
            for p in self._table:
                name = p.run.name if p.run else ""
                self._seen.append(Watched(p.pid, p.ticks, p.started_ns, self._table.role(p), name))
        return self._seen

    def due_ns(self) -> int | None:
        """CLOCK_MONOTONIC when ``step`` has something to do; None: only when an event comes."""
        due = [limit for _, limit in self._awaited.values()]
        if (poll := self._polls.due_ns()) is not None:
            due.append(poll)
        if len(self._table):
            due.append(self._sweep_ns + SWEEP_NS)
        if not self._scanned:
            due.append(0)
        return min(due, default=None)

    # Events

    def _take(self, event: Event | Hint, now: int) -> None:
        if isinstance(event, ProcessEvent):
            self._process_event(event)
        elif isinstance(event, MarkRow):
            if (process := self._table.get(event.pid)) is not None:
                if event.kind in STEPPING and not process.driver:
                    self._drive(process, event.at_ns)
                self._deliver(process, event)
        elif isinstance(event, (FileEvent, StackSeen)):
            if (process := self._table.get(event.pid)) is not None:
                self._deliver(process, event)
        elif not isinstance(event, (RunStarted, RankSeen, RunEnded)):
            self._hint(event, now)

    def _process_event(self, event: ProcessEvent) -> None:
        if event.kind is ProcessEventKind.FORK:
            self._forked(event)
        elif event.kind is ProcessEventKind.EXEC:
            self._executed(event.pid, event.at_ns, event.command)
        process = self._table.get(event.pid)
        if process is None:
            return
        if event.kind is ProcessEventKind.EXIT:
            self._before_exit(process, event.at_ns)
        if event.command:
            event = dataclasses.replace(event, command=redact(event.command))
        self._deliver(process, event)
        if event.kind is ProcessEventKind.EXIT:
            self._exited(process, event.at_ns)

    def _deliver(self, process: Process, event: Event) -> None:
        if process.run is None:
            process.buffer.append(event)
        else:
            self._out.append(event)

    def _forked(self, event: ProcessEvent) -> None:
        parent = self._table.get(event.ppid)
        if parent is None or len(self._table) >= WATCHED_LIMIT:
            return
        stat = self._proc.stat(event.pid)
        understood = parent.understood
        if understood.kind is Kind.FORKSERVER and not parent.forked:
            understood = dataclasses.replace(understood, kind=Kind.SPAWNED)
        self._table.put(
            Process(
                pid=event.pid,
                ppid=event.ppid,
                ticks=stat.ticks if stat else 0,
                started_ns=self._proc.started_ns(stat.ticks) if stat else event.at_ns,
                comm=event.comm or parent.comm,
                command=parent.command,
                understood=understood,
                forked=True,
                watched_ns=event.at_ns,
                library=parent.library,
                marks=parent.marks,
                run=parent.run,
            )
        )
        self._seen = None

    def _executed(self, pid: int, at_ns: int, command: tuple[str, ...]) -> None:
        awaited = self._awaited.pop(pid, None)
        process = self._table.get(pid)
        if process is None:
            return
        process.command = command or self._proc.command(pid) or (awaited[0] if awaited else process.command)
        process.understood = understand(process.command)
        process.forked = False
        process.library, process.marks = None, ""
        self._seen = None
        self._polls.add(pid, at_ns, watched=True, now_ns=at_ns)
        if awaited and process.run is None:
            self._begin_fixed(process, at_ns, awaited[0])

    def _before_exit(self, process: Process, at_ns: int) -> None:
        """A run that never stepped says why, while it still has a process."""
        run = process.run
        if run and run.fixed and not run.stepped and process.pid == run.head:
            marks = process.marks or (NO_STEP if process.library or self._any_library(run) else NO_LIBRARY)
            self._rank_seen(process, run, at_ns, candidate=True, marks=marks)

    def _any_library(self, run: Run) -> bool:
        return any(process.library for process in self._table if process.run is run)

    def _exited(self, process: Process, at_ns: int) -> None:
        self._table.pop(process.pid)
        self._polls.drop(process.pid)
        self._awaited.pop(process.pid, None)
        self._seen = None
        if process.run is not None:
            process.run.drivers.discard(process.pid)
            if process.driver or (process.pid == process.run.head and not process.run.stepped):
                process.run.last_exit_ns = at_ns

    # Runs

    def _begin_fixed(self, process: Process, at_ns: int, command: Sequence[str]) -> None:
        """A run by a person's word: it exists before anything steps."""
        environ = self._proc.environ(process.pid)
        launch = self._launches.of(process.pid, environ, command)
        run = self._begin(process, launch, at_ns)
        run.fixed = True
        run.head = process.pid
        self._assign(run, process.pid)
        self._rank_seen(process, run, at_ns, candidate=True, marks="")
        self._flush(run)

    def _drive(self, process: Process, at_ns: int) -> None:
        """The first step of a process: it is a driver, of the run that is going on or of a new one."""
        environ = self._proc.environ(process.pid)
        restart = identity.restart(environ)
        run = process.run
        if run is None or not run.fixed or run.name not in self._runs or (run.stepped and run.restart != restart):
            launch = self._launches.of(process.pid, environ, process.command)
            run = self._runs.get(self._names(launch)[0]) or self._begin(process, launch, at_ns)
            if launch.pid in self._table and (self._table.get(launch.pid) or process).run is None:
                self._assign(run, launch.pid)
            self._assign(run, process.pid)
        run.restart = restart
        run.stepped = process.driver = True
        run.drivers.add(process.pid)
        self._seen = None
        self._rank_seen(process, run, at_ns, candidate=False, marks="", environ=environ)
        self._flush(run)

    def _names(self, launch: Launch) -> tuple[str, str]:
        """(the run's name, the name of the first launch with the same scheduler id)."""
        first = identity.name(launch.facts)
        return identity.name(launch.facts, self._ended.get(first, 0)), first

    def _begin(self, process: Process, launch: Launch, at_ns: int) -> Run:
        name, first = self._names(launch)
        began = (
            process.watched_ns if process.attached else self._proc.started_ns(launch.ticks) if launch.ticks else at_ns
        )
        run = self._runs[name] = Run(
            name, first, launch.pid, identity.restart(launch.facts.environ), launch.facts.script
        )
        self._out.append(
            RunStarted(
                run=name,
                at_ns=min(began, at_ns),
                launcher_pid=launch.pid,
                command=launch.command,
                user=launch.user,
                cwd=launch.cwd,
                labels=identity.labels(launch.facts),
                attached=process.attached,
            )
        )
        return run

    def _assign(self, run: Run, head: int) -> None:
        for process in self._table.subtree(head):
            process.run = run
        self._seen = None

    def _flush(self, run: Run) -> None:
        """What the run's processes did before it was one."""
        kept: list[Event] = []
        for process in self._table:
            if process.run is run and process.buffer:
                kept += process.buffer
                process.buffer.clear()
        self._out += sorted(kept, key=lambda event: event.at_ns)

    def _rank_seen(
        self,
        process: Process,
        run: Run,
        at_ns: int,
        *,
        candidate: bool,
        marks: str,
        environ: dict[str, str] | None = None,
    ) -> None:
        rank, world_size = identity.rank(environ if environ is not None else self._proc.environ(process.pid))
        if not candidate:
            rank = self._free_rank(process, run, rank)
        status = self._proc.status(process.pid)
        self._out.append(
            RankSeen(
                run=run.name,
                at_ns=at_ns,
                pid=process.pid,
                container_pid=status.container_pid if status else None,
                started_ns=process.started_ns,
                rank=rank,
                world_size=world_size,
                candidate=candidate,
                marks=marks,
            )
        )

    def _free_rank(self, process: Process, run: Run, rank: int | None) -> int:
        """The rank that the environment says; without one (or when it is taken) by the order of start."""
        if rank is None:
            siblings = [
                other.started_ns
                for other in self._table
                if other.ppid == process.ppid and other.understood == process.understood and other.library
            ]
            rank = sum(1 for started in siblings if started < process.started_ns)
        while rank in run.ranks:
            rank += 1
        run.ranks.add(rank)
        return rank

    def _over(self, run: Run, now: int) -> bool:
        if run.drivers:
            return False
        if not run.stepped:
            return run.head not in self._table and not any(p.run is run for p in self._table)
        if now - run.last_exit_ns >= LINGER_NS:
            return True
        # A further rank may be about to step: a process of the run with the library, started as a rank is.
        return not any(p.run is run and p.library and not p.forked for p in self._table)

    def _end(self, run: Run, now: int) -> None:
        self._out.append(RunEnded(run.name, run.last_exit_ns or now))
        del self._runs[run.name]
        # The same scheduler id may be used again (a loop in one batch script): then it is another launch.
        self._ended[run.first_name] = self._ended.get(run.first_name, 0) + 1

    # Finding

    def _scan(self, now: int) -> None:
        """Processes that run already, Python first; their maps are looked at step by step."""
        self._scanned = True
        found = [(pid, stat) for pid in self._proc.pids() if (stat := self._proc.stat(pid)) is not None]
        for pid, stat in sorted(found, key=lambda item: not python_like(item[1].comm)):
            if not stat.flags & KERNEL_THREAD and not stat.dead and pid != os.getpid():
                self._polls.add(pid, self._proc.started_ns(stat.ticks), watched=False, now_ns=now)

    def _hint(self, hint: Hint, now: int) -> None:
        if hint.pid in self._table or not (self._auto or self._rules.includes):
            return
        self._polls.add(hint.pid, hint.at_ns if hint.why == "exec" else 0, watched=False, now_ns=now)

    def _look(self, now: int) -> None:
        began = time.perf_counter_ns()
        while (poll := self._polls.due(now)) is not None:
            stat = self._proc.stat(poll.pid)
            gone = stat is None or stat.dead or poll.ticks not in (None, stat.ticks)
            if stat is None or gone or self._found(poll, stat, now):
                self._polls.drop(poll.pid)
            else:
                poll.ticks = stat.ticks
                self._polls.again(poll)
            if time.perf_counter_ns() - began > BUDGET_NS:
                return

    def _found(self, poll: Poll, stat: Stat, now: int) -> bool:
        """Look at one process; True: it needs no further look."""
        process = self._table.get(poll.pid)
        if process is not None:
            library = self._proc.library(poll.pid)
            if library is not None:
                self._mark(process, library)
            return library is not None
        if self._rules.includes and poll.turn == 0 and self._matches(poll.pid, include=True):
            if (process := self._watch(poll.pid, now, attached=poll.born_ns < now - NS)) is not None:
                self._begin_fixed(process, now, process.command)
            return True
        if not self._auto or (poll.turn == 0 and not python_like(stat.comm)):
            return not self._auto
        library = self._proc.library(poll.pid)
        if library is None:
            return False
        if self._rules.excludes and self._matches(poll.pid, include=False):
            return True
        process = self._watch(poll.pid, now, attached=poll.born_ns < now - 60 * NS)
        if process is not None and process.library is None:
            self._mark(process, library)
        return True

    def _matches(self, pid: int, *, include: bool) -> bool:
        status = self._proc.status(pid)
        uid = status.uid if status else None
        command = self._proc.command(pid) or ()
        cgroups = tuple(parse_cgroups(self._proc.cgroup(pid) or "").values())
        if matches(self._rules.exclude, command, uid, cgroups):
            return not include
        return include and matches(self._rules.include, command, uid, cgroups)

    def _watch(self, pid: int, now: int, *, attached: bool = False) -> Process | None:
        """Watch a process and take it and its descendants into the table; None: it is gone or there is no room."""
        if len(self._table) >= WATCHED_LIMIT:
            return None
        try:
            self._probes.watch(pid)
        except OSError:
            return None
        process = self._adopt(pid, now, attached)
        if process is not None:
            for child in self._proc.descendants(pid):
                if child not in self._table and len(self._table) < WATCHED_LIMIT:
                    self._adopt(child, now, attached)
        return process

    def _adopt(self, pid: int, now: int, attached: bool) -> Process | None:
        stat = self._proc.stat(pid)
        if stat is None:
            return None
        command = self._proc.command(pid) or ()
        parent = self._table.get(stat.ppid)
        understood = understand(command)
        forked = parent is not None and parent.command == command
        if forked and understood.kind is Kind.FORKSERVER and parent is not None and not parent.forked:
            understood = dataclasses.replace(understood, kind=Kind.SPAWNED)
        started = self._proc.started_ns(stat.ticks)
        process = Process(pid, stat.ppid, stat.ticks, started, stat.comm, command, understood, forked, attached, now)
        process.run = parent.run if parent else None
        self._table.put(process)
        self._seen = None
        library = self._proc.library(pid)
        if library is not None:
            self._mark(process, library)
        elif pid not in self._awaited:
            self._polls.add(pid, started, watched=True, now_ns=now)
        return process

    def _mark(self, process: Process, library: Mapping) -> None:
        """Put marks on a library, once for each inode, and tell when it gives none."""
        process.library = library
        attached = self._libraries.get((library.dev, library.ino))
        if attached is None:
            try:
                attached = self._probes.attach_marks(process.pid, library.path, library.start, library.end)
            except OSError as error:
                process.marks = f"marks cannot be put on {library.path}: {error.strerror or error}"
                return
            if any(attached.found.values()):
                self._libraries[library.dev, library.ino] = attached
        if not any(attached.found.values()):
            process.marks = attached.reason or f"{library.path} has none of the functions that marks need"
        if process.marks and process.run and process.pid == process.run.head:
            self._rank_seen(process, process.run, self._clock(), candidate=True, marks=process.marks)

    def _sweep(self, now: int) -> None:
        """Ends that the kernel could not tell (a full ring), and processes that never step."""
        self._sweep_ns = now
        for process in self._table:
            stat = self._proc.stat(process.pid)
            if process.ticks == 0 and stat is not None:
                process.ticks = stat.ticks
            if stat is not None and not stat.dead and stat.ticks == process.ticks:
                process.missing_ns = 0
            elif not process.missing_ns:
                process.missing_ns = now
            elif now - process.missing_ns >= MISSING_NS:
                kind = ProcessEventKind.EXIT
                self._process_event(ProcessEvent(kind, now, process.pid, process.ppid, process.comm))
        for process in self._table:
            if process.run is None and now - process.watched_ns >= IDLE_NS:
                self._forget(process)

    def _forget(self, process: Process) -> None:
        try:
            self._probes.unwatch(process.pid)
        except OSError:
            pass
        self._table.pop(process.pid)
        self._polls.drop(process.pid)
        self._seen = None
