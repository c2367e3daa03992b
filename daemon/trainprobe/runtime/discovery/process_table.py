"""The watched processes: who descends from whom, what each one is to its run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import field

from trainprobe.collect.command import ProgramKind, Understood
from trainprobe.collect.mapping import Mapping
from trainprobe.collect.orphans import WORKER_COMM
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import Event, MarkRow, ProcessEvent, ProcessEventKind
from trainprobe.model.message import Message
from trainprobe.runtime.discovery.event_room import EventRoom
from trainprobe.runtime.discovery.user_shares import ROOT, UserShares

EVENTS, EVENTS_OF_ONE = 18_000, 4_500
LIVES, LIVES_OF_ONE = 6_000, 1_500
"""Room for the events of processes that belong to no run yet, and of those of one user but root: 500 workers take 500
of the one for forks and execs, a rank's files 256 of the other. What a run's workers are is known by their forks, so no
file takes the place of one."""
_LIVES = frozenset((ProcessEventKind.FORK, ProcessEventKind.EXEC, ProcessEventKind.EXIT))
DEPTH = 32


@dataclass(slots=True)
class LaunchedRun:
    name: str  # its key: which launch of the run it is
    shared_name: str  # the run's, which all its launches on all hosts have
    head: int  # pid of its launcher
    restart: str
    uid: int = ROOT
    owner: int = ROOT  # who answers for that user
    fixed: bool = False  # begun by a person's word (run, attach, include): it exists before anything steps
    drivers: set[int] = field(default_factory=set)  # live
    stepped: bool = False
    last_exit_ns: int = 0
    ended: bool = False
    ranks: set[int] = field(default_factory=set)
    last_rank: int = -1


@dataclass(slots=True)
class WatchedProcess:
    pid: int
    ppid: int
    ticks: int
    started_ns: int
    comm: str
    command: tuple[str, ...]  # as it is, not redacted: never leaves
    understood: Understood
    uid: int = ROOT
    forked: bool = False  # no exec since its fork
    attached: bool = False  # it ran before we came
    watched_ns: int = 0
    library: Mapping | None = None
    marks: Message | str = ""  # why the library gives no marks
    driver: bool = False
    run: LaunchedRun | None = None
    refused_ns: int | None = None  # when there was no room for a run of it
    missing_ns: int = 0  # since when /proc does not know it, its end not told
    owner: int = ROOT  # who answers for its user


class Table:
    """Watched processes by pid. A pid that comes again replaces the old process."""

    def __init__(self, shares: UserShares | None = None) -> None:
        self._processes: dict[int, WatchedProcess] = {}
        self.shares = shares or UserShares()
        self._lives, self._events = EventRoom(LIVES, LIVES_OF_ONE), EventRoom(EVENTS, EVENTS_OF_ONE)
        self.moved = True  # somebody came or went
        self.changed = True  # somebody changed what it is

    def __len__(self) -> int:
        return len(self._processes)

    def __contains__(self, pid: int) -> bool:
        return pid in self._processes

    def __iter__(self) -> Iterator[WatchedProcess]:
        return iter(list(self._processes.values()))

    def get(self, pid: int) -> WatchedProcess | None:
        return self._processes.get(pid)

    def put(self, process: WatchedProcess) -> None:
        self.pop(process.pid)
        self._processes[process.pid] = process
        process.owner = self.shares.owner(process.uid)
        self.shares.process(process.owner, 1)

    def pop(self, pid: int) -> WatchedProcess | None:
        self.moved = True
        gone = self._processes.pop(pid, None)
        if gone is not None:
            self.take_events(gone)
            self.shares.process(gone.owner, -1)
        return gone

    def keep_event(self, process: WatchedProcess, event: Event) -> None:
        if process.refused_ns is not None and isinstance(event, MarkRow):
            return  # it steps: the next one that is not refused has all their sums
        lives = isinstance(event, ProcessEvent) and event.kind in _LIVES
        (self._lives if lives else self._events).keep_event(process.owner, process.pid, event)

    def take_events(self, process: WatchedProcess) -> list[Event]:
        """What was kept of a process, which is kept no longer."""
        return [event for room in (self._lives, self._events) for event in room.take_events(process.owner, process.pid)]

    def subtree(self, head: int) -> list[WatchedProcess]:
        return [process for process in self if self._below(process, head)]

    def runs_with_named_workers(self) -> frozenset[int]:
        """Of the runs whose PyTorch names its workers, what ``id`` gives."""
        return frozenset(id(process.run) for process in self._processes.values() if process.comm == WORKER_COMM)

    def role(self, process: WatchedProcess, named: Collection[int]) -> str:
        """driver: it steps. worker: loads data for a driver. helper: everything else. ``named``: of
        ``runs_with_named_workers``."""
        if process.driver:
            return "driver"
        if process.comm == WORKER_COMM:
            return "worker"
        master, direct = self._master(process)
        kind = process.understood.kind
        if master is None or kind in (ProgramKind.TRACKER, ProgramKind.FORKSERVER):
            return "helper"
        if kind is ProgramKind.SPAWNED and not (process.forked and direct):
            return "worker"
        # A plain fork: a worker, unless this torch names its workers and this one has no such name.
        return "worker" if process.forked and id(process.run) not in named else "helper"

    def _master(self, process: WatchedProcess) -> tuple[WatchedProcess | None, bool]:
        """(the driver that a process works for, whether it is the driver's own child and not a forkserver's)."""
        parent, direct = self.get(process.ppid), True
        if parent is not None and parent.understood.kind is ProgramKind.FORKSERVER and not parent.forked:
            parent, direct = self.get(parent.ppid), False
        return (parent if parent is not None and parent.driver else None), direct

    def _below(self, process: WatchedProcess, head: int) -> bool:
        at: WatchedProcess | None = process
        for _ in range(DEPTH):
            if at is None:
                return False
            if at.pid == head:
                return True
            at = self.get(at.ppid)
        return False
