"""Runs as they begin, gain ranks and end; the ranks' numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trainprobe.collect.procfs import Proc
from trainprobe.model.event import NO_LIBRARY, NO_STEP, Event, RankSeen, RunEnded, RunStarted
from trainprobe.model.launch import launch_key
from trainprobe.model.message import Message
from trainprobe.model.moment import NS
from trainprobe.runtime.discovery import identity
from trainprobe.runtime.discovery.launch import Launch, Launches
from trainprobe.runtime.discovery.process_table import LaunchedRun, Table, WatchedProcess

LINGER_NS = 10 * NS  # a run without live drivers waits for further ranks at most so long
NO_LIBRARY_NS = 9 * NS  # told with the first sweep; a libtorch that is mapped later takes it back
ASK_AGAIN_NS = 10 * NS
RANKS = 1024  # of a run whose numbers are kept, the first ones; later ones have the next numbers, whatever they claim
ATTEMPTS = 4096  # names of runs and jobs whose latest attempt is known: anybody can start runs for ever

Tell = Callable[[Event], None]


class Runs:
    """The launches that go on. What happens to them is told to ``tell``."""

    def __init__(self, proc: Proc, table: Table, launches: Launches, tell: Tell) -> None:
        self._proc = proc
        self._table = table
        self._launches = launches
        self._tell = tell
        self._runs: dict[str, LaunchedRun] = {}
        # By owner, of a run's or a job's name: its latest attempt, here or before we began.
        self._attempts: dict[int, dict[str, int]] = {}

    def begin_fixed(self, process: WatchedProcess, at_ns: int, command: Sequence[str]) -> None:
        """A run by a person's word: it exists before anything steps, with the process as its first candidate."""
        launch = self._launches.of(process, self._proc.environ(process.pid), command)
        if not self._table.shares.another_run(launch.facts.uid, at_ns):
            return
        run = self._begin(process, launch, at_ns)
        run.fixed, run.head = True, process.pid
        self._assign(run, process.pid)
        self._candidate(process, run, at_ns, process.marks)
        self._flush(run)

    def attempted(self, attempts: Mapping[int, Mapping[str, int]]) -> None:
        """By user, the latest attempt of each run and job that began before we did, the latest first: no launch is that
        attempt again."""
        for uid, names in attempts.items():
            for name, attempt in [*names.items()][::-1]:
                self._note_attempt(self._table.shares.owner(uid), attempt, name)

    def go_on(self, process: WatchedProcess, at_ns: int, name: str, rank: int) -> bool:
        """A driver that an earlier process of ours watched, as a rank of run ``name``; whether it is one."""
        facts = self._launches.of(process, self._proc.environ(process.pid), process.command).facts
        shared, job = identity.name(facts), identity.job(facts)
        latest = max(1, self._latest(shared, job))
        if launch_key(shared, latest) != name:
            return False
        if name not in self._runs:
            self._note_attempt(self._table.shares.owner(facts.uid), latest - 1, shared, job)
        self.drive(process, at_ns, rank)
        return process.run is not None and process.run.name == name

    def drive(self, process: WatchedProcess, at_ns: int, known_rank: int | None = None) -> None:
        """The first step of a process: it is a driver, of a run that goes on or of a new one."""
        if process.refused_ns is not None and at_ns - process.refused_ns < ASK_AGAIN_NS:
            return
        if known_rank is None and not self._table.shares.another_driver(process.uid, at_ns):
            process.refused_ns = at_ns
            return
        environ = self._proc.environ(process.pid)
        restart = identity.restart(environ)
        run = process.run
        if run is None or not run.fixed or run.ended or (run.stepped and run.restart != restart):
            run = self._run_of(process, self._launches.of(process, environ, process.command), at_ns)
        if run is None:
            process.refused_ns = at_ns
            return
        run.restart = restart
        run.stepped = process.driver = self._table.changed = True
        run.drivers.add(process.pid)
        rank, world_size = identity.rank(environ)
        rank = self._free_rank(process, run, known_rank if rank is None else rank)
        self._rank_seen(process, run, at_ns, (rank, world_size))
        self._flush(run)

    def tell_marks(self, process: WatchedProcess, at_ns: int) -> None:
        """Say why the first process of a run by a person's word gives no marks."""
        run = process.run
        if process.marks and run and run.fixed and not run.stepped and process.pid == run.head:
            self._candidate(process, run, at_ns, process.marks)

    def tell_no_library(self, at_ns: int) -> None:
        """Runs by a person's word that have no libtorch for so long will have none: they say so while they go on."""
        for run in self._runs.values():
            head = self._table.get(run.head) if run.fixed and not run.stepped and not run.ended else None
            if head is None or head.marks or at_ns - head.started_ns < NO_LIBRARY_NS:
                continue
            if not any(other.library for other in self._table if other.run is run):
                head.marks = NO_LIBRARY
                self._candidate(head, run, at_ns, NO_LIBRARY)

    def before_exit(self, process: WatchedProcess, at_ns: int) -> None:
        """A run that never stepped says why, while it still has a process."""
        run = process.run
        if run and run.fixed and not run.stepped and process.pid == run.head:
            mapped = any(other.library for other in self._table if other.run is run)
            self._candidate(process, run, at_ns, process.marks or (NO_STEP if mapped else NO_LIBRARY))

    def exited(self, process: WatchedProcess, at_ns: int) -> None:
        run = process.run
        if run is not None:
            run.drivers.discard(process.pid)
            if process.driver or (process.pid == run.head and not run.stepped):
                run.last_exit_ns = at_ns

    def end_those_over(self, now: int) -> None:
        idle = [run for run in self._runs.values() if not run.drivers]
        processes = list(self._table) if idle else []
        alive = {id(process.run) for process in processes}
        # Another rank may be about to step: a process with the library that was started as one.
        starting = {id(process.run) for process in processes if process.library and not process.forked}
        for run in idle:
            goes_on = id(run) in (starting if run.stepped else alive)
            if not goes_on or (run.stepped and now - run.last_exit_ns >= LINGER_NS):
                self._tell(RunEnded(run.name, run.last_exit_ns or now))
                run.ended = True
                del self._runs[run.name]
                self._table.shares.run(run.owner, -1)
                self._table.changed = True

    def _run_of(self, process: WatchedProcess, launch: Launch, at_ns: int) -> LaunchedRun | None:
        """The run of a launch: the one that goes on, else a new one; None where there is no room for one."""
        uid, shared = launch.facts.uid, identity.name(launch.facts)
        # Another user can search for the same digest, which has 32 bits only.
        mine = [run for run in self._runs.values() if run.shared_name == shared and run.uid == uid]
        # A launcher that names the others' meeting only after its own start still is the launcher of all.
        again = identity.restart(launch.facts.environ)
        mine += [run for run in self._runs.values() if (run.head, run.restart, run.uid) == (launch.pid, again, uid)]
        run = mine[0] if mine else None
        if run is None:
            if not self._table.shares.another_run(uid, at_ns):
                return None
            started = self._proc.started_ns(launch.ticks) if launch.ticks else at_ns
            run = self._begin(process, launch, min(process.watched_ns if process.attached else started, at_ns))
        launcher = self._table.get(launch.pid)
        if launcher is not None and (launcher.run is None or launcher.run.ended):
            self._assign(run, launch.pid)
        self._assign(run, process.pid)
        return run

    def _attempt(self, launch: Launch, shared: str, job: str) -> int:
        """One that neither the run nor its job has had: an id may be used again (a loop in one batch script)."""
        attempt = max(self._latest(shared, job), identity.restarts(launch.facts.environ)) + 1
        while launch_key(shared, attempt) in self._runs:  # one that goes on, whose name was forgotten
            attempt += 1
        self._note_attempt(self._table.shares.owner(launch.facts.uid), attempt, shared, job)
        return attempt

    def _latest(self, *names: str) -> int:
        """Of all users: two may have one name, whose digest has 32 bits only. 0: none is known."""
        return max(known.get(name, 0) for known in [*self._attempts.values(), {}] for name in names)

    def _note_attempt(self, owner: int, attempt: int, *names: str) -> None:
        """Of too many names the oldest of whoever has most are forgotten."""
        for name in names:
            for known in self._attempts.values():
                known.pop(name, None)
            self._attempts.setdefault(owner, {})[name] = attempt
        while sum(map(len, self._attempts.values())) > ATTEMPTS:
            most = max(self._attempts.values(), key=len)
            del most[next(iter(most))]
        self._attempts = {owner: known for owner, known in self._attempts.items() if known}

    def _begin(self, process: WatchedProcess, launch: Launch, began_ns: int) -> LaunchedRun:
        shared, job = identity.name(launch.facts), identity.job(launch.facts)
        attempt = self._attempt(launch, shared, job)
        name = launch_key(shared, attempt)
        run = LaunchedRun(name, shared, launch.pid, identity.restart(launch.facts.environ), launch.facts.uid)
        run.owner = self._table.shares.owner(run.uid)
        self._table.shares.run(run.owner, 1)
        self._runs[name] = run
        labels = identity.labels(launch.facts)
        about = (launch.pid, launch.command, launch.user, launch.cwd, labels)
        self._tell(RunStarted(name, began_ns, *about, process.attached, attempt, job))
        return run

    def _assign(self, run: LaunchedRun, head: int) -> None:
        for process in self._table.subtree(head):
            process.run = run
        self._table.changed = True

    def _flush(self, run: LaunchedRun) -> None:
        """Tell what the run's processes did before it was one."""
        kept: list[Event] = []
        for process in self._table:
            if process.run is run:
                kept += self._table.take_events(process)
        for event in sorted(kept, key=lambda event: event.at_ns):
            self._tell(event)

    def _candidate(self, process: WatchedProcess, run: LaunchedRun, at_ns: int, marks: Message | str) -> None:
        place = identity.rank(self._proc.environ(process.pid))
        self._rank_seen(process, run, at_ns, place, candidate=True, marks=marks)

    def _rank_seen(
        self,
        process: WatchedProcess,
        run: LaunchedRun,
        at_ns: int,
        place: tuple[int | None, int | None],
        *,
        candidate: bool = False,
        marks: Message | str = "",
    ) -> None:
        """``place``: its rank, and how many there are."""
        status = self._proc.status(process.pid)
        container_pid = status.container_pid if status else None
        seen_ns = process.watched_ns if process.attached else at_ns
        self._tell(
            RankSeen(run.name, seen_ns, process.pid, container_pid, process.started_ns, *place, candidate, marks)
        )

    def _free_rank(self, process: WatchedProcess, run: LaunchedRun, rank: int | None) -> int:
        """The environment's rank; without one, or when it is taken, by the order of start. Any number of processes may
        claim the same."""
        if rank is None and process.pid != run.head:
            rank = sum(
                other.ppid == process.ppid
                and other.uid == process.uid
                and other.understood == process.understood
                and other.library is not None
                and other.started_ns < process.started_ns
                for other in self._table
            )
        rank = rank or 0
        if rank in run.ranks or len(run.ranks) >= RANKS:
            rank = run.last_rank + 1
        run.last_rank = max(run.last_rank, rank)
        if len(run.ranks) < RANKS:
            run.ranks.add(rank)
        return rank
