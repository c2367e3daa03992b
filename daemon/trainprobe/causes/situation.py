"""What a rule about limits gets (``Situation``) and yields (``Notice``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from trainprobe.derive.files.save import Save
from trainprobe.derive.trend.forecast import Forecast
from trainprobe.model import sample
from trainprobe.model.cause import Cause
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed, ProcessEvent
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

DRIVER = template("limit.driver", "the training (pid {pid})")
PROCESS = template("limit.process", "{role} {pid}")
FAILED = template("limit.failed", "{call} failed")
GROWTH = template("limit.growth", "growth")
GROWING_FOR = template("limit.growing_for", "seen growing for")
USED = template("limit.used", "of it used")
OF_CONTAINER = template("limit.of_container", " of container {container}")

SHM = "/dev/shm/"

Key: TypeAlias = tuple[str, str, int]
"""What has a limit: (kind, place, pid), as in LimitSample."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that the kernel killed for want of memory, and what was known right before."""

    event: ProcessEvent
    scope: str | None  # cgroup | host; None: it cannot be told
    group: str
    limit: sample.LimitSample | None  # the one that was hit
    processes: Sequence[sample.ProcessSample]  # of the rank, as last seen


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """Proportional memory of all processes of a role: now, and bytes per second over the last minutes."""

    role: str
    processes: int
    bytes: int
    per_second: float | None
    private_per_second: float | None  # of Private_Dirty: pages that stopped being shared


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Something broke in a GPU that the rank uses."""

    at_ns: int
    index: int
    uuid: str
    bus_id: str
    kind: str  # xid | ecc | lost
    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """What has a limit, as last read, and when it will be reached."""

    latest: Mapping[Key, sample.LimitSample] = field(default_factory=dict)
    forecasts: Mapping[Key, Forecast] = field(default_factory=dict)

    def coming(self, kind: str) -> list[tuple[sample.LimitSample, Forecast]]:
        """The limits of a kind that will be reached, the first one in front."""
        found = [
            (one, self.forecasts[key]) for key, one in self.latest.items() if key[0] == kind and key in self.forecasts
        ]
        return sorted(found, key=lambda pair: (pair[1].eta_seconds, pair[0].limit - pair[0].used))

    def fullest(self, kind: str) -> sample.LimitSample | None:
        return max((one for key, one in self.latest.items() if key[0] == kind), key=used_share, default=None)

    def of_process(self, kind: str, pid: int) -> sample.LimitSample | None:
        return next((one for key, one in self.latest.items() if key[0] == kind and key[2] == pid), None)


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known of one rank at a moment, as far as limits go."""

    now_ns: int
    driver: int
    processes: Sequence[sample.ProcessSample] = ()
    roles: Mapping[int, str] = field(default_factory=dict)  # of processes that are, or were, children of the driver
    limits: KnownLimits = KnownLimits()
    growth: Sequence[MemoryGrowth] = ()
    failures: Sequence[CallFailed] = ()
    stepped_ns: int = 0  # the last step began
    bus_errors: Sequence[ProcessEvent] = ()
    victims: Sequence[Victim] = ()
    descriptors: Mapping[int, sample.DescriptorSample] = field(default_factory=dict)
    shared: sample.SharedSample | None = None
    spaces: Mapping[str, sample.SpaceSample] = field(default_factory=dict)
    saves: Sequence[tuple[Save, int]] = ()  # checkpoints, with the numbers of their saves
    orphans: Sequence[sample.OrphanSample] = ()
    gpu_faults: Sequence[GpuFault] = ()
    gpu_holders: Mapping[str, Sequence[sample.GpuHolder]] = field(default_factory=dict)  # by the GPU's uuid
    workers: int = 0
    shm_per_batch: float | None = None

    def on_shm(self, failure: CallFailed) -> bool:
        """Whether a call failed on the /dev/shm of its processes."""
        return on_shm(failure, {place for kind, place, _ in self.limits.latest if kind == "shm"})

    def who(self, pid: int) -> Message:
        return DRIVER(pid=pid) if pid == self.driver else PROCESS(role=self.roles.get(pid, "process"), pid=pid)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that runs out, or that has run out. The same ``key`` later: the same thing, with newer numbers."""

    key: str
    cause: Cause
    at_ns: int
    summary: Message
    happened: bool = False  # an event; otherwise it is still to come, or a state that may pass
    eta_seconds: float | None = None
    evidence: Sequence[Evidence] = ()
    advice: Sequence[Message] = ()
    pid: int = 0  # of the process that felt it
    replaces: str = ""  # the key of one that was told and is no longer so
    settles_ns: int = 0  # for so long the numbers of something that happened may still come in


LimitRule: TypeAlias = Callable[[Situation], Iterable[Notice]]


def used_share(one: sample.LimitSample) -> float:
    return one.used / one.limit if one.limit > 0 else 0.0


def figures(one: sample.LimitSample, found: Forecast) -> dict[str, float]:
    """The values that a sentence about a limit ahead has."""
    return {"used": one.used, "limit": one.limit, "per_second": found.slope, "left": found.eta_seconds}


def on_shm(failure: CallFailed, places: Collection[str]) -> bool:
    """Whether a call failed on a /dev/shm, of these devices; another tmpfs is a file system like others."""
    if not failure.tmpfs:
        return False
    if failure.path.startswith(SHM):
        return True
    known = places and failure.dev
    return f"{failure.dev >> 20}:{failure.dev & 0xFFFFF}" in places if known else not failure.path


def whose(container: str) -> Message | None:
    """In whose mount name space a /dev/shm is; None: the host's."""
    return OF_CONTAINER(container=container[:12]) if container != "host" else None
