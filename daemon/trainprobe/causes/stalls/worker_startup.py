"""Workers are started again at the edge of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainprobe.advise.frameworks import Subject, name_of
from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, no_setting
from trainprobe.causes.base import (
    Claim,
    Items,
    Renewals,
    Window,
    at_most,
    pool_ns,
    seconds,
    take_items,
    up_to,
    usual_ns,
)
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import BLOCKED, CPU, MAKING, STORAGE, SWAP, WAITED, evaluates, without_hang
from trainprobe.causes.writing import without_queue_of_saves
from trainprobe.derive.python.frameworks import is_own, library
from trainprobe.derive.python.stacks import inside_loop
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

SUMMARY = template(
    "worker_startup.summary",
    "{workers:# loader worker|# loader workers} started again, {seconds:seconds} until they made batches",
)
PROCESSES = template(
    "worker_startup.processes",
    "the training started processes of its own: {processes}, {seconds:seconds} until it went on",
)
NEXT_BATCH = template(
    "worker_startup.next_batch", "{seconds:seconds} until the first batch of a loader worker that was started again"
)
STARTS_WORKERS = template("worker_startup.starts_workers", "training thread starts workers and waits for them")
STARTS_PROCESSES = template("worker_startup.starts_processes", "training thread starts processes")
WORKERS_STARTED = template("worker_startup.workers_started", "workers started in the step")
PROCESSES_STARTED = template("worker_startup.processes_started", "processes started in the step")
WORKERS_DUE = template("worker_startup.workers_due", "workers whose first batch was due")
EPOCH_SECONDS = template("worker_startup.epoch_seconds", "time lost at the edge of the epoch")
PROCESSES_SECONDS = template("worker_startup.processes_seconds", "time lost while they started")
_FETCHED = 0.1
"""A DataLoader's workers are waited for in its fetch, so much of the time at least."""
_FORK_NS = NS // 20
"""What the training does outside of the fetch to start one of them, at most."""
_SLOWER_NS = 0.1 * NS
"""Beyond the run's first start: a start that takes no longer is one."""
_LOADERS = ("dataloader.py", "fetch.py")
"""Files of torch's loader, between its loop and the data set."""
_ITERATORS = ("__iter__", "__next__")
_STARTING = "popen_"
"""In the names of the files in which multiprocessing starts a process: popen_fork.py and its like."""
_OWN = (State.COMPUTE, State.SLEEP)
"""What a training does by itself, unless a stack shows that it starts a process. The time of a fork is short."""
_BETWEEN = (Region.STEP, Region.NO_GRAD)
"""Where a training computes between its marks, as a sampler does that shuffles the data set."""
_WORKING = (*CPU, *STORAGE, *SWAP, *BLOCKED)
_STATES = (
    State.DATA_WAIT,
    State.DATA_INLINE,
    State.COMPUTE,
    State.OTHER,
    State.LOCK,
    State.SLEEP,
    State.RUNQUEUE,
    State.FAULT_IO,
    State.NETWORK,
)


def claim(window: Window, left: Items) -> Claim | None:
    """Everything at the edge that is not a save, a log or a stop, when loader workers were started in the step."""
    starts = window.starts
    if starts and starts.count < 1 and starts.due:
        return _next_batch(window, left, starts.due)
    count = _started_again(window)
    if not count or (window.renewals is not None and window.renewals.usual):  # an ordinary step has a start, too
        return None
    taken = _since_start(window, take_items(without_hang(window, without_queue_of_saves(window, left)), states=_STATES))
    if not _in_loader(taken):
        return None
    taken = _without_first_batch(window, taken)
    return _claim(
        window,
        taken,
        lambda told: SUMMARY(workers=count, seconds=told),
        Evidence.of(WORKERS_STARTED(), count, "", window.driver_pid),
        EPOCH_SECONDS(),
    )


def claim_usual(window: Window, left: Items) -> Claim | None:
    """Of ordinary steps, where an epoch takes one of them or a few: what they wait in fetches, without what the new
    workers worked on their first batches."""
    renewals = window.renewals
    if renewals is None:
        return None
    waits = take_items(left, states=[State.DATA_WAIT], regions=[Region.FETCH])
    taken = at_most(waits, renewals.waits_ns - renewals.times * _usual_first_batch_ns(renewals))
    if not taken:
        return None
    workers = Evidence.of(WORKERS_STARTED(), round(renewals.workers / renewals.times), "", window.driver_pid)
    epoch = Evidence.of(EPOCH_SECONDS(), seconds(sum(taken.values()) / renewals.times), "s", window.driver_pid)
    told = SUMMARY(workers=renewals.workers, seconds=seconds(sum(taken.values())))
    return Claim(Cause.WORKER_STARTUP, taken, told, [STARTS_WORKERS()], [workers, epoch])


def _usual_first_batch_ns(renewals: Renewals) -> float:
    """How long the first batches of an epoch took, made at the same time as far as there are workers: what stacks show
    in the code of a batch, else what the start of a forked worker does not take."""
    worked = sum(renewals.pool[leaf] for leaf in MAKING) / renewals.times
    each = renewals.workers / renewals.times
    in_batch = sum(1 for stack in renewals.stacks if len(inside_loop(stack)) > 1)
    if renewals.stacks:
        worked *= in_batch / len(renewals.stacks)
    else:
        worked = 0.0 if renewals.spawned else max(0.0, worked - each * _FORK_NS)
    return worked / max(1.0, min(each, renewals.fetches / renewals.times - 1))


def _started_again(window: Window) -> int:
    """Processes that were started in the step; 0 also where they are the run's first ones."""
    starts = window.starts
    return 0 if not starts or starts.first else starts.count


def _since_start(window: Window, taken: dict[Item, float]) -> dict[Item, float]:
    """What came before the first of them was started is not for them, but for the end of those before, which the fetch
    waits for. A fork takes its time outside of the fetch; what is computed there behind the last one is the training's
    own: the loader asks its sampler for the first batches. Behind a single one a stack may show that it starts."""
    if not window.starts:
        return taken
    fetching = {item: ns for item, ns in taken.items() if item[1] == Region.FETCH}
    beside = {item: ns for item, ns in taken.items() if item not in fetching and item[0] is not State.SLEEP}
    since = max(window.starts.since_ns - sum(fetching.values()), _FORK_NS * window.starts.count)
    seen = window.starts.starting_ns > 0 or not _shows_start(window)
    starting = window.starts.starting_ns + _FORK_NS if seen else since
    beside = up_to(beside, since)
    return fetching | beside | up_to({item: ns for item, ns in beside.items() if _computes(item)}, starting)


def _computes(item: Item) -> bool:
    state, region, _ = item
    return state is State.COMPUTE and region in _BETWEEN


def _shows_start(window: Window) -> bool:
    return any(_STARTING in frame for stack in window.late.stacks for frame in stack.frames)


def _without_first_batch(window: Window, taken: dict[Item, float]) -> dict[Item, float]:
    """Workers that live on make the first batch of an epoch anew, too: the queue ends with the one before. A start that
    takes much longer than the run's first one is that, and then a batch that its workers work on."""
    fetching = sum(ns for (_, region, _), ns in taken.items() if region == Region.FETCH)
    start = max(0.0, fetching - _first_batch_ns(window))
    usual = window.starts.usual_ns if window.starts else 0.0
    longest = max(2 * usual, usual + _SLOWER_NS)
    if usual and start > longest and pool_ns(window, *_WORKING) >= (fetching - longest) / 2:
        start = longest
    part = start / fetching if fetching else 0.0
    return {item: ns * part if item[1] == Region.FETCH else ns for item, ns in taken.items()}


def _first_batch_ns(window: Window) -> float:
    """How long the new workers took for their first batches: as for others, if each worked for so long. Nearly all of
    their work, where a stack shows that the data set's iterator begins: it does so in each epoch."""
    starts = window.starts
    if not starts or not starts.count:
        return 0.0
    each = (pool_ns(window, *_WORKING) + usual_ns(window, *_WORKING)) / starts.count
    usual = min(starts.batch_ns, each)
    iterates = any(map(_iterates, window.late.worker_stacks.values())) and not evaluates(window)  # there others worked
    return max(usual, each - _FORK_NS) if iterates else usual


def _iterates(stack: Sequence[str]) -> bool:
    """Whether a worker's loop has called the data set's iterator: not the user's function for the start of a worker
    (worker_init_fn), nor what is asked for a sample, which opens files once, or puts a batch together."""
    inside = inside_loop(stack)
    called = next((frame for frame in inside if is_own(frame) or library(frame)[1] not in _LOADERS), "")
    return called.partition(" (")[0].endswith(_ITERATORS)


def _since_ns(window: Window) -> float:
    return window.starts.since_ns if window.starts else 0.0


def _in_loader(taken: Items) -> bool:
    return sum(take_items(taken, regions=[Region.FETCH]).values()) >= _FETCHED * sum(taken.values())


def claim_processes(window: Window, left: Items) -> Claim | None:
    """Nothing was waited for in a DataLoader: they may be anything (a save beside the steps, a pool, environments). So
    whatever has evidence of its own comes first, and who waits for their end waits for their work."""
    count = _started_again(window)
    if not count or _in_loader(_since_start(window, take_items(window.excess, states=_STATES))):
        return None
    left = without_queue_of_saves(window, left)
    taken = {item: ns for item, ns in take_items(left, states=_STATES).items() if item[2] != Leaf.CHILD}
    if not _shows_start(window):
        own = {item: ns for item, ns in taken.items() if item[0] in _OWN}
        waits = up_to({item: ns for item, ns in taken.items() if item not in own}, _since_ns(window))
        if pool_ns(window, *CPU, *STORAGE, *BLOCKED) > sum(waits.values()) / 2:  # it waits for their work
            waits = {}
        taken = waits | up_to(own, _FORK_NS * count)
    return _claim(
        window,
        taken,
        lambda told: PROCESSES(processes=count, seconds=told),
        Evidence.of(PROCESSES_STARTED(), count, "", window.driver_pid),
        PROCESSES_SECONDS(),
        STARTS_PROCESSES(),
    )


def _next_batch(window: Window, left: Items, due: int) -> Claim | None:
    """The others of them start at the same time, and may be slower: their first batches are due in the next steps."""
    return _claim(
        window,
        take_items(left, states=[State.DATA_WAIT]),
        lambda told: NEXT_BATCH(seconds=told),
        Evidence.of(WORKERS_DUE(), due, "", window.driver_pid),
        WAITED(),
    )


def _claim(
    window: Window,
    taken: dict[Item, float],
    summary: Callable[[float], Message],
    workers: Evidence,
    lost: Message,
    chain: Message = STARTS_WORKERS(),  # noqa: B008  a constant
) -> Claim | None:
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.WORKER_STARTUP, taken, summary(told), [chain], [workers, Evidence.of(lost, told, "s", window.driver_pid)]
    )


KEEP_PROCESSES = template(
    "worker_startup.advice.keep_processes",
    "keep the processes (a pool, a queue) instead of starting new ones: a fork copies the training's page tables",
)
KEEP_WORKERS = template(
    "worker_startup.advice.keep_workers", "{setting}=True keeps the workers between epochs of one DataLoader"
)
KEEP_WORKERS_SAVES = template(
    "worker_startup.advice.keep_workers_saves",
    "{setting}=True keeps the workers between epochs of one DataLoader; saves {each:seconds} per epoch",
)


def _advice(f: AdviceInput) -> list[Message]:
    if f.saw(PROCESSES_STARTED) or not (f.fetching or f.saw(WORKERS_STARTED)):  # they were not a DataLoader's
        return [KEEP_PROCESSES()]
    name = name_of(f.framework, Subject.PERSISTENT)
    if name is None:
        return no_setting(f)
    of_one = next((one.value for one in f.evidence if one.key == EPOCH_SECONDS.id), None)
    each = min(f.each, of_one) if isinstance(of_one, float) else f.each  # a stall may be of several short epochs
    return [KEEP_WORKERS_SAVES(setting=name, each=each) if each else KEEP_WORKERS(setting=name)]


SPEC = CauseSpec(
    "worker_startup",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="starting DataLoader workers",
    colours=("#0284c7", "#38bdf8"),
    group=groups.WORKERS,
    rules=(
        OrderedRule(claim, stall=100),
        OrderedRule(claim_usual, ordinary=55),
        OrderedRule(claim_processes, stall=245),
    ),
    advice=_advice,
    is_input=True,
)
