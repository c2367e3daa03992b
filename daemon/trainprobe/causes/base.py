"""What a rule about steps gets (``Window``) and returns (``Claim``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Literal, NoReturn, TypeAlias

from trainprobe.causes.policy import Policy
from trainprobe.derive.files.beside_saves import WaitsBesideSaves
from trainprobe.derive.files.save import Removal, Save
from trainprobe.derive.files.slow_files import SlowRead
from trainprobe.derive.host.devices import Devices
from trainprobe.derive.host.gpu_speed import Slowed
from trainprobe.derive.host.quota import ThrottledInterval
from trainprobe.derive.steps.late_step import LateStepObservations
from trainprobe.derive.steps.ledger import Item, WaitContext
from trainprobe.derive.steps.untrained_batches import UsualBatch
from trainprobe.derive.workers import ChildCommand, Death
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed, FileEvent, GpuMemoryCalls, ProcessEvent, PythonThread, ThreadSample
from trainprobe.model.message import Message, Template, Value
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.model.sample import IoLimitSample, RivalSample

Items: TypeAlias = Mapping[Item, float]
"""Nanoseconds by item."""


@dataclass(frozen=True, slots=True)
class WrittenLog:
    path: str  # "": several, no longer told apart
    ns: int
    bytes: int
    calls: int = 0
    gap_ns: int | None = None  # of CPU between its calls; None: not known of this log alone


@dataclass(frozen=True, slots=True)
class WorkerStarts:
    count: int
    first: bool  # they are the first that this driver had
    due: int  # were started again in a step before and have not delivered yet
    renewed_ns: int = 0  # from the start of those that replaced the step's first ones until its end; 0: none did
    since_ns: int = 0  # from the start of the step's first one until its end; of those that live then, if any do
    usual_ns: float = 0.0  # that the run's first ones took until they delivered; 0: not known
    starting_ns: int = 0  # from the begin of the first one's start to the end of the last one's; 0: a single one
    batch_ns: float = 0.0  # that an ordinary step's batch takes a worker


@dataclass(frozen=True, slots=True)
class Renewals:
    """Loader workers that were started again in ordinary steps."""

    workers: int
    times: float  # that they were started together
    fetches: int  # of the steps in which they were
    waits_ns: float  # in these fetches, beyond those of other steps
    pool: Sequence[float]  # of all workers in these steps, ns by leaf
    spawned: bool  # each imports everything again
    stacks: Sequence[Sequence[str]]  # of workers that were not idle
    usual: bool  # in most ordinary steps


@dataclass(frozen=True, slots=True)
class Unseen(Sequence[NoReturn]):
    """Evidence that nobody gathered for a window, and why. It is false and empty: a rule finds nothing in it."""

    reason: str

    def __bool__(self) -> Literal[False]:
        return False

    def __len__(self) -> int:
        return 0

    def __getitem__(self, at: object) -> NoReturn:
        raise IndexError(at)


@dataclass(frozen=True, slots=True)
class Feeder:
    """The thread that fills the queue at which the driver waits in ordinary steps. ``cpu_ns``: what threads beside the
    driver's computed in all of them, beyond what they may have computed with it; None: not known."""

    thread: PythonThread
    cpu_ns: float | None
    reads_network: bool = False  # it was mostly found at a socket


@dataclass(frozen=True, slots=True)
class BlockedWorkers:
    """Workers on no CPU in the code of a batch, while the driver waited: their stacks, of so many looks at workers."""

    stacks: Sequence[Sequence[str]]
    looks: int
    command: str  # that workers ran most; "": none
    reading: int = 0  # of the looks: from a network
    driver_in_queue: bool = False  # stacks of the driver show that it takes from a queue


@dataclass(frozen=True, slots=True)
class Window:
    """Time of one driver, beside what is ordinary for it: one step (finished, or still open), a second where nothing
    marks steps, or all ordinary steps together. Times in ns. ``pipeline.rank.window`` makes them."""

    start_ns: int
    end_ns: int
    baseline_ns: float
    excess: Items  # adds up to the excess over the baseline
    items: Mapping[Item, int]
    context: WaitContext
    policy: Policy
    driver_pid: int
    driver_tid: int
    pool: Sequence[float]  # of all workers, beyond an ordinary step's, by leaf
    usual: Sequence[float]  # of all workers in an ordinary step, by leaf
    extra_fetches: float
    batch: UsualBatch
    fetches_per_backward: float
    workers: int
    starts: WorkerStarts | Unseen
    evaluators: Collection[str]  # functions that called the model in earlier evaluations
    loop: Collection[str]  # functions that its steps are made in
    usual_evaluation_ns: float  # 0: evaluations have no usual length, or there were none
    usual_no_grad_ns: float  # of evaluations, with gradients off; 0: not known
    usual_outside_ns: float | None  # of evaluations, outside of fetches and forward passes; None: not known
    usual_quiet_ns: float  # the same of late steps with gradients off whose stacks showed no evaluation
    usual_ahead: float | None  # ns of serialising per byte before a save's first open; None: not known
    compilers: Sequence[ChildCommand]  # that ran in the window
    compile_ns: int  # of the window in which at least one ran
    saves: Sequence[Save]
    savers: Mapping[int, str]  # threads of the driver's process beside it that wrote checkpoints: the latest of each
    removals: Sequence[Removal]  # of checkpoints
    logs: Sequence[WrittenLog]
    files: Sequence[FileEvent]  # of the driver's process: the latest of each file that it opened to write in the window
    slow_files: Sequence[SlowRead]  # read slowly over the whole run, the dearest first
    deaths: Sequence[Death]
    unsent: Sequence[CallFailed]  # of workers that had no room in shared memory, or no descriptor, to send a batch
    child_command: ChildCommand | None  # the command that the training ran longest in the window
    threads: Sequence[ThreadSample]  # workers, as last seen
    stack: Sequence[str]
    late: LateStepObservations  # what was seen of it while it was late
    python_threads: frozenset[int]  # beside the driver, as the process calls them
    stopper: ProcessEvent | None  # the last signal that stopped the driver, when it came in this step
    swap_faults: int | Unseen | None  # major faults of the driver on no file; None: no swapped memory was read
    cpus: int | Unseen  # of the host
    devices: Devices
    rivals: Sequence[RivalSample]  # the busiest processes, as last seen, the run's own included
    own: frozenset[int]  # pids of the run's processes
    stolen: float | None  # part of the host's processors that the hypervisor took; None: not measured
    quota: ThrottledInterval | None  # None: not sampled around the window, or there is none
    io_limits: Sequence[IoLimitSample]  # of the run's cgroup
    churn: GpuMemoryCalls | Unseen  # of the GPU's memory in the window
    slowed: Slowed | None  # the GPU whose clock was lowered in the window
    collected_ns: int = 0  # by the garbage collector in other threads of the driver's process, in a finished step
    taken_ns: int = 0  # for so long a processor that the driver was on did not run it, in a finished step
    servers: Collection[str] = ()  # peers of sockets that earlier waits were found to be for, and no ranks
    feeder: Feeder | None = None  # of all ordinary steps
    blocked_workers: BlockedWorkers | None = None  # of all ordinary steps
    renewals: Renewals | None = None  # in all ordinary steps so far; None: there were none
    beside_saves: WaitsBesideSaves | None = None  # of all ordinary steps
    fetch_bytes: float | None = None  # in shared memory, mean; None: not told, or none is there
    restored: str = ""  # a checkpoint of the run that the driver was found reading in it; "": none was
    replicas: bool = False  # the model runs in threads of the driver's process, which the driver waits for
    others_late_ns: int = 0  # of the window, another rank was late for a reason of its own
    evaluates_in_steps: bool | None = None  # by the stacks of ordinary steps; None: too few
    polls: bool = False  # its sleeps are a loader's that asks again and again whether a batch is there, as stacks show
    late_rank: str | None = None  # of all ordinary steps: the rank that the others waited for in most of the waits


def excess_ns(window: Window) -> float:
    """How much longer than an ordinary step."""
    return sum(window.excess.values())


def pool_ns(window: Window, *leaves: Leaf) -> float:
    """Workers' excess in some leaves."""
    return sum(window.pool[leaf] for leaf in leaves) if window.pool else 0.0


def usual_ns(window: Window, *leaves: Leaf) -> float:
    """What workers do in some leaves in an ordinary step."""
    return sum(window.usual[leaf] for leaf in leaves) if window.usual else 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What one rule takes of a window's excess. ``cause`` None: it was the training's own work after all."""

    cause: Cause | None
    taken: Items
    summary: Message | None = None
    chain: Sequence[Message] = ()
    evidence: Sequence[Evidence] = field(default_factory=list)

    @property
    def ns(self) -> float:
        return sum(self.taken.values())


def claimed(
    window: Window,
    cause: Cause,
    taken: Items,
    summary: Template,
    chain: Sequence[Message],
    spent: Template,
    *evidence: Evidence,
    **values: Value,
) -> Claim:
    """A claim that says in its summary and in its first evidence (``spent``) how many ``seconds`` the driver lost."""
    told = seconds(sum(taken.values()))
    first = Evidence.of(spent(), told, "s", window.driver_pid)
    return Claim(cause, taken, summary(seconds=told, **values), chain, [first, *evidence])


Rule: TypeAlias = Callable[[Window, Items], "Claim | None"]
"""(window, excess that nobody has claimed yet) -> claim or None."""


def up_to(items: Items, ns: float, *first: Region) -> dict[Item, float]:
    """So much of the items, those of these regions first."""
    early = {item: spent for item, spent in items.items() if item[1] in first}
    spent = sum(early.values())
    if spent >= ns:
        return {item: each * ns / spent for item, each in early.items()}
    late = {item: each for item, each in items.items() if item not in early}
    part = min(1.0, (ns - spent) / sum(late.values())) if late else 0.0
    return early | {item: each * part for item, each in late.items()}


def take_items(
    left: Items,
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


def at_most(items: Items, ns: float) -> dict[Item, float]:
    """So much of the items, of each the same part."""
    total = sum(items.values())
    return take_items(items, part=min(1.0, ns / total)) if ns > 0 and total > 0 else {}


def seconds(ns: float) -> float:
    """Nanoseconds as rounded seconds, for evidence."""
    return round(ns / NS, 4)
