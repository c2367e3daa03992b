"""The ranks of a run, and which of them a process belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from trainprobe.causes.policy import Policy
from trainprobe.derive.host.devices import Devices
from trainprobe.derive.host.quota import Quota
from trainprobe.model.cells import RowKind
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import MarkRow, RankSeen
from trainprobe.pipeline.busy import RunProcesses
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.rank.surroundings import Surroundings

DRIVERS, RANKS = 32, 256
"""Drivers of a process, and ranks of a run, that are watched at once: each costs memory and time in every pass."""
REFUSED = 10_000
"""Drivers without a place that are counted."""


@dataclass(slots=True)
class Ranks:
    """Ranks by process; a process with several drivers has several."""

    policy: Policy
    attached: bool
    devices: Devices
    quota: Quota = field(default_factory=Quota)
    company: RunProcesses = field(default_factory=RunProcesses)
    by_pid: dict[int, list[RankState]] = field(default_factory=dict)
    given_up: int = 0  # ranks that have ended and made room for others
    full: bool = False  # its user, or the host, has no room for more: but for the first one of a run
    refused: set[tuple[int, int]] = field(default_factory=set)  # (pid, tid) of drivers there is no room for

    def __iter__(self) -> Iterator[RankState]:
        return (rank for ranks in self.by_pid.values() for rank in ranks)

    @property
    def live(self) -> list[RankState]:
        return [rank for rank in self if rank.end_ns is None]

    def add(self, seen: RankSeen) -> None:
        known = self.by_pid.get(seen.pid)
        if known:
            known[0].seen = seen
            known[0].attached = known[0].attached and self.attached
            return
        if not self._has_room(seen.pid, seen.pid):
            return
        rank = self._new(seen)
        for other in self:
            _hand_over(other, rank)
        self.by_pid[seen.pid] = [rank]
        self.count_stepping()

    def _new(self, seen: RankSeen, tid: int = 0, start_ns: int = 0) -> RankState:
        around = Surroundings(self.devices, self.quota, self.company)
        return RankState(seen, self.policy, self.attached, around, tid=tid, start_ns=start_ns)

    def count_stepping(self) -> None:
        """Tell each rank whether others belong to the run: what a wait on a socket is depends on it."""
        stepping = sum(1 for rank in self if rank.stepped)
        for rank in self:
            rank.ledger.ranks = stepping > 1 or (rank.seen.world_size or 1) > 1

    def count_threads(self) -> None:
        """Tell all what they are together: the run's processes have been read."""
        stepping = [rank for rank in self.live if rank.stepped]  # torchrun maps libtorch, too
        self.company.pids, self.company.ranks = self.pids(), len(stepping)
        self.company.threads = sum(rank.surroundings.threads.count for rank in stepping)

    def of(self, pid: int) -> list[RankState]:
        """The ranks of a process: of a driver, or of the driver that it is a child of."""
        ranks = self.by_pid.get(pid)
        if ranks:
            return ranks
        found = next((rank for rank in self if rank.lives.workers.owns(pid)), None)
        return self.by_pid[found.seen.pid] if found is not None else []

    def of_row(self, row: MarkRow) -> RankState | None:
        """The rank of the thread that made a mark, which may be new; None: there is no room for it."""
        ranks = self.by_pid[row.pid]
        for rank in ranks:
            if rank.tid == row.tid:
                return rank
        if not ranks[0].stepped or row.kind not in (RowKind.OPTIMIZER, RowKind.BACKWARD):
            return ranks[0]
        if not self._has_room(row.pid, row.tid):
            return None
        rank = self._new(ranks[0].seen, row.tid, row.opened_ns or row.at_ns)
        rank.further = ranks[-1].further + 1
        ranks.append(rank)
        return rank

    def _has_room(self, pid: int, tid: int) -> bool:
        """Whether another driver can be watched. One that has ended makes room for it."""
        own = self.by_pid.get(pid, [])
        crowd = own if len(own) >= DRIVERS else list(self)
        if crowd is not own and len(crowd) < RANKS and not (self.full and crowd):
            self.refused.discard((pid, tid))
            return True
        ended = self.ended(crowd)
        if ended is None:
            self._refuse(pid, tid)
            return False
        self.refused.discard((pid, tid))
        self.give_up(ended)
        return True

    def _refuse(self, pid: int, tid: int) -> None:
        if len(self.refused) < REFUSED:
            self.refused.add((pid, tid))

    def ended(self, crowd: Iterable[RankState] | None = None) -> RankState | None:
        """The first one that has ended; ``crowd``: of these."""
        return next((rank for rank in (self if crowd is None else crowd) if self._is_over(rank)), None)

    def give_up(self, rank: RankState) -> None:
        """One that has ended makes room."""
        self.given_up += 1
        self._remove(rank)

    def refuse_newest(self) -> None:
        """The newest one makes room for others', as if it had never been let in."""
        newest = next(reversed(self.by_pid.values()))[-1]
        self._refuse(newest.seen.pid, newest.tid)
        self._remove(newest)

    def count(self) -> int:
        return sum(map(len, self.by_pid.values()))

    def going(self) -> int:
        """How many have not ended."""
        return sum(not self._is_over(rank) for rank in self)

    def _remove(self, gone: RankState) -> None:
        rest = self.by_pid[gone.seen.pid]
        rest[:] = [rank for rank in rest if rank is not gone]
        if not rest:
            del self.by_pid[gone.seen.pid]
            self.company.held_up.pop(gone.seen.pid, None)

    def _is_over(self, rank: RankState) -> bool:
        """Its process has ended, or the thread of a further driver."""
        latest = rank.ledger.latest
        thread = latest is not None and latest.kind is RowKind.EXIT
        return rank.end_ns is not None or (thread and rank is not self.by_pid[rank.seen.pid][0])

    def pids(self) -> set[int]:
        """The drivers, ended ones too, and their live children."""
        return {*self.by_pid, *(pid for rank in self for pid in rank.lives.workers.live)}

    def owns(self, pid: int) -> bool:
        return any(rank.known(pid) for rank in self)

    def shown(self) -> list[RankState]:
        """The ranks of the report: those that step; while none does, the first candidate."""
        every = list(self)
        stepping = [rank for rank in every if rank.stepped]
        return stepping or [rank for rank in every if not rank.seen.candidate] or every[:1]

    def named(self) -> Iterator[tuple[RankState, int, str]]:
        """Each shown rank with its number and its name, in order."""
        taken: dict[int, int] = {}
        order = sorted(self.shown(), key=lambda r: (r.seen.rank is None, r.seen.rank or 0, r.seen.started_ns))
        for rank in order:
            own = rank.seen.rank
            number = own if own is not None else taken.setdefault(rank.seen.pid, len(taken))
            yield rank, number, f"{number}.{rank.further}" if rank.further else str(number)


def _hand_over(other: RankState, rank: RankState) -> None:
    """Children that were taken for another process's, because theirs was not known yet, and what they forked."""
    theirs, workers = other.lives.workers, rank.lives.workers
    theirs.live.pop(rank.seen.pid, None)
    other.forget(rank.seen.pid)
    own = {rank.seen.pid}
    for pid, life in list(theirs.live.items()):  # parents come first
        if life.ppid in own:
            own.add(pid)
            theirs.started -= life.role == "worker"
            if not life.executed:  # to the launcher the training itself is another program, with all that it forks
                life.role = workers.forked_role(life.ppid)
            workers.live[pid] = theirs.live.pop(pid)
            other.forget(pid)
            if life.role == "worker":
                workers.started += 1
                workers.starts.append(life.start_ns)
    workers.peak = max(workers.peak, workers.count)
