"""Finding processes that map libtorch, and taking them under watch."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from itertools import islice

from trainprobe.bpf.attach.library_readers import PASSING
from trainprobe.bpf.probes import Probes
from trainprobe.collect.cgroup_path import parse_cgroups
from trainprobe.collect.command import ProgramKind, python_like, redact, understand
from trainprobe.collect.mapping import Mapping, find_library, runs_models, uses_cuda
from trainprobe.collect.pool import NOBODY
from trainprobe.collect.procfs import KERNEL_THREAD, Proc, Stat
from trainprobe.config.schema import Matches, TargetsConfig
from trainprobe.model.event import NO_FUNCTIONS, NOT_PUT, ProcessEvent, ProcessEventKind
from trainprobe.model.moment import NS
from trainprobe.runtime.discovery.markings import Markings
from trainprobe.runtime.discovery.polls import Poll, Polls
from trainprobe.runtime.discovery.process_table import Table, WatchedProcess
from trainprobe.runtime.discovery.user_shares import FAMILY
from trainprobe.runtime.discovery.watch_locks import WatchLocks

SCAN_NS = 60 * NS
ATTACHED_NS = 60 * NS  # what was watched only at this age counts as attached to
UNMARKED_NS = NS  # a run by a person's word that has no libtorch at this age may have the GPU for its clock
BUDGET_NS = 10_000_000  # for looking at maps in one step
TOGETHER = 16  # processes that are asked for in one request
COMMAND_LIMIT = 4096  # characters of a command line that the configuration's patterns see
Inode = tuple[tuple[int, int], int]


class Search:
    """Looks at maps when they are due, and fills the table with what is watched."""

    def __init__(
        self,
        kernel: Probes,
        proc: Proc,
        table: Table,
        config: TargetsConfig,
        claims: WatchLocks | None,
        tell: Callable[[WatchedProcess, ProcessEvent], None],
    ) -> None:
        self._tell = tell
        self._kernel = kernel
        self._proc = proc
        self._table = table
        self._config = config
        self._claims = claims
        self._markings = Markings()
        self._marked: tuple[int, set[Inode]] = (-1, set())  # libraries that have their marks, as of then
        self._polls = Polls()
        self._known: set[int] = set()  # pids of the last scan
        self._gpu_users: set[int] = set()  # those that were looked at
        self._scan_ns: int | None = None if config.auto or config.include else 1 << 63

    def due_ns(self, now: int) -> int | None:
        """When ``look`` has something to do."""
        due = [now if self._scan_ns is None else self._scan_ns, self._polls.due_ns()]
        due.append(self._markings.due_ns())
        return min((at for at in due if at is not None and at < 1 << 63), default=None)

    def hint(self, pid: int, at_ns: int, executed: bool, now: int) -> None:
        """A process that is not watched did an exec, or hit a mark."""
        if pid not in self._table and self._scan_ns != 1 << 63:
            self._polls.add(pid, at_ns if executed else 0, watched=False, now_ns=now, owner=self._proc.pool.owner(pid))

    def changed(self, process: WatchedProcess, at_ns: int) -> None:
        """A watched process has new maps (exec), or old ones without the library (fork)."""
        self._polls.add(process.pid, at_ns, watched=True, now_ns=at_ns, owner=process.owner)

    def forget(self, pid: int) -> None:
        self._polls.forget_process(pid)
        self._markings.end(pid)

    def search(self, now: int) -> tuple[list[WatchedProcess], list[WatchedProcess]]:
        """(those that the configuration includes, newly watched; those whose library was found now)."""
        if self._scan_ns is None or now >= self._scan_ns:
            self._scan(now)
        included: list[WatchedProcess] = []
        marked = self._mark_those_read(now)
        began = time.perf_counter_ns()
        while due := self._polls.several_due(now, TOGETHER):
            stats = self._proc.stats(poll.pid for poll in due)
            for poll in due:
                self._look_at_process(poll, stats.get(poll.pid), now, included, marked)
            if time.perf_counter_ns() - began > BUDGET_NS:
                break
        return included, marked

    def _look_at_process(
        self, poll: Poll, stat: Stat | None, now: int, included: list[WatchedProcess], marked: list[WatchedProcess]
    ) -> None:
        """At one process, if no look before made it needless."""
        if not self._polls.is_current(poll):
            return
        gone = stat is None or stat.dead or poll.ticks not in (None, stat.ticks)
        if stat is None or gone or self._found(poll, stat, now, included, marked):
            self._polls.forget_process(poll.pid)
            return
        poll.ticks = stat.ticks
        self._polls.again(poll)

    def gpu_users(self, pids: Collection[int], now: int) -> list[WatchedProcess]:
        """Pythons without libtorch among the processes that hold a GPU's memory, newly watched."""
        if not self._config.auto:
            return []
        new = set(pids) - self._gpu_users
        self._gpu_users = set(pids)
        watched = [self.watch(pid, now, attached=True) for pid in sorted(new) if self._trains_otherwise(pid)]
        return [process for process in watched if process is not None]

    def _trains_otherwise(self, pid: int) -> bool:
        stat = self._proc.stat(pid)
        if stat is None or stat.dead or pid in self._table or not python_like(stat.comm):
            return False
        return self._proc.library(pid) is None and not self._excluded(pid)

    def _scan(self, now: int) -> None:
        """Processes whose exec nobody told of: at the start all, later those that a fork or a lost event hid."""
        self._scan_ns = now + SCAN_NS
        pids = set(self._proc.pids())
        found = self._proc.stats(pid for pid in pids - self._known if pid not in self._polls)
        self._known = pids
        looked = [(pid, stat) for pid, stat in found.items() if not stat.flags & KERNEL_THREAD and not stat.dead]
        # Parents before children, so that a family is watched by its head.
        for pid, stat in sorted(looked, key=lambda item: (not python_like(item[1].comm), item[1].ticks)):
            if pid not in self._table and pid != os.getpid():
                begun = self._proc.started_ns(stat.ticks)
                self._polls.add(pid, begun, watched=False, now_ns=now, owner=self._proc.pool.owner(pid))

    def _found(
        self, poll: Poll, stat: Stat, now: int, included: list[WatchedProcess], marked: list[WatchedProcess]
    ) -> bool:
        """Look at one process; True: it needs no further look."""
        process, age = self._table.get(poll.pid), now - poll.born_ns
        if process is not None:
            maps = self._proc.maps(poll.pid) or b""
            library = find_library(maps)
            if library is None:
                run = process.run
                asked = run is not None and (run.fixed or process.driver) and age >= UNMARKED_NS
                if asked and (uses_cuda(maps) or runs_models(maps)):
                    self._kernel.clock_by_gpu(poll.pid)
                return False
            self.mark(process, library, now)
            if not self.is_marking(process.pid):
                marked.append(process)
            return True
        if poll.ticks is None and self._config.include and self._included(poll.pid):
            if (process := self.watch(poll.pid, now, attached=age > NS)) is not None:
                included.append(process)
            return True
        if not self._config.auto:
            return True
        if age < NS and not python_like(stat.comm):
            return False
        used = stat.cpu_ns, stat.rss_bytes
        if poll.used == used:  # it has loaded nothing since the look before
            return False
        mapped = self._proc.maps(poll.pid)
        if mapped is None or find_library(mapped) is None:
            poll.used = used if mapped else None
            return False
        if not self._excluded(poll.pid):
            self.watch(poll.pid, now, attached=age > ATTACHED_NS)
        return True

    def _included(self, pid: int) -> bool:
        return not self._excluded(pid) and _matches(self._config.include, *self._described(pid))

    def _excluded(self, pid: int) -> bool:
        return bool(self._config.exclude) and _matches(self._config.exclude, *self._described(pid))

    def _described(self, pid: int) -> tuple[tuple[str, ...], int | None, tuple[str, ...]]:
        status = self._proc.status(pid)
        paths = parse_cgroups(self._proc.cgroup(pid) or "")
        return self._proc.command(pid) or (), status.uid if status else None, tuple(paths.values())

    def watch(self, pid: int, now: int, *, attached: bool = False, always: bool = False) -> WatchedProcess | None:
        """Watch a process and its descendants, and take them into the table; None: it is gone, or there is no room.

        ``always``: take it in even when the kernel side refuses; its run exists, with what /proc tells.
        """
        uid = _uid(self._proc, pid)
        if not always and not self._table.shares.another_process(uid, now):
            return None
        if self._claims is not None and self._claims.covers(pid):
            return None
        room = self._table.shares.family(uid, now)
        try:
            self._kernel.watch(pid, room)
        except OSError:
            if not always:
                return None
        process = self._adopt(pid, now, attached)
        if process is not None:
            below = self._proc.descendants(pid)
            for _, child in islice(below, room):
                if child not in self._table:
                    self._table.shares.descendant(uid, now)
                    self._take_in(child, now, attached)
            if next(below, None) is not None:
                self._table.shares.too_many(uid, FAMILY, now)
        return process

    def _take_in(self, child: int, now: int, attached: bool) -> None:
        if self._table.shares.another_process(_uid(self._proc, child), now):
            self._tell_of(self._adopt(child, now, attached))
        else:
            self.leave(child)

    def leave(self, pid: int) -> None:
        """The kernel side watches a process that there is no room for, as a child of one that is watched."""
        try:
            self._kernel.unwatch(pid)
        except OSError:
            pass

    def _tell_of(self, child: WatchedProcess | None) -> None:
        """A descendant that was there before us: as the kernel would have told of it then."""
        if child is None:
            return
        told = ProcessEvent(ProcessEventKind.FORK, child.started_ns, child.pid, child.ppid, child.comm)
        self._tell(child, told)
        if not child.forked:
            command = redact(child.command)
            self._tell(child, dataclasses.replace(told, kind=ProcessEventKind.EXEC, command=command))

    def unwatch(self, process: WatchedProcess) -> None:
        self.leave(process.pid)
        self._table.pop(process.pid)
        self.forget(process.pid)

    def _adopt(self, pid: int, now: int, attached: bool) -> WatchedProcess | None:
        stat = self._proc.stat(pid)
        if stat is None:
            return None
        command = self._proc.command(pid) or ()
        parent = self._table.get(stat.ppid)
        understood = understand(command)
        forked = parent is not None and bool(command) and parent.command == command
        if parent is not None and forked and understood.kind is ProgramKind.FORKSERVER and not parent.forked:
            understood = dataclasses.replace(understood, kind=ProgramKind.SPAWNED)
        started, uid = self._proc.started_ns(stat.ticks), _uid(self._proc, pid)
        process = WatchedProcess(
            pid, stat.ppid, stat.ticks, started, stat.comm, command, understood, uid, forked, attached, now
        )
        process.run = parent.run if parent and parent.run and not parent.run.ended else None
        self._table.put(process)
        library = self._proc.library(pid)
        if library is not None:
            self.mark(process, library, now)
            self._polls.forget_process(pid)
        else:
            self._polls.add(pid, started, watched=True, now_ns=now, owner=process.owner)
        return process

    def is_marking(self, pid: int) -> bool:
        """Whether its library has neither got its marks yet nor a reason why not."""
        return pid in self._markings

    def _mark_those_read(self, now: int) -> list[WatchedProcess]:
        """Those whose library has its marks, or a reason, since the last call."""
        due = self._markings.take_due(now)
        for pid, marking in due:
            process = self._table.get(pid)
            if process is None or process.library != marking.library:
                self._markings.end(pid)
            elif library := marking.library if marking.reading else self._proc.library(pid):
                self.mark(process, library, now)
            else:
                marking.ask_later(now)
        found = [self._table.get(pid) for pid, _ in due if pid not in self._markings]
        return [process for process in found if process is not None]

    def mark(self, process: WatchedProcess, library: Mapping, now: int) -> None:
        """Put marks on a library; ``process.marks`` says why when it gives none."""
        marked = self._libraries_with_marks(now)
        process.library, process.marks = library, ""
        if (library.dev, library.ino) in marked:
            self._markings.end(process.pid)
            return
        marking = self._markings.begin(process.pid, process.owner, library)
        try:
            attached = self._kernel.attach_marks(process.pid, library.path, library.start, library.end)
        except OSError as error:
            process.marks = NOT_PUT(path=library.path, error=error.strerror or str(error))
            if isinstance(error, PASSING):
                marking.ask_later(now)
            else:
                self._markings.end(process.pid)
            return
        if attached is None:
            marking.ask_again(now)
        elif attached.refused:
            process.marks = attached.reason
            self._table.shares.refused(attached.reason, now)
            marking.ask_later(now)
        else:
            self._markings.end(process.pid)
            if any(attached.found.values()):
                marked.add((library.dev, library.ino))
            else:
                process.marks = attached.reason or NO_FUNCTIONS(path=library.path)

    def _libraries_with_marks(self, now: int) -> set[Inode]:
        """Those that some process has with its marks: looked for once in a step. Once nobody has one, the kernel side
        may take its marks away."""
        if self._marked[0] != now:
            ready = (one for one in self._table if one.library and not one.marks and one.pid not in self._markings)
            self._marked = now, {(one.library.dev, one.library.ino) for one in ready if one.library}
        return self._marked[1]


def _uid(proc: Proc, pid: int) -> int:
    status = proc.status(pid)
    return NOBODY if status is None or status.uid is None else status.uid


def _matches(rule: Matches, command: Sequence[str], uid: int | None, cgroups: Sequence[str]) -> bool:
    """Whether any entry of any key fits a process."""
    if uid is not None and uid in rule.uids:
        return True
    line = " ".join(command)[:COMMAND_LIMIT]
    if any(fnmatchcase(line, pattern) for pattern in rule.commands):
        return True
    return any(fnmatchcase(path, pattern) for pattern in rule.cgroups for path in cgroups)
