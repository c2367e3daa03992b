"""Observations of one step while it was late: who waited where. A step that has ended leaves only sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.model.cells import Leaf, ThreadState
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import StackSeen, ThreadSample
from trainprobe.model.moment import NS
from trainprobe.model.sample import HeldLock, Inspection, SentBytes, ThreadLook

STACKS = 16
FILES = 64
STILL = 2
"""Looks."""
FROZEN_WAITS = ("percpu_rwsem_wait", "__sb_start_write", "sb_start_write", "__percpu_down_read")
"""Kernel functions in which writers wait while a file system is frozen."""
_QUEUES = frozenset({Leaf.PIPE_READ, Leaf.POLL})
IDLE = (Leaf.PIPE_READ, Leaf.POLL, Leaf.LOCK)
"""Waits of an idle worker."""
FILE_LOCKS = frozenset({"flock", "fcntl"})
"""Calls that block at a lock on a file, where other locks are a futex."""


@dataclass(slots=True)
class Wait:
    """One uninterrupted wait of a thread, as long as it was watched. Times in ns."""

    pid: int
    leaf: Leaf
    call: str  # name of the system call, "" unknown
    path: str
    dev: int
    since_ns: int
    until_ns: int  # it was last seen there
    wchan: str = ""
    still_ns: int | None = None  # for how long its device had moved no byte

    @property
    def ns(self) -> int:
        return max(0, self.until_ns - self.since_ns)

    @property
    def locks_file(self) -> bool:
        return self.leaf == Leaf.LOCK and self.call in FILE_LOCKS


_SOONER_NS = NS // 4
"""Half of the pause between two looks: what is sent after the last one is not counted either."""


@dataclass(slots=True)
class Transfer:
    """What one thread sends, over one connection after the other."""

    peer: str = ""  # of the latest connection
    first: SentBytes | None = None  # of the first look
    last: SentBytes | None = None
    taken: int = 0  # bytes that the other ends acknowledged, those before the first look included

    def add_look(self, peer: str, sent: SentBytes | None) -> None:
        """Adds what a pass found; nothing where it found no socket."""
        if peer and sent is not None:
            last, before = self.last, sent.acknowledged
            if last is None:
                self.first, before = sent, 0
            elif peer == self.peer and sent.acknowledged >= last.acknowledged:
                before = last.acknowledged
            elif sent.busy_ns <= sent.at_ns - last.at_ns:  # another connection, made since
                before = 0
            self.taken += sent.acknowledged - before
            self.last = sent
        self.peer = peer or self.peer

    def bytes(self, since_ns: int) -> int:
        """What the other end took since then, but for what is too short to matter: of a connection that was busy for
        longer, what it took since the first look."""
        first = self.first
        earlier = first is not None and first.busy_ns > first.at_ns - since_ns + _SOONER_NS
        return self.taken - (first.acknowledged if first is not None and earlier else 0)


@dataclass(slots=True)
class SiblingThread:
    """A thread that the driver may have waited for, as it was seen meanwhile. Times in ns."""

    tid: int
    own_tid: int
    since_ns: int  # of the first pass
    first_cpu_ns: int
    looks: int = 0
    running: int = 0  # passes that found it on a CPU, or runnable
    reading: int = 0  # passes that found it blocked on a device
    until_ns: int = 0
    cpu_ns: int = 0
    path: str = ""  # of the file that it was blocked on
    sending: int = 0  # passes that found it at a socket, where it sent or had used a CPU since the pass before
    receiving: int = 0  # passes that found it at a socket, with nothing to send
    socket: Transfer = field(default_factory=Transfer)
    pid: int = 0  # 0: the driver's

    def add_look(self, look: ThreadLook, at_ns: int) -> None:
        self.looks += 1
        self.pid = look.pid
        self.running += look.state == "R"
        self.reading += look.state == "D"
        self.sending += bool(look.peer) and (look.sends or (self.looks > 1 and (look.cpu_ns or 0) > self.cpu_ns))
        self.receiving += bool(look.peer) and not look.sends
        self.socket.add_look(look.peer, look.sent)
        self.until_ns, self.cpu_ns = at_ns, look.cpu_ns or 0
        self.path = look.path or self.path

    def busy(self) -> float:
        """The part of the time between its passes that it was on a CPU; of a single pass whether it was."""
        spent = self.until_ns - self.since_ns
        return (self.cpu_ns - self.first_cpu_ns) / spent if spent > 0 else float(self.running)


@dataclass(slots=True)
class LockedTime:
    """A total, and until when time is counted in it."""

    ns: int = 0
    counted_ns: int = 0


@dataclass(slots=True)
class AskedFile:
    """How often and when the driver asked for it by its name (stat, access, open)."""

    first_ns: int
    last_ns: int = 0
    times: int = 0


@dataclass(slots=True)
class LateStepObservations:
    """The open step's observations; a new one begins with each step that had any."""

    hang: Wait | None = None  # in a file's call, on a device that does not answer
    worker: Wait | None = None  # the longest wait of a worker outside of its queue
    busy: int | None = None  # the worker that was on a CPU, or runnable, and had been busy longest
    inspection: Inspection | None = None
    locking: dict[int, Inspection] = field(
        default_factory=dict
    )  # by pid: the latest one that found it at a file's lock
    rival: HeldLock | None = None  # another process's lock on a file that the sleeping driver has open
    terminal: str = ""  # whose input an inspection found the driver waiting for
    stacks: list[StackSeen] = field(default_factory=list)  # of the driver
    worker_stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)  # workers that were asked for it since the driver's showed a queue
    locked: LockedTime = field(default_factory=LockedTime)  # a worker waited for a lock, and no worker did anything
    pauses: set[int] = field(default_factory=set)  # begins of sleeps in which passes found the driver
    beside: dict[int, SiblingThread] = field(default_factory=dict)  # by tid
    children: dict[int, SiblingThread] = field(default_factory=dict)  # threads of the processes it waited for, by tid
    socket: Transfer = field(default_factory=Transfer)  # of the driver
    looks: int = 0
    inspections: int = 0
    held_back: int = 0  # inspections that found the driver waiting for the write-back of dirty pages
    files: dict[str, AskedFile] = field(default_factory=dict)  # that the driver asked for, by their names
    queued: int = 0  # passes that found the driver runnable without a CPU

    @property
    def peer(self) -> str:
        """Of the socket at which the driver was seen; "": none was."""
        return self.socket.peer or (self.inspection.peer if self.inspection is not None else "")

    @property
    def stood_still(self) -> bool:
        """Whether most looks found no thread of the process on a CPU, or runnable: nobody computed."""
        return self.inspections >= STILL and 2 * max((one.running for one in self.beside.values()), default=0) < (
            self.inspections
        )

    def see_workers(self, samples: Sequence[ThreadSample], since_ns: int, now_ns: int) -> None:
        """The longest wait among the workers' present ones, of what they do since the step began."""
        running = [one for one in samples if one.run != ThreadState.BLOCKED]
        self.busy = min(running, key=lambda one: one.since_ns).pid if running else self.busy
        waits = [
            waiting(one, since_ns, now_ns)
            for one in samples
            if one.run == ThreadState.BLOCKED and one.leaf not in _QUEUES
        ]
        for here in waits:
            if self.worker is None or here.ns >= self.worker.ns:
                self.worker = here
        locks = [here.since_ns for here in waits if here.leaf == Leaf.LOCK]
        if locks and all(sample.run == ThreadState.BLOCKED and sample.leaf in IDLE for sample in samples):
            self.locked.ns += now_ns - max(min(locks), self.locked.counted_ns)
        self.locked.counted_ns = now_ns

    def add_file(self, path: str, at_ns: int) -> None:
        """The driver asked for it by its name."""
        if path in self.files or len(self.files) < FILES:
            asked = self.files.setdefault(path, AskedFile(at_ns))
            asked.times, asked.last_ns = asked.times + 1, at_ns

    def inspect(self, seen: Inspection, at_ns: int) -> None:
        if seen.state != "R" or self.inspection is None or not self.inspection.held_locks:
            self.inspection = seen  # between two attempts to lock a file it runs, and no locks are read
        self.rival = seen.rival or self.rival
        self.inspections += 1
        self.held_back += seen.wchan.startswith("balance_dirty_pages")
        self.terminal = seen.terminal or self.terminal
        if seen.locking:
            self.locking[seen.pid] = seen
        self.socket.add_look(seen.peer, seen.sent)
        for looks, threads in ((seen.threads, self.beside), (seen.children, self.children)):
            for look in looks:
                known = threads.setdefault(look.tid, SiblingThread(look.tid, look.own_tid, at_ns, look.cpu_ns or 0))
                known.add_look(look, at_ns)

    def inspect_worker(self, seen: Inspection) -> None:
        if seen.locking or seen.rival is not None:
            self.locking[seen.pid] = seen

    def stack_of_worker(self) -> tuple[str, ...]:
        """Of the worker that was blocked longest, else of the one that was busy; empty where none was taken."""
        blocked = self.stack_of(self.worker.pid) if self.worker is not None else ()
        return blocked or (self.stack_of(self.busy) if self.busy is not None else ())

    def stack_of(self, pid: int) -> tuple[str, ...]:
        """A worker's Python stack; empty where none was taken."""
        return self.worker_stacks.get(pid, ())


def waiting(sample: ThreadSample, from_ns: int, now_ns: int) -> Wait:
    """A blocked thread's present wait, counted from ``from_ns`` at the earliest."""
    since = max(sample.since_ns, from_ns)
    return Wait(sample.pid, sample.leaf, sample.call, sample.path, sample.dev, since, now_ns)
