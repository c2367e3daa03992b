"""What a rule sees and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from trainprobe.derive.churn import NONE, Churn
from trainprobe.derive.devices import Devices
from trainprobe.derive.gpu_pace import Slowed
from trainprobe.derive.late import Late
from trainprobe.derive.ledger import Item, Setting
from trainprobe.derive.quota import Bitten
from trainprobe.derive.saves import Removal, Save
from trainprobe.derive.slow_files import SlowRead
from trainprobe.derive.workers import Death, Errand
from trainprobe.detect.policy import Policy
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import LEAVES, Leaf, Region
from trainprobe.model.event import ProcessEvent, ThreadSample
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.model.sample import RivalSample


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A log file written in the window."""

    path: str  # "": several, no longer told apart
    ns: int
    bytes: int
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """One step (finished, or still open) of one driver, beside what is ordinary for it. Times in ns."""

    start_ns: int
    end_ns: int
    baseline_ns: float
    excess: Mapping[Item, float]  # adds up to the excess over the baseline
    items: Mapping[Item, int]
    pool: Sequence[float]  # of all workers, beyond an ordinary step's, by leaf
    setting: Setting
    policy: Policy
    usual: Sequence[float] = ()  # of all workers in an ordinary step, by leaf
    extra_fetches: float = 0.0
    fetches_per_backward: float = 0.0
    workers: int = 0
    cpus: int = 0  # of the host; 0: not known
    workers_started: int = 0
    first_workers: bool = False  # the workers that started are the first this driver had
    first_due: int = 0  # workers that were started again in a step before and have not delivered yet
    compile_ns: int = 0
    saves: Sequence[Save] = ()
    removals: Sequence[Removal] = ()  # of checkpoints
    logs: Sequence[WrittenLog] = ()
    deaths: Sequence[Death] = ()
    errand: Errand | None = None  # the command that the training ran longest in the window
    threads: Sequence[ThreadSample] = ()  # workers, as last seen
    stack: Sequence[str] = ()
    late: Late = field(default_factory=Late)  # what was seen of it while it was late
    python_threads: frozenset[int] = frozenset()  # beside the driver, as the process calls them
    stopper: ProcessEvent | None = None  # the last signal that stopped the driver, when it came in this step
    devices: Devices | None = None
    quota: Bitten | None = None
    churn: Churn = NONE  # of the GPU's memory in the window
    slowed: Slowed | None = None  # the GPU whose clock was lowered in the window
    rivals: Sequence[RivalSample] = ()  # the busiest processes, as last seen, the run's own included
    own: frozenset[int] = frozenset()  # pids of the run's processes
    swap_faults: int | None = None  # major faults of the driver while the host read swapped memory; None: it did not
    stolen: float | None = None  # part of the host's processors that the hypervisor took
    slow_files: Sequence[SlowRead] = ()  # read slowly over the whole run, the dearest first
    driver_pid: int = 0
    driver_tid: int = 0

    @property
    def excess_ns(self) -> float:
        """How much longer than an ordinary step."""
        return sum(self.excess.values())

    def pool_ns(self, *leaves: Leaf) -> float:
        """Workers' excess in some leaves."""
        return sum(self.pool[leaf] for leaf in leaves)

    def usual_ns(self, *leaves: Leaf) -> float:
        """What workers do in some leaves in an ordinary step."""
        return sum(self.usual[leaf] for leaf in leaves) if self.usual else 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What one rule takes of a window's excess. ``cause`` None: it was the training's own work after all."""

    cause: Cause | None
    taken: Mapping[Item, float]
    summary: str = ""
    chain: Sequence[str] = ()
    evidence: Sequence[Evidence] = field(default_factory=list)

    @property
    def ns(self) -> float:
        """Nanoseconds claimed."""
        return sum(self.taken.values())


Rule: TypeAlias = Callable[[Window, Mapping[Item, float]], "Claim | None"]
"""(window, excess that nobody has claimed yet) -> claim or None."""


def take(
    left: Mapping[Item, float],
    *,
    states: Sequence[State] = (),
    leaves: Sequence[Leaf] = (),
    regions: Sequence[Region] = (),
    part: float = 1.0,
) -> dict[Item, float]:
    """A part of the unclaimed items that match (an empty filter matches all)."""
    return {
        item: ns * part
        for item, ns in left.items()
        if (not states or item[0] in states)
        and (not leaves or item[2] in leaves)
        and (not regions or item[1] in regions)
        and ns * part > 0
    }


def seconds(ns: float) -> float:
    """Nanoseconds as rounded seconds, for evidence."""
    return round(ns / NS, 4)


def no_pool() -> list[float]:
    """Workers that did nothing."""
    return [0.0] * LEAVES
