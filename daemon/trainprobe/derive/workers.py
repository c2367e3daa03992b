"""The life and death of a rank's worker processes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field

from trainprobe.derive.python.compilers import PROGRAMS, folder_of
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import ProcessEvent, ProcessEventKind
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS

OOM_KILLED = template("worker_death.oom_killed", "worker {pid} was killed for want of memory")
KILLED = template("worker_death.killed", "worker {pid} was killed by signal {signal}{by}")
BY_SENDER = template("worker_death.by_sender", " by {name} ({pid})")
BY_ITSELF = template("worker_death.by_itself", " by itself")
EXITED = template("worker_death.exited", "worker {pid} exited with code {code}")
CRASHES = frozenset({4, 5, 6, 7, 8, 11, 31})  # ILL TRAP ABRT BUS FPE SEGV SYS
_PAUSES = frozenset({18, 19, 20})  # CONT STOP TSTP: they end no process
_ERRANDS = ("compiler", "helper")
_LOADER_ARGUMENTS = ("multiprocessing.spawn", "--multiprocessing-fork")
_SERVER_ARGUMENT = "multiprocessing.forkserver"
NOT_RUN = frozenset({127, 255})
"""What a child exits with whose exec(2) failed: by posix_spawn(3), and by CPython's subprocess …"""
NOT_RUN_NS = NS // 20
"""… at once. No worker is ready by then."""
SAME_NS = NS // 20
"""A process's start in /proc (clock ticks) and in the kernel's event differ by no more."""
TOGETHER_NS = NS
"""Between the starts of two workers of one loader, at most."""
AT_ONCE = 0.1
"""Of the longest life of those that were started with it: a worker that ended so soon had nothing to load."""
SENT = 5 * NS
"""A death this long after a signal was sent is that signal's."""


def role_of(comm: str, command: Sequence[str]) -> str:
    """The role of a training's child by the program that it runs after exec(2): worker | server | compiler | helper. A
    fork server makes no batches; its children do."""
    line = " ".join(command)
    if _SERVER_ARGUMENT in line:
        return "server"
    unread = not line and comm.startswith("python")  # it was gone before it could be read
    if unread or any(mark in line for mark in _LOADER_ARGUMENTS):
        return "worker"
    return "compiler" if comm in PROGRAMS else "helper"


@dataclass(slots=True)
class Life:
    """One process that the driver started, from its start to its exit: a worker, or another role."""

    pid: int
    ppid: int
    start_ns: int
    role: str = "worker"  # until an exec says otherwise; else as ``role_of``
    executed: bool = False  # it has called exec(2)
    comm: str = ""
    output: str = ""  # as of a child command
    peak_before: int = 0  # the pool's, before this one was counted


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """A command that the training ran: a child process that is no worker. Times in ns."""

    pid: int
    name: str  # as the kernel calls it
    start_ns: int
    end_ns: int
    output: str = ""  # of a compiler: the directory of its source, "" not known
    ppid: int = 0


def in_rows(commands: Iterable[ChildCommand], start_ns: int, end_ns: int, apart_ns: int = 0) -> list[tuple[int, int]]:
    """The parts of an interval in which commands ran, no more than ``apart_ns`` between them, in order and apart."""
    parts: list[tuple[int, int]] = []
    for one in sorted(commands, key=lambda one: one.start_ns):
        begin, end = max(one.start_ns, start_ns), min(one.end_ns, end_ns)
        if parts and begin - parts[-1][1] <= apart_ns:
            parts[-1] = (parts[-1][0], max(parts[-1][1], end))
        else:
            parts.append((begin, end))
    return parts


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended. ``reason``: finished, oom_kill, killed, crashed, exited."""

    pid: int
    at_ns: int
    code: int | None
    signal: int | None
    reason: str
    sender_pid: int | None = None
    sender_comm: str = ""
    lived_ns: int = 0
    by_training: bool = False  # the sender is the training itself

    def message(self) -> Message:
        if self.reason == "oom_kill":
            return OOM_KILLED(pid=self.pid)
        if self.signal is not None:
            by = BY_SENDER(name=self.sender_comm or "pid", pid=self.sender_pid) if self.sender_pid else None
            by = BY_ITSELF() if self.sender_pid == self.pid else by
            return KILLED(pid=self.pid, signal=self.signal, by=by)
        return EXITED(pid=self.pid, code=self.code)

    @property
    def sender(self) -> tuple[int, str] | None:
        """Pid and name of the process that sent the signal; None where none did or it is not known."""
        return (self.sender_pid, self.sender_comm) if self.sender_pid else None

    @property
    def abnormal(self) -> bool:
        """Whether a healthy run would not have it."""
        return self.reason != "finished"


@dataclass(slots=True)
class WorkerPool:
    """All children of one driver process, grandchildren by a forkserver included."""

    driver: int
    live: dict[int, Life] = field(default_factory=dict)
    started: int = 0
    ended: int = 0
    peak: int = 0  # live at once
    starts: list[int] = field(default_factory=list)  # ns, the last 256
    ends: list[int] = field(default_factory=list)
    child_commands: dict[str, deque[ChildCommand]] = field(
        default_factory=lambda: {role: deque(maxlen=256) for role in _ERRANDS}
    )
    """Those that ended, by role."""
    deaths: list[Death] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)  # the pids of these
    exits_by_reason: dict[str, int] = field(default_factory=dict)
    driver_ended: bool = False
    spawned: int = 0  # of those started: each imports everything again
    _signals: dict[int, ProcessEvent] = field(default_factory=dict)
    _oom: dict[int, int] = field(default_factory=dict)
    _given_up: set[int] = field(default_factory=set)  # ended by the driver after its step was late: a consequence

    def owns(self, pid: int) -> bool:
        """Whether ``pid`` is the driver or a live child of it."""
        return pid == self.driver or pid in self.live

    @property
    def count(self) -> int:
        return sum(1 for life in self.live.values() if life.role == "worker")

    def add_event(self, event: ProcessEvent, *, driver_failed: bool = False) -> Death | None:
        """Adds a process event and returns a worker's death. ``driver_failed``: the driver may end its workers now."""
        kind = event.kind
        if kind == ProcessEventKind.FORK:
            if self.owns(event.ppid) and not self._has(event):
                role = self.forked_role(event.ppid)
                self.live[event.pid] = Life(
                    event.pid, event.ppid, event.at_ns, comm=event.comm, role=role, peak_before=self.peak
                )
                if role == "worker":
                    self._started(event.at_ns)
                    parent = self.live.get(event.ppid)
                    self.spawned += parent is not None and parent.role == "server"
        elif kind == ProcessEventKind.EXEC:
            self._execed(event)
        elif kind == ProcessEventKind.SIGNAL:
            if event.pid in self.live and event.signal not in _PAUSES:
                self._signals[event.pid] = event
                if driver_failed and event.sender_pid == self.driver:
                    self._given_up.add(event.pid)
        elif kind == ProcessEventKind.OOM:
            self._oom[event.pid] = event.at_ns
        elif kind == ProcessEventKind.EXIT:
            return self._ended(event)
        return None

    def forget(self, pid: int) -> None:
        """It has ended, or is no child of this driver."""
        self._signals.pop(pid, None)
        self._oom.pop(pid, None)
        self._given_up.discard(pid)

    def _has(self, fork: ProcessEvent) -> bool:
        """Whether that child is known from /proc: it existed when the watching began."""
        life = self.live.get(fork.pid)
        return life is not None and abs(fork.at_ns - life.start_ns) < SAME_NS

    def forked_role(self, ppid: int) -> str:
        """The role of a child without exec(2): its parent's, where that runs another program."""
        parent = self.live.get(ppid)
        return parent.role if parent is not None and parent.role in _ERRANDS else "worker"

    def _started(self, at_ns: int) -> None:
        self.started += 1
        self.peak = max(self.peak, self.count)
        self.starts.append(at_ns)
        del self.starts[:-256]

    def _execed(self, event: ProcessEvent) -> None:
        life = self.live.get(event.pid)
        if life is None:
            return
        life.comm, life.executed = event.comm, True
        role = role_of(event.comm, event.command)
        counted, life.role = life.role == "worker", role
        if counted and role != "worker":
            self._uncount(life)
        elif counted:
            self.spawned += 1
        life.output = folder_of(event.command) if role == "compiler" else ""

    def _uncount(self, child_command: Life) -> None:
        """What was forked to run another program was never a worker, and no part of the peak."""
        self.started -= 1
        if child_command.start_ns in self.starts:
            self.starts.remove(child_command.start_ns)
        self.peak = max(child_command.peak_before, self.count)
        for life in self.live.values():
            if life.peak_before > child_command.peak_before:
                life.peak_before -= 1

    def _ended(self, event: ProcessEvent) -> Death | None:
        if event.pid == self.driver:
            self.driver_ended = True
            return None
        life = self.live.pop(event.pid, None)
        if life is None:
            return None
        if life.role in _ERRANDS:
            self.child_commands[life.role].append(
                ChildCommand(life.pid, life.comm, life.start_ns, event.at_ns, life.output, life.ppid)
            )
        if life.role != "worker":
            return None
        if not life.executed and event.code in NOT_RUN and event.at_ns - life.start_ns < NOT_RUN_NS:
            self._uncount(life)  # the program that it should have run is not there
            return None
        sent = self._signals.pop(event.pid, None)
        death = self._judge(event, life, sent)
        self.ended += 1
        self.ends.append(event.at_ns)
        del self.ends[:-256]
        self.exits_by_reason[death.reason] = self.exits_by_reason.get(death.reason, 0) + 1
        self.deaths.append(death)
        del self.deaths[:-200]
        self.dead = {one.pid for one in self.deaths}
        return death

    def _judge(self, event: ProcessEvent, life: Life, sent: ProcessEvent | None) -> Death:
        code, signal = event.code, event.signal or None
        if sent is not None and (sent.signal != signal or event.at_ns - sent.at_ns > SENT):
            sent = None
        own = sent is not None and sent.sender_pid in {self.driver, event.pid, life.ppid}
        if signal is None:
            reason = "finished" if not code else "exited"
        elif event.pid in self._oom:
            reason = "oom_kill"
        elif signal == 15 and (own or sent is None or self.driver_ended):
            reason = "finished"  # the loader terminates its workers with SIGTERM when it shuts down
        elif own and event.pid in self._given_up:
            reason = "finished"
        elif signal in CRASHES and not (sent is not None and sent.by_user and not own):
            reason = "crashed"
        else:
            reason = "killed"
        self._oom.pop(event.pid, None)
        self._given_up.discard(event.pid)
        sender = sent if sent is not None and sent.by_user and (not own or reason == "killed") else None
        return Death(
            event.pid,
            event.at_ns,
            code if signal is None else None,
            signal,
            reason,
            sender.sender_pid if sender else None,
            sender.sender_comm if sender else "",
            event.at_ns - life.start_ns,
            by_training=own and sender is not None,
        )

    def starts_in(self, start_ns: int, end_ns: int) -> int:
        return sum(1 for at in self.starts if start_ns <= at < end_ns)

    def gone_since(self, since_ns: int) -> bool:
        """Whether all workers of a loader went since then: with the training, or between two epochs."""
        return self.count == 0 and any(at >= since_ns for at in self.ends)

    def renewed_ns(self, start_ns: int, end_ns: int) -> int:
        """How long before the end of an interval the workers were started that live then in place of those that lived
        at its begin and ended in it; 0 where there are none. An evaluation between the two has workers of its own."""
        dead = [(one.at_ns - one.lived_ns, one.at_ns) for one in self.deaths]
        ended = sum(1 for begun, at in dead if begun < start_ns <= at < end_ns)
        renewed = self.begun_in(start_ns, end_ns)[-ended:] if ended else []
        return end_ns - renewed[0] if renewed else 0

    def since_start_ns(self, start_ns: int, end_ns: int) -> int:
        """How long before the end of an interval the first of the workers was started that were started in it: of those
        that live then, or else of all; a fork more is counted in, because the first one's begin is not seen."""
        begun, fork = self._begun(start_ns, end_ns)
        return min(end_ns - begun[0] + fork, end_ns - start_ns) if begun else 0

    def starting_ns(self, start_ns: int, end_ns: int) -> int:
        """How long starting the same workers took their parent, one after the other; 0 of a single one."""
        begun, fork = self._begun(start_ns, end_ns)
        return begun[-1] - begun[0] + fork if begun else 0

    def _begun(self, start_ns: int, end_ns: int) -> tuple[list[int], int]:
        """When the workers were started in an interval that live at its end, or else all; what each start took."""
        begun = self.begun_in(start_ns, end_ns) or sorted(at for at in self.starts if start_ns <= at < end_ns)
        return begun, (begun[-1] - begun[0]) // (len(begun) - 1) if begun[1:] else 0

    def begun_in(self, start_ns: int, end_ns: int) -> list[int]:
        """When the workers were started, in an interval, that live at its end."""
        living = [one.start_ns for one in self.live.values() if one.role == "worker"]
        living += [one.at_ns - one.lived_ns for one in self.deaths if one.at_ns >= end_ns]
        return sorted(begun for begun in living if start_ns <= begun < end_ns)

    def without_data(self, used: int, now_ns: int, unused: Collection[int] = ()) -> int:
        """Of workers that were started together, ``used`` of which load what is trained on, those that got nothing to
        load: they ended at once, or live on ``unused``."""
        lives = [(one.start_ns, now_ns, one.pid) for one in self.live.values() if one.role == "worker"]
        lives += [(one.at_ns - one.lived_ns, one.at_ns, one.pid) for one in self.deaths if one.code == 0]
        together: list[tuple[int, int, int]] = []
        for life in sorted(lives, reverse=True):
            if together and together[-1][0] - life[0] > TOGETHER_NS:
                if idle := _idle(together, used, unused):
                    return idle
                together.clear()
            together.append(life)
        return _idle(together, used, unused)

    def child_command_in(self, start_ns: int, end_ns: int) -> ChildCommand | None:
        """The command that ran longest in an interval, of those started in it where one ran for half of it; None where
        none did."""
        spans = [(min(end_ns, one.end_ns) - max(start_ns, one.start_ns), one) for one in self._ran("helper", end_ns)]
        fresh = [span for span in spans if span[1].start_ns >= start_ns and 2 * span[0] >= end_ns - start_ns]
        longest, child_command = max(fresh or spans, key=lambda span: span[0], default=(0, None))
        return child_command if longest > 0 else None

    def _ran(self, role: str, until_ns: int) -> list[ChildCommand]:
        """Those of a role, with those still running then."""
        live = (one for one in self.live.values() if one.role == role)
        running = [ChildCommand(one.pid, one.comm, one.start_ns, until_ns, one.output, one.ppid) for one in live]
        return [*self.child_commands[role], *running]

    def command_of_workers(self) -> str:
        """The command that workers ran most, of the latest ones; "" where they ran none."""
        names = Counter(one.name for one in self._ran("helper", 0) if one.ppid not in (0, self.driver))
        return max(names, key=lambda name: names[name], default="")

    def compiles(self, pid: int) -> bool:
        """Whether a live child is a compiler."""
        life = self.live.get(pid)
        return life is not None and life.role == "compiler"

    def compilers_in(self, start_ns: int, end_ns: int) -> list[ChildCommand]:
        """The compilers that ran in an interval, or in a part of it."""
        return [one for one in self._ran("compiler", end_ns) if one.start_ns < end_ns and one.end_ns > start_ns]

    def compiling(self, start_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """The parts of an interval in which a compiler ran, in order and apart."""
        return in_rows(self.compilers_in(start_ns, end_ns), start_ns, end_ns)


def _idle(together: Sequence[tuple[int, int, int]], used: int, unused: Collection[int]) -> int:
    """Of workers started together, the last one first, as (start, end, pid): see ``WorkerPool.without_data``. Those of
    an evaluation end before the training's are started."""
    lives = {pid: end - start for start, end, pid in together if end > together[0][0]}
    kept = lives.keys() & unused
    idle = {pid for pid, life in lives.items() if life <= AT_ONCE * max(lives.values())}
    idle |= kept if _of_one_loader(lives, min(used, len(kept))) else set()
    return len(idle) if len(lives) - len(idle) == used else 0


def _of_one_loader(pids: Collection[int], threads: int) -> bool:
    """Whether no loader has started so many threads between them: before another one's workers start, each queue of the
    first one's has got a thread, whose id comes between."""
    return max(pids, default=0) - min(pids, default=0) + 1 - len(pids) < threads
