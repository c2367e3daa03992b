"""What of a run can run out: how it grows, what has failed, and what there is to say about it to each rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainprobe.derive.forecast import Forecast, Series, forecast
from trainprobe.detect.limits import gpu_memory
from trainprobe.detect.limits.base import GpuFault, Growth, Key, Situation, Victim, used_share
from trainprobe.detect.limits.registry import notices
from trainprobe.model.event import CallFailed, OomTold, ProcessEvent
from trainprobe.model.moment import NS
from trainprobe.model.sample import (
    DescriptorSample,
    GpuSample,
    LimitSample,
    MemorySample,
    OrphanSample,
    ProcessSample,
    SharedSample,
    SpaceSample,
)
from trainprobe.pipeline.gpus import RankGpus, faults_of, memory_of
from trainprobe.pipeline.rank import RankFold

JUDGE_NS = 2 * NS
SOON_NS = NS // 2  # while something is read more often than each second: it fills up
STALE_NS = 45 * NS  # a limit that is no longer read is of a process that is gone
WORTH = 0.1  # of a limit: what uses less is not followed
FULL = 0.9
TOLD = 64  # kills of all the host
SAME_KILL_NS = 60 * NS
FAILURES = 200
GROWTH_SECONDS = 180.0
PSS_SECONDS = 60.0
FD_ERRORS = {0: "MSG_CTRUNC", 23: "ENFILE", 24: "EMFILE"}
ROLES = ("driver", "worker", "helper")


@dataclass(slots=True)
class _RoleMemory:
    """Memory of all processes of one role, over time. Proportional memory is asked seldom: at first, resident memory
    tells how it grows."""

    processes: int = 0
    bytes: int = 0
    pss: Series = field(default_factory=Series)
    rss: Series = field(default_factory=Series)
    private: Series = field(default_factory=Series)

    def add(self, at: float, held: Sequence[ProcessSample]) -> None:
        pss = [p.pss_bytes for p in held if p.pss_bytes is not None]
        self.processes = len(held)
        self.bytes = sum(pss) if pss else sum(p.rss_bytes or 0 for p in held)
        self.rss.add(at, sum(p.rss_bytes or 0 for p in held))
        if pss:
            self.pss.add(at, sum(pss))
            self.private.add(at, sum(p.private_bytes or 0 for p in held))

    def growth(self, role: str) -> Growth:
        pss = self.pss.slope(GROWTH_SECONDS)
        slope = pss if pss is not None and self.pss.seconds >= PSS_SECONDS else self.rss.slope(GROWTH_SECONDS)
        return Growth(role, self.processes, self.bytes, slope, self.private.slope(GROWTH_SECONDS))


@dataclass(slots=True)
class RunLimits:
    """Of one run. ``feed_*`` take what a frame holds."""

    latest: dict[Key, LimitSample] = field(default_factory=dict)
    forecasts: dict[Key, Forecast] = field(default_factory=dict)
    failures: list[CallFailed] = field(default_factory=list)
    counts: dict[tuple[int, int, bool], int] = field(default_factory=dict)  # (pid, errno, tmpfs) -> failures
    victims: list[Victim] = field(default_factory=list)
    bus_errors: list[ProcessEvent] = field(default_factory=list)
    descriptors: dict[int, DescriptorSample] = field(default_factory=dict)
    shared: SharedSample | None = None
    spaces: dict[str, SpaceSample] = field(default_factory=dict)
    container: str | None = None  # that its driver is in: a command may enter one after it was started
    orphans: tuple[OrphanSample, ...] = ()
    gpus: dict[int, RankGpus] = field(default_factory=dict)  # by the driver's pid
    gpu_faults: list[GpuFault] = field(default_factory=list)  # of all GPUs
    _series: dict[Key, Series] = field(default_factory=dict)
    _seen_ns: dict[Key, int] = field(default_factory=dict)
    _roles: dict[tuple[int, str], _RoleMemory] = field(default_factory=dict)
    _told: deque[OomTold] = field(default_factory=lambda: deque(maxlen=TOLD))
    _judged_ns: int = 0
    _stirred: bool = False
    _haste: bool = False
    _refused: bool = False  # the GPU's memory: whether a step follows decides what that means

    # ---- feeding ----

    def feed_limit(self, sample: LimitSample, at_ns: int) -> None:
        """How much of something is used now."""
        key = (sample.kind, sample.place, sample.pid if sample.kind == "fds" else 0)
        if sample.kind == "shm" and key not in self.latest:  # it has mounted another one
            for other in [other for other in self.latest if other[0] == "shm"]:
                self._forget(other)
        if sample.kind == "shm" and sample.scope not in ("", "host"):
            self.container = sample.scope
        self.latest[key] = sample
        self._seen_ns[key] = at_ns
        series = self._series.get(key)
        if series is None:
            if sample.used < WORTH * sample.limit:
                return
            series = self._series[key] = Series()
        self._haste = self._haste or (series.last is not None and at_ns / NS - series.last.at <= SOON_NS / NS)
        series.add(at_ns / NS, sample.used)

    def feed_failure(self, event: CallFailed) -> None:
        """A call of one of its processes failed."""
        self.counts[event.pid, event.errno, event.tmpfs] = event.count
        if len(self.failures) < FAILURES:
            self.failures.append(event)
        self._refused = self._refused or event.call == gpu_memory.CALL
        self._stirred = True

    def feed_end(self) -> None:
        """A driver has ended: what failed last may be why."""
        self._stirred = self._stirred or bool(self.failures)

    def feed_victim(self, event: ProcessEvent, fold: RankFold) -> None:
        """One of its processes is killed for want of memory."""
        held = [p for p in fold.processes.values() if fold.workers.owns(p.pid)]
        self.victims.append(Victim(event, None, "", None, held))
        self._stirred = True
        for told in self._told:
            if abs(event.at_ns - told.at_ns) <= SAME_KILL_NS:
                self._name_limit(told)

    def feed_oom(self, told: OomTold) -> None:
        """What the kernel log said about it; it may be read before the victim is known, for it is written before."""
        self._told.append(told)
        self._name_limit(told)

    def _name_limit(self, told: OomTold) -> None:
        for index, victim in enumerate(self.victims):
            if victim.event.pid == told.pid and victim.scope is None:
                limit = self._limit_of(told.scope, told.group)
                self.victims[index] = replace(victim, scope=told.scope, group=told.group, limit=limit)
                self._stirred = True

    def feed_spaces(self, found: Mapping[str, SpaceSample]) -> None:
        """Room where its checkpoints go."""
        self.spaces.update(found)
        self._stirred = self._stirred or bool(found)

    def feed_bus_error(self, event: ProcessEvent) -> None:
        """One of its processes could not have a page."""
        self.bus_errors.append(event)
        self._stirred = True

    def feed_gpus(self, fold: RankFold, samples: Sequence[GpuSample], now_ns: int) -> None:
        """Readings of all GPUs."""
        gpus = self.gpus.setdefault(fold.seen.pid, RankGpus())
        for sample in samples:
            gpus.feed(sample, fold)
            if sample.uuid in gpus.index and (memory := memory_of(sample)) is not None:
                self.feed_limit(memory, now_ns)
        gpus.settle(fold, now_ns)
        gpus.give_back(fold, now_ns)

    def feed_gpu_faults(self, faults: Sequence[GpuFault]) -> None:
        """What broke in any GPU of the host while the run was there."""
        self.gpu_faults += faults
        self._stirred = self._stirred or bool(faults)

    def feed_orphans(self, found: Sequence[OrphanSample], drivers: Iterable[int]) -> None:
        """Its workers that have no trainer any more."""
        known = set(drivers)
        mine = tuple(orphan for orphan in found if orphan.trainer in known)
        self._stirred = self._stirred or mine != self.orphans
        self.orphans = mine

    def feed_processes(self, fold: RankFold, at_ns: int) -> None:
        """Memory by role, after the samples of a frame."""
        for role in ROLES:
            held = [p for p in fold.processes.values() if p.role == role and fold.workers.owns(p.pid)]
            if held:
                self._roles.setdefault((fold.seen.pid, role), _RoleMemory()).add(at_ns / NS, held)

    # ---- judging ----

    def judge(self, folds: Sequence[RankFold], now_ns: int) -> bool:
        """Tell each rank what there is to say; whether something new has happened."""
        if not self._stirred and now_ns - self._judged_ns < (SOON_NS if self._haste else JUDGE_NS):
            return False
        self._judged_ns, self._haste = now_ns, False
        for key in [key for key, seen in self._seen_ns.items() if now_ns - seen > STALE_NS]:
            self._forget(key)
        stepped = [fold.first_boundary_ns / NS for fold in folds]
        started = max(stepped) if stepped and all(stepped) else None
        self.forecasts = {
            key: found
            for key, series in self._series.items()
            if (sample := self.latest.get(key)) and (found := forecast(series, sample.limit, started)) is not None
        }
        self._settle_victims()
        news = [self._tell(fold, now_ns) for fold in folds if self._concerns(fold)]
        self._stirred = False
        return any(news)

    def _forget(self, key: Key) -> None:
        self._seen_ns.pop(key, None)
        self.latest.pop(key, None)
        self._series.pop(key, None)
        self.forecasts.pop(key, None)

    def _concerns(self, fold: RankFold) -> bool:
        open_ = any(not notice.happened for notice in fold.notices.told.values())
        quiet = not (self.forecasts or self._stirred or open_ or self.spaces or self.orphans or self._refused)
        return not quiet or bool(self.shared and self.shared.leaks)

    def _tell(self, fold: RankFold, now_ns: int) -> bool:
        return fold.notices.take(notices(self.situation(fold, now_ns)), now_ns)

    def _settle_victims(self) -> None:
        """Without the kernel log: the limit that was all but reached."""
        for index, victim in enumerate(self.victims):
            if victim.scope is None:
                full = [s for key, s in self.latest.items() if key[0] == "memory" and used_share(s) >= FULL]
                nearest = min(full, key=lambda s: s.limit - s.used, default=None)
                if nearest is not None:
                    self.victims[index] = replace(victim, scope=nearest.scope, limit=nearest)

    def _limit_of(self, scope: str, group: str) -> LimitSample | None:
        fitting = [s for key, s in self.latest.items() if key[0] == "memory" and s.scope == scope]
        named = [s for s in fitting if group and (s.place.endswith(group) or group.endswith(s.place))]
        return max(named or fitting, key=used_share, default=None)

    def situation(self, fold: RankFold, now_ns: int) -> Situation:
        """What the rules see of a rank."""
        owned = {pid for pid in (*fold.processes, *self.descriptors) if fold.known(pid)}
        gpus = self.gpus.get(fold.seen.pid)
        limits = {key: one for key, one in self.latest.items() if self._is_of(key, fold, gpus)}
        return Situation(
            now_ns=now_ns,
            driver=fold.seen.pid,
            processes=[p for p in fold.processes.values() if fold.workers.owns(p.pid)],
            roles={
                **{p.pid: p.role for p in fold.processes.values()},
                **{pid: life.role for pid, life in fold.workers.live.items()},
                **{death.pid: "worker" for death in fold.workers.deaths},
            },
            limits=limits,
            forecasts={key: found for key, found in self.forecasts.items() if key in limits},
            growth=self._growth(fold),
            failures=[f for f in self.failures if fold.known(f.pid)],
            stepped_ns=fold.boundary.at_ns if fold.boundary is not None else 0,
            bus_errors=[e for e in self.bus_errors if fold.known(e.pid)],
            victims=[v for v in self.victims if fold.known(v.event.pid)],
            descriptors={pid: kinds for pid, kinds in self.descriptors.items() if pid in owned},
            shared=self.shared,
            spaces=self.spaces,
            saves=fold.saves.checkpoints() if self.spaces or self.failures else (),
            gpu_faults=faults_of(gpus, self.gpu_faults),
            gpu_holders=gpus.holders if gpus is not None else {},
            orphans=[o for o in self.orphans if o.trainer == fold.seen.pid],
            workers=fold.workers.count,
            shm_per_batch=fold.batch_bytes.mean,
        )

    def _is_of(self, key: Key, fold: RankFold, gpus: RankGpus | None) -> bool:
        kind, place, pid = key
        if kind == "gpu":
            return gpus is not None and place in gpus.index
        return kind != "fds" or fold.workers.owns(pid)

    def _growth(self, fold: RankFold) -> list[Growth]:
        found = []
        for role in ROLES:
            memory = self._roles.get((fold.seen.pid, role))
            if memory is not None and memory.processes:
                found.append(memory.growth(role))
        return found

    # ---- figures ----

    def eta(self, kind: str, fold: RankFold) -> float | None:
        """Seconds until the first limit of a kind is reached; None: not in sight."""
        mine = [
            f.eta_seconds
            for key, f in self.forecasts.items()
            if key[0] == kind and (not key[2] or fold.workers.owns(key[2]))
        ]
        return min(mine, default=None)

    def fd_errors(self, fold: RankFold) -> dict[str, int]:
        """Failures for want of descriptors, by errno."""
        found: dict[str, int] = {}
        for (pid, errno, _), count in self.counts.items():
            if errno in FD_ERRORS and fold.known(pid):
                found[FD_ERRORS[errno]] = found.get(FD_ERRORS[errno], 0) + count
        return found

    def shm_errors(self, fold: RankFold) -> int:
        """Failures for want of room in shared memory."""
        failed = sum(n for (pid, errno, tmpfs), n in self.counts.items() if errno == 28 and tmpfs and fold.known(pid))
        return failed + sum(1 for notice in fold.notices.told.values() if notice.key == "shm-error" and not failed)

    def oom_kills(self) -> dict[str, int]:
        """Victims by whose limit it was, as far as that is known."""
        scopes = [victim.scope for victim in self.victims if victim.scope]
        return {scope: scopes.count(scope) for scope in dict.fromkeys(scopes)}

    def reached(self, run: str) -> MemorySample | None:
        """The limit of memory that the latest victim was killed for: no other one was nearer."""
        hit = next((victim.limit for victim in reversed(self.victims) if victim.scope and victim.limit), None)
        return MemorySample(run, hit.used, hit.limit, hit.scope) if hit is not None else None

    def shm(self) -> LimitSample | None:
        """The /dev/shm that it sees."""
        return next((one for key, one in self.latest.items() if key[0] == "shm"), None)
