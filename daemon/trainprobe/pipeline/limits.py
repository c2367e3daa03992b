"""What of a run can run out: how it grows, what has failed, and what there is to report about it to each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import TypeVar

from trainprobe.causes.limits import shm_exhaustion
from trainprobe.causes.registry import CHECKS
from trainprobe.causes.situation import SHM, GpuFault, Key, KnownLimits, Situation, on_shm
from trainprobe.causes.stalls import gpu_memory
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed, OomLogged, ProcessEvent
from trainprobe.model.moment import NS
from trainprobe.model.sample import DescriptorSample, GpuSample, OrphanSample, SharedSample, SpaceSample
from trainprobe.model.vocabulary import DESCRIPTOR_ERRORS
from trainprobe.pipeline.failure_sums import FailureSums
from trainprobe.pipeline.gpus import RankGpus, faults_of, memory_of
from trainprobe.pipeline.kills import Kills
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.supplies import SOON_NS, RoleMemory, Supplies

JUDGE_NS = 2 * NS
EACH_RANK_NS = 8_000_000  # between judgements that events ask for: processes can fail in a loop, and each is compared
FAILURES = BUS_ERRORS = 200
COUNTS = 1024
"""Counts of failures that are told apart by process, and as many of which only the number is known; sums go further."""
DESCRIPTORS = 1024
"""Processes whose kinds of descriptors are kept, the latest."""
SPACES = 256
"""Directories whose room is kept, the latest: one of each rank."""
K = TypeVar("K")
V = TypeVar("V")
ROLES = ("driver", "worker", "helper")
OF_DRIVER = 9
"""Entries of a driver at most: by role, by what ran out, and of its GPUs."""


@dataclass(slots=True)
class RunLimits:
    """Of one run. ``add_*`` take what a frame holds."""

    supplies: Supplies = field(default_factory=Supplies)
    kills: Kills = field(default_factory=Kills)
    failures: list[CallFailed] = field(default_factory=list)
    counts: dict[tuple[int, int, int, int], CallFailed] = field(default_factory=dict)
    """The latest by (driver's pid, pid, errno, dev)."""
    bus_errors: list[ProcessEvent] = field(default_factory=list)
    descriptors: dict[int, DescriptorSample] = field(default_factory=dict)
    shared: SharedSample | None = None
    spaces: dict[str, SpaceSample] = field(default_factory=dict)
    orphans: tuple[OrphanSample, ...] = ()
    gpus: dict[int, RankGpus] = field(default_factory=dict)  # by the driver's pid
    gpu_faults: list[GpuFault] = field(default_factory=list)  # of all GPUs
    _further: FailureSums = field(default_factory=FailureSums)  # those that are no longer in `counts`
    _roles: dict[tuple[int, str], RoleMemory] = field(default_factory=dict)
    _judged_ns: int = 0
    _stirred: bool = False
    _refused: bool = False  # the GPU's memory: whether a step follows decides what that means

    # ---- feeding ----

    def add_failure(self, event: CallFailed, driver: int) -> None:
        """``driver``: the process of its rank."""
        key = (driver, event.pid, event.errno, event.dev)
        self._further.take_back(event)
        for of, gone in renew(self.counts, {key: replace(event, path=event.path[: len(SHM)])}, COUNTS):
            self._further.add(gone, (of[0], self._runs_out(gone)), COUNTS)
        self.failures.append(event)
        if len(self.failures) > FAILURES:  # the first ones and the last ones tell most
            del self.failures[FAILURES // 2]
        self._refused = self._refused or event.call == gpu_memory.CALL
        self._stirred = True

    def hand_over(self, rank: RankState) -> None:
        """Failures of its processes that were taken for another rank's, because this one was not known yet."""
        for key in [key for key in self.counts if rank.lives.workers.owns(key[1])]:
            self.counts[rank.seen.pid, key[1], key[2], key[3]] = self.counts.pop(key)

    def add_end(self) -> None:
        """A driver has ended: what failed last may be why."""
        self._stirred = self._stirred or bool(self.failures)

    def add_victim(self, event: ProcessEvent, rank: RankState) -> None:
        self.kills.add_victim(event, rank.memory.owned(), self.supplies)
        self._stirred = True

    def add_oom(self, line: OomLogged) -> None:
        self._stirred = self.kills.add_line(line, self.supplies) or self._stirred

    def add_spaces(self, found: dict[str, SpaceSample]) -> None:
        renew(self.spaces, found, SPACES)
        self._stirred = self._stirred or bool(found)

    def add_bus_error(self, event: ProcessEvent) -> None:
        self.bus_errors.append(event)
        del self.bus_errors[:-BUS_ERRORS]
        self._stirred = True

    def add_gpus(self, rank: RankState, samples: Sequence[GpuSample], now_ns: int) -> None:
        gpus = self.gpus.setdefault(rank.seen.pid, RankGpus())
        for sample in samples:
            gpus.add_sample(sample, rank)
            if sample.uuid in gpus.index and (memory := memory_of(sample)) is not None:
                self.supplies.add_limit(memory, now_ns)
        gpus.settle(rank, now_ns)
        gpus.give_back(rank, now_ns)

    def end_gpus(self, rank: RankState) -> None:
        if gpus := self.gpus.get(rank.seen.pid):
            gpus.end(rank)

    def add_gpu_faults(self, faults: Sequence[GpuFault]) -> None:
        """What broke in any GPU of the host while the run was there."""
        self.gpu_faults += faults
        self._stirred = self._stirred or bool(faults)

    def add_orphans(self, found: Sequence[OrphanSample], drivers: Iterable[int]) -> None:
        known = set(drivers)
        mine = tuple(orphan for orphan in found if orphan.trainer in known)
        self._stirred = self._stirred or mine != self.orphans
        self.orphans = mine

    def add_processes(self, rank: RankState, at_ns: int) -> None:
        """Memory by role, after the samples of a frame."""
        for role in ROLES:
            held = [p for p in rank.memory.owned() if p.role == role]
            if held:
                self._roles.setdefault((rank.seen.pid, role), RoleMemory()).add(at_ns / NS, held)

    def forget_all_but(self, drivers: Collection[int]) -> None:
        """Forget what is kept by driver of those that have made room for others."""
        if len(self._roles) + len(self._further.sums) + len(self.gpus) > OF_DRIVER * len(drivers):
            self._roles = {key: one for key, one in self._roles.items() if key[0] in drivers}
            self._further.forget_all_but(drivers)
            self.gpus = {pid: one for pid, one in self.gpus.items() if pid in drivers}

    # ---- judging ----

    def judge(self, ranks: Sequence[RankState], now_ns: int, *, over: bool = False) -> bool:
        """Check the limits of each rank; returns whether something new has happened. ``over``: the run is, and what
        came last may be why."""
        pause_ns = EACH_RANK_NS * len(ranks) if self._stirred else SOON_NS if self.supplies.hasty else JUDGE_NS
        if now_ns - self._judged_ns < pause_ns and not (over and self._stirred):
            return False
        self._judged_ns = now_ns
        stepped = [rank.progress.first_boundary_ns / NS for rank in ranks]
        self.supplies.forecast(now_ns, max(stepped) if stepped and all(stepped) else None)
        self.kills.settle(self.supplies)
        concerned = [rank for rank in ranks if self._concerns(rank)]
        news = [self._check(rank, now_ns) for rank in concerned]
        self._stirred = False
        return any(news)

    def _check(self, rank: RankState, now_ns: int) -> bool:
        situation = self.situation(rank, now_ns)
        return rank.notices.update((notice for check in CHECKS for notice in check(situation)), now_ns)

    def _concerns(self, rank: RankState) -> bool:
        open_ = any(not notice.happened for notice in rank.notices.told.values())
        quiet = not (self.supplies.forecasts or self._stirred or open_ or self.spaces or self.orphans or self._refused)
        return not quiet or bool(self.shared and self.shared.leaks)

    def situation(self, rank: RankState, now_ns: int) -> Situation:
        workers, supplies, boundary = rank.lives.workers, self.supplies, rank.progress.boundary
        saves = rank.files.saves
        owned = {pid for pid in (*rank.memory.processes, *self.descriptors) if rank.known(pid)}
        gpus = self.gpus.get(rank.seen.pid)
        latest = {key: one for key, one in supplies.latest.items() if _is_of(key, rank, gpus)}
        forecasts = {key: found for key, found in supplies.forecasts.items() if key in latest}
        roles = ((role, self._roles.get((rank.seen.pid, role))) for role in ROLES)
        return Situation(
            now_ns=now_ns,
            driver=rank.seen.pid,
            processes=rank.memory.owned(),
            roles={
                **{p.pid: p.role for p in rank.memory.processes.values()},
                **{pid: life.role for pid, life in workers.live.items()},
                **{death.pid: "worker" for death in workers.deaths},
            },
            limits=KnownLimits(latest, forecasts),
            growth=[memory.growth(role) for role, memory in roles if memory is not None and memory.processes],
            failures=[f for f in self.failures if rank.known(f.pid)],
            stepped_ns=boundary.at_ns if boundary is not None else 0,
            bus_errors=[e for e in self.bus_errors if rank.known(e.pid)],
            victims=[v for v in self.kills.victims if rank.known(v.event.pid)],
            descriptors={pid: kinds for pid, kinds in self.descriptors.items() if pid in owned},
            shared=self.shared,
            spaces=self.spaces,
            saves=list(zip(saves.checkpoints(), saves.numbers())) if self.spaces or self.failures else (),
            gpu_faults=faults_of(gpus, self.gpu_faults),
            gpu_holders=gpus.holders if gpus is not None else {},
            orphans=[o for o in self.orphans if o.trainer == rank.seen.pid],
            workers=workers.count,
            shm_per_batch=rank.memory.batch_bytes.mean,
        )

    # ---- figures ----

    def eta(self, kind: str, rank: RankState) -> float | None:
        """Seconds until the first limit of a kind is reached; None: not in sight."""
        mine = [
            found.eta_seconds
            for (of, _, pid), found in self.supplies.forecasts.items()
            if of == kind and (not pid or rank.lives.workers.owns(pid))
        ]
        return min(mine, default=None)

    def fd_errors(self, rank: RankState) -> dict[str, int]:
        """Failures for want of descriptors, by errno."""
        return {name: count for name, count in self._failed(rank).items() if name in DESCRIPTOR_ERRORS.values()}

    def shm_errors(self, rank: RankState) -> int:
        """Failures for want of room in shared memory."""
        failed = self._failed(rank)[SHM]
        return failed + sum(1 for notice in rank.notices.told.values() if notice.key == "shm-error" and not failed)

    def _failed(self, rank: RankState) -> Counter[str]:
        """Failures by what ran out."""
        driver = rank.seen.pid
        found = self._further.of(driver)
        for (of, *_), latest in self.counts.items():
            if of == driver:
                found[self._runs_out(latest)] += latest.count
        return found

    def _runs_out(self, failure: CallFailed) -> str:
        """The errno's name for want of descriptors, ``SHM`` for want of shared memory; "" something else."""
        return DESCRIPTOR_ERRORS.get(failure.errno, SHM if self._on_shm(failure) else "")

    def keeps_from_sending(self, failure: CallFailed) -> bool:
        """Whether a process that failed so could not send a batch: it lacked a descriptor, or room in shared memory."""
        return failure.errno in DESCRIPTOR_ERRORS or self._on_shm(failure)

    def _on_shm(self, failure: CallFailed) -> bool:
        places = {place for kind, place, _ in self.supplies.latest if kind == "shm"}
        return failure.errno == shm_exhaustion.ENOSPC and on_shm(failure, places)


def _is_of(key: Key, rank: RankState, gpus: RankGpus | None) -> bool:
    kind, place, pid = key
    if kind == "gpu":
        return gpus is not None and place in gpus.index
    return kind != "fds" or rank.lives.workers.owns(pid)


def renew(kept: dict[K, V], found: dict[K, V], most: int) -> list[tuple[K, V]]:
    """Take in what was found; those beyond the latest ``most`` are taken out and come back."""
    for key, one in found.items():
        kept.pop(key, None)
        kept[key] = one
    return [(key, kept.pop(key)) for key in list(islice(kept, max(0, len(kept) - most)))]
