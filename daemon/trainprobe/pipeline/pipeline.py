"""All runs of a host: takes in frames, says what to sample next, makes the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import zip_longest

from trainprobe.causes.policy import Policy
from trainprobe.derive.host.devices import Devices
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import (
    Event,
    GpuXid,
    HostStoodStill,
    MarkRow,
    OomLogged,
    RankSeen,
    RunEnded,
    RunStarted,
)
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS, Moment, Offsets
from trainprobe.model.report import Host, Report, Run
from trainprobe.model.resume_state import KeptRank, ResumedJob, ResumedRun
from trainprobe.model.sample import LimitSample
from trainprobe.model.settled import settled, whole
from trainprobe.model.step_deadline import Armed
from trainprobe.model.steprow import RankSteps
from trainprobe.pipeline.host import HostState
from trainprobe.pipeline.jobs import Jobs
from trainprobe.pipeline.rank_shares import share
from trainprobe.pipeline.routing import Routing
from trainprobe.pipeline.run import wants
from trainprobe.pipeline.run.report import may_wait, news, run_report
from trainprobe.pipeline.run.state import RunState
from trainprobe.pipeline.run.wants import Threads, Wants
from trainprobe.pipeline.stall_shares import shorten

INSPECT_EVERY = NS // 2
INSPECTED = 16
"""Threads that are looked at in that time: with 64 threads beside it each takes 5 ms."""
LOOKS_NS = 10 * NS
"""So long after a late driver slept it is traced for which files drivers ask: to end that takes a while."""
ENDED, ENDED_RANKS, ENDED_AT_ONCE = 16, 64, 256
"""Ended runs kept in the report; with so many ranks in all, but the latest of who has most in any case; together with
those whose end is less than ``TELLING_NS`` old."""
TELLING_NS = 30 * NS
"""Each report has its time until then, also one that a small budget delays, and the history's."""
SETTLED_NS = 120 * NS
"""After this nothing is reported of an ended run that changes it (its orphans, what the kernel log says of its death):
its report takes the place of its state, at a twentieth of the memory."""

REUSED_NS = NS
"""So long a run's part of a report serves for the next ones."""
MADE_ANEW = 12
"""Parts without news that one report makes anew, the oldest first: none where the last one that did is less than
``REUSED_NS`` old. Of 60 runs of a host each is in every fifth of the others."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A run's part of the latest report, when it was made, and what had happened until then."""

    run: Run
    at_ns: int
    seen: object


@dataclass(slots=True)
class Pipeline:
    policy: Policy | None = None
    host: Host | None = None
    runs: dict[str, RunState] = field(default_factory=dict)
    _routing: Routing = field(init=False)
    _host: HostState = field(init=False)
    _devices: Devices = field(default_factory=Devices)
    _jobs: Jobs = field(default_factory=Jobs)
    _settled: dict[str, Run] = field(default_factory=dict)  # runs that ended some time ago, in that order
    _ended_ns: dict[str, int] = field(default_factory=dict)  # when the end of a run came to be known
    _parts: dict[str, _Part] = field(default_factory=dict)
    _turn_ns: int = -REUSED_NS  # the latest report that made parts without news anew
    _now: int = 0
    _offsets: Offsets = field(default_factory=Offsets)
    _open: frozenset[tuple[str, int]] = frozenset()  # (run, start) of the open stalls
    _opened: bool = False
    _stalled: int = 0  # closed stalls of all ranks
    _inspected: dict[tuple[int, int], int] = field(default_factory=dict)  # late threads, and when they were looked at
    _looks: list[int] = field(default_factory=list)  # when there was one, of late
    _slept_ns: int | None = None  # a late driver was last found asleep

    def __post_init__(self) -> None:
        self._routing, self._host = Routing(self.runs), HostState(self.host or Host())

    def step(self, frame: Frame) -> None:
        self._now = frame.at.monotonic_ns
        self._offsets.update(frame.at)
        for event in frame.events:
            if not isinstance(event, MarkRow) or not self._routing.add_row(event):
                self._add_event(event)
        self._add_samples(frame)
        self._add_surroundings(frame)
        self._add_limits(frame)
        self._settle(frame.at)
        share(self.runs.values())
        news = [run.judge(self._now) for run in self.runs.values()]
        opened = ((name, rank.stalls.open) for name, run in self.runs.items() for rank in run.ranks)
        stalls = frozenset((name, entry.start_ns) for name, entry in opened if entry is not None)
        self._opened = bool(stalls - self._open) or any(news)
        self._open = stalls
        if (stalled := sum(rank.stalls.total for run in self.runs.values() for rank in run.ranks)) != self._stalled:
            self._stalled = stalled
            shorten(self.runs.values())

    def _add_event(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            if event.run not in self.runs:
                self._settled.pop(event.run, None)
                self._jobs.begin(event)
                self.runs[event.run] = RunState(event, self.policy or Policy(), self._devices)
                self._forget()
        elif isinstance(event, (ResumedRun, RankSeen, RunEnded)):
            run = self.runs.get(event.run)
            if run is None:
                return
            if isinstance(event, ResumedRun):
                run.go_on(event)
            elif isinstance(event, RankSeen):
                run.add_rank(event)
                self._routing.takers[event.pid] = event.run
            else:
                run.add_end(event.at_ns)
                self._ended_ns[event.run] = self._now
        elif isinstance(event, ResumedJob):
            self._jobs.keep_account(event)
        elif isinstance(event, OomLogged):
            for run in self.runs.values():
                run.limits.add_oom(event)
        elif isinstance(event, HostStoodStill):
            self._devices.standstills.append(event)
        elif not isinstance(event, GpuXid):
            self._routing.add_event(event)

    def _add_samples(self, frame: Frame) -> None:
        owners = self._routing.owners() if frame.threads or frame.processes else {}
        for sample in frame.threads:
            for run in owners.get(sample.pid, ()):
                run.add_thread_sample(sample, self._now)
        for process in frame.processes:
            for run in owners.get(process.pid, ()):
                run.add_process_sample(process)
        for run in self.runs.values() if frame.processes else ():
            run.end_reading(self._now)
        for count in frame.counted:
            for run in self.runs.values():
                run.add_count(count)
        for memory in frame.memory:
            if memory.run in self.runs:
                self.runs[memory.run].memory = memory

    def _add_surroundings(self, frame: Frame) -> None:
        if frame.host is not None:
            self._devices.add_sample(frame.host.disks, self._now)
            self._devices.cpus = frame.host.cpus
            self._devices.feed_steal(frame.host.steal_ns, self._now)
            self._devices.feed_pressure((frame.host.pressure or {}).get("cpu.some"), self._now)
            for run in self.runs.values():
                run.add_host_sample(frame.host, self._now)
        if frame.rivals:
            self._devices.feed_rivals(frame.rivals, self._now)
        for quota in frame.quotas:
            if quota.run in self.runs:
                self.runs[quota.run].ranks.quota.add_sample(quota, self._now)
        for name, run in self.runs.items() if frame.io_limits is not None else ():
            run.ranks.quota.io_limits = tuple(one for one in frame.io_limits or () if one.run == name)
        for seen in frame.inspections:
            for run in self.runs.values():
                run.add_inspection(seen, self._now)

    def _add_limits(self, frame: Frame) -> None:
        self._host.add_frame(frame)
        open_fds: dict[str, list[LimitSample]] = {}
        for limit in frame.limits:
            if limit.run in self.runs:
                self.runs[limit.run].limits.supplies.add_limit(limit, self._now)
                if limit.kind == "fds":
                    open_fds.setdefault(limit.run, []).append(limit)
        for name, run in self.runs.items():
            run.add_limits(frame, open_fds.get(name, ()), self._now)
        for shared in frame.shared:
            for name in shared.runs:
                if name in self.runs:
                    self.runs[name].limits.shared = shared
        faults = self._host.gpus.faults
        for run in self.runs.values() if frame.gpus or faults else ():
            run.add_gpus(frame.gpus, faults, self._now)

    def _settle(self, at: Moment) -> None:
        """Keep of long ended runs only their reports."""
        for name, run in list(self.runs.items()):
            if run.end_ns is not None and self._now - run.end_ns >= SETTLED_NS:
                made = run_report(run, self._offsets.known(at), self._host.cpus)
                self._settled[name] = settled(self._jobs.with_goodput(made))
                del self.runs[name]
                self._routing.forget(name)

    def _forget(self) -> None:
        """Of ended runs all but the latest, the oldest of him who has most first; and the shared memory of those. One
        whose end the history may not know yet is kept."""
        ended = [(name, run.user, len(run.ranks)) for name, run in self._settled.items()]
        ended += [(n, run.started.user, run.ranks.count()) for n, run in self.runs.items() if run.end_ns is not None]
        users: dict[str, list[tuple[str, int]]] = {}
        for name, user, ranks in sorted(ended, key=lambda one: self._ended_ns[one[0]]):
            users.setdefault(user, []).append((name, ranks))
        left, all_ranks = len(ended), sum(ranks for _, _, ranks in ended)
        while left > ENDED or all_ranks > ENDED_RANKS:
            most = max(users.values(), key=len if left > ENDED else _ranks_of)
            if left <= ENDED and len(most) == 1:
                break
            if left <= ENDED_AT_ONCE and self._now - self._ended_ns[most[0][0]] < TELLING_NS:
                break
            name, ranks = most.pop(0)
            left, all_ranks = left - 1, all_ranks - ranks
            self._settled.pop(name, None)
            self.runs.pop(name, None)
        known = {*self._settled, *self.runs}
        self._ended_ns = {name: at for name, at in self._ended_ns.items() if name in known}
        self._jobs.forget(known)
        self._host.shared = {key: one for key, one in self._host.shared.items() if known.intersection(one.runs)}

    def armed(self) -> list[Armed]:
        """The drivers whose present step is not a stall yet."""
        return [one for run in self.runs.values() for one in wants.armed(run) if one.limit_ns > self._now]

    def wants(self) -> Wants:
        """What to sample more closely until the next frame."""
        now, live = self._now, [run for run in self.runs.values() if run.end_ns is None]
        late = {thread: run.started.user for run in live for thread in wants.late_threads(run, now)}
        faults = any(wants.faulting(run, now) for run in live)
        even = bool(live) and not (late or faults)
        if any(wants.sleeping(run, now) for run in live):
            self._slept_ns = now
        return Wants(
            detail=bool(late),
            stacks=wants.stacks(live, now),
            inspect=self._due(late),
            rivals=any(wants.crowded(run) for run in live),
            faults=faults,
            looks=self._slept_ns is not None and now - self._slept_ns < LOOKS_NS,
            tell=self._opened,
            spaces=tuple(place for run in live for place in wants.spaces(run)),
            files=tuple(file for run in live for file in wants.logs(run)),
            stable_ns=min(wants.stable_ns(run, now) for run in self.runs.values()) if even else 0,
            count=_in_turn([(run.started.user, pair) for run in live for pair in wants.counting(run, now)]),
        )

    def _due(self, late: Mapping[tuple[int, int], str]) -> Threads:
        """Late threads, by whose they are, are looked at as they become late, and twice a second from then on; of many
        each user's in turn, those first that wait longest."""
        self._looks = [at for at in self._looks if self._now - at < INSPECT_EVERY]
        self._inspected = {thread: at for thread, at in self._inspected.items() if thread in late}
        due = [
            (late[thread], thread)
            for thread in sorted(late, key=lambda thread: self._inspected.get(thread, 0))
            if thread not in self._inspected or self._now - self._inspected[thread] >= INSPECT_EVERY
        ]
        chosen = _in_turn(due)[: INSPECTED - len(self._looks)]
        self._inspected.update(dict.fromkeys(chosen, self._now))
        self._looks += [self._now] * len(chosen)
        return chosen

    def report(self, at: Moment, *, reuse: bool = False) -> Report:
        """Everything known, as of ``at``. ``reuse``: where a run has only made even steps since an earlier report, its
        part may be that one's, for a second and until its turn comes (``MADE_ANEW``); long ended ones are settled."""
        at = self._offsets.known(at)
        seen = {name: news(run) for name, run in self.runs.items()}
        kept = self._kept_parts(seen, at.monotonic_ns) if reuse else {}
        self._parts = {name: kept.get(name) or self._part(run, at, seen[name]) for name, run in self.runs.items()}
        ended = self._settled.values() if reuse else map(whole, self._settled.values())
        return self._host.report(at, [*ended, *(part.run for part in self._parts.values())])

    def _kept_parts(self, seen: Mapping[str, object], now_ns: int) -> dict[str, _Part]:
        """The parts of the latest report that serve for the next one, too."""
        same = {
            name: part for name, part in self._parts.items() if part.seen is not None and part.seen == seen.get(name)
        }
        old = [name for name, part in same.items() if now_ns - part.at_ns >= REUSED_NS]
        turn = sorted((name for name in old if may_wait(self.runs[name])), key=lambda name: same[name].at_ns)
        if now_ns - self._turn_ns < REUSED_NS:
            waiting = set(turn)
        else:
            waiting = set(turn[MADE_ANEW:])
            self._turn_ns = now_ns
        return {name: part for name, part in same.items() if name in waiting or name not in old}

    def _part(self, run: RunState, at: Moment, seen: object) -> _Part:
        return _Part(self._jobs.with_goodput(run_report(run, at, self._host.cpus)), at.monotonic_ns, seen)

    def take_steps(self, at: Moment) -> list[RankSteps]:
        """The steps of every rank since the last call."""
        at = self._offsets.known(at)
        return [steps for run in self.runs.values() for steps in run.take_steps(at)]

    @property
    def stalled(self) -> bool:
        return bool(self._open)

    def kept(self) -> dict[tuple[str, str], KeptRank]:
        """By run and rank, what another process would need to go on with what is live."""
        live = ((name, run) for name, run in self.runs.items() if run.end_ns is None)
        return {(name, rank): kept for name, run in live for rank, kept in run.kept_ranks().items()}


def _ranks_of(runs: Sequence[tuple[str, int]]) -> int:
    return sum(ranks for _, ranks in runs)


def _in_turn(threads: Sequence[tuple[str, tuple[int, int]]]) -> Threads:
    """Threads, by whose they are: the first one of each user, then the second of each."""
    of: dict[str, list[tuple[int, int]]] = {}
    for user, thread in threads:
        of.setdefault(user, []).append(thread)
    return tuple(thread for each in zip_longest(*of.values()) for thread in each if thread is not None)
