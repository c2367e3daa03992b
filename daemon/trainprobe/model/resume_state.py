"""The state of a rank that a later daemon needs to continue after this one was killed."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass
from trainprobe.model.goodput import Goodput
from trainprobe.model.report import Rank


@dataclass(frozen=True, slots=True)
class KeptClock:
    mode: str
    name: str
    group: tuple[int, ...]
    place: int
    kinds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptRank:
    """A driver, and what its ordinary step is. Times are CLOCK_MONOTONIC: they hold until the host boots again."""

    pid: int
    started_ns: int  # of the process
    tid: int
    clock: KeptClock
    ordinary_ns: int  # the median step
    ordinary_cells: tuple[int, ...]  # ns, the mean step
    ordinary_pool: tuple[int, ...]
    ordinary_fetches: int
    ordinary_backwards: int
    stalled_from_ns: int = 0  # begin of the step whose stall is open; 0: none is
    cpu_ns: int = 0  # CPU time that the driver had taken when this was noted, while a stall is open


@dataclass(frozen=True, slots=True)
class ResumedRank:
    """A rank of a run that an earlier process watched is found again."""

    pid: int
    kept: KeptRank | None  # None: it had no baseline yet
    same_step: bool  # it has made no step since: the stall that was open goes on


@dataclass(frozen=True, slots=True)
class ResumedRun:
    """A run that an earlier process watched goes on."""

    run: str
    at_ns: int
    started: float  # UNIX seconds
    told: tuple[Rank, ...]  # as last reported: figures of everything until then
    ranks: tuple[ResumedRank, ...]


@dataclass(frozen=True, slots=True)
class ResumedJob:
    """The account of a job until its latest attempt that has ended, which an earlier process watched."""

    job: str
    run: str  # that attempt
    goodput: Goodput
    at_ns: int = 0  # before all that is seen
    user: str = ""  # whose
