"""What the workers did while the driver waited for them, as shares of the wait by kind of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trainprobe.causes.base import Items, Unseen, Window, at_most, excess_ns, pool_ns, seconds, take_items, usual_ns
from trainprobe.derive.python.evaluators import in_batch, is_named
from trainprobe.derive.python.frameworks import is_own
from trainprobe.derive.python.stacks import waits_for_work
from trainprobe.derive.steps.ledger import Item
from trainprobe.derive.steps.untrained_batches import model_ran
from trainprobe.model.cause import State
from trainprobe.model.cells import QUEUED, Leaf, Region, ThreadState
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import ThreadSample
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

OTHER_WORK = (State.CHECKPOINT, State.LOGGING, State.STOPPED, State.NETWORK, State.SLEEP)
"""What neither an evaluation nor a compilation is made of, though it may come with it: a tracker's answer, a pause."""
STORAGE = (Leaf.FILE_READ, Leaf.FAULT)
COMPUTING = (Leaf.CPU, Leaf.READ_CPU, Leaf.FILE_GAP)
CPU = (*COMPUTING, *QUEUED)
SWAP = (Leaf.SWAP, Leaf.RECLAIM)
BLOCKED = (Leaf.SLEEP, Leaf.SOCKET, Leaf.CHILD, Leaf.OTHER, Leaf.STOPPED, Leaf.DEVICE, Leaf.FILE_SYNC, Leaf.FILE_WRITE)
FETCHING = (*BLOCKED, Leaf.LOCK, Leaf.POLL)
"""Where a worker of torch's DataLoader is blocked while it makes a batch: idle, it waits at its pipe. (Workers of other
pools are idle at a lock.)"""
MAKING = (*CPU, *STORAGE, *SWAP, *FETCHING)
"""What such a worker does to make a batch."""
_PIPES = (Leaf.PIPE_READ, Leaf.POLL)
_OF_RANKS = (
    *("distributed", "rendezvous", "fsdp", "fully_sharded", "collectives"),
    *("deepspeed", "horovod", "mpi4py", "nccl", "gloo"),
)
"""In the frames of who waits for other ranks."""
_OFTEN = 0.2
"""Of the steps."""
_WORTH_A_LOCK, _WORTH_A_WAIT, _WAITS_TOO = 0.7, 0.7, 0.2
IN_CALL: dict[Leaf, Message] = {
    Leaf.SLEEP: template("in_call.sleep", "a sleep")(),
    Leaf.SOCKET: template("in_call.socket", "a socket call")(),
    Leaf.CHILD: template("in_call.child", "waiting for a child process")(),
    Leaf.OTHER: template("in_call.other", "a system call")(),
    Leaf.STOPPED: template("in_call.stopped", "a stop (SIGSTOP, a tracer or the freezer)")(),
    Leaf.DEVICE: template("in_call.device", "a device call")(),
    Leaf.FILE_SYNC: template("in_call.fsync", "fsync")(),
    Leaf.FILE_WRITE: template("in_call.write", "write")(),
    Leaf.FILE_READ: template("in_call.read", "read")(),
    Leaf.PIPE_READ: template("in_call.pipe_read", "reading a pipe")(),
    Leaf.FAULT: template("in_call.fault", "a fault on a mapped file")(),
    Leaf.LOCK: template("in_call.lock", "futex")(),
    Leaf.POLL: template("in_call.poll", "epoll or poll")(),
}
"""Where a thread is blocked, for people."""
WAITS_FOR_WORKERS = template("data.waits_for_workers", "training thread waits for its workers")
WAITS_FOR_WORKER = template("data.waits_for_worker", "training thread waits for worker {pid}")
WAITED = template("data.waited", "training thread waited for data")
BLOCKED_BATCHES = template(
    "data_blocked.summary",
    "workers were blocked in {call} for {seconds:seconds} while the training thread waited for their batches",
)
RESTORED = template("restore.summary", "reading {path} back for {seconds:seconds}")
RESTORING = template("restore.seconds", "training thread reads a checkpoint back")
WORKER_AT_LOCK = template("lock_wait.worker", "worker {pid} waited {seconds:seconds} for the lock {path}{holder}")
WORKER_AT_SOME_LOCK = template(
    "lock_wait.worker_no_path", "worker {pid} waited {seconds:seconds} for a lock file{where}"
)
_OF_BLOCKED = frozenset({BLOCKED_BATCHES.id, WORKER_AT_LOCK.id, WORKER_AT_SOME_LOCK.id})
BLOCKED_OUTSIDE = template("data.workers_blocked", "workers blocked outside of their queues")
WORKER_BLOCKED = template("data.worker_blocked", "worker blocked")
WORKERS = template("data.workers", "workers")
SYSTEM_CALL = template("system_call", "system call")
AT_PIPES = template("data.at_pipes", "looks at workers that wait at a pipe in the code of a batch")
A_FILE = template("a_file", "a file")
A_CALL = template("a_call", "a call")
NEW_EPOCH = template("data.new_epoch", "fetches beyond an ordinary step's: the loader began anew")
OUTSIDE = template("data.outside", "of it outside of a DataLoader's fetches")
ELSEWHERE = template(
    "data_inline.advice.elsewhere",
    "read it in another thread or process, ahead of the step, or keep it in memory: no DataLoader loads this",
)
IN_FRAME = template("in_frame", ", in {frame}")
FOR_THREAD = template("data_thread.waits", "training thread waits for thread {tid}")
AT_A_LOCK = template("data_thread.waited", "training thread waited at a lock")
LOOKS = template("data_thread.looks", "looks")
"""What several rules say."""


@dataclass(frozen=True, slots=True)
class WorkerShares:
    """Shares (they add up to 1, or all are 0 when the workers did nothing beyond the ordinary)."""

    storage: float
    cpu: float
    swap: float
    blocked: float


def shares(window: Window) -> WorkerShares:
    """How the workers' time beyond an ordinary step divides; where one makes a usual batch for as long as it is waited
    for, how that does."""
    parts = _beyond(window)
    if does_no_more(window):
        if not makes_usual_batch(window):
            return WorkerShares(0.0, 0.0, 0.0, 0.0)
        parts = [max(0.0, pool_ns(window, *leaves) + usual_ns(window, *leaves)) for leaves in (STORAGE, CPU, SWAP)]
        parts.append(0.0)
    return WorkerShares(*(part / sum(parts) for part in parts))


def does_no_more(window: Window) -> bool:
    """Whether workers did so little beyond an ordinary step that it explains no wait."""
    total = sum(_beyond(window))
    return total < 0.05 * excess_ns(window) or total <= 0


def _beyond(window: Window) -> list[float]:
    return [max(0.0, pool_ns(window, *leaves)) for leaves in (STORAGE, CPU, SWAP, BLOCKED)]


def outside(window: Window, taken: Items) -> list[Evidence]:
    """Where the driver's own loading is in no fetch, mostly: no loader has to do with it."""
    own = (State.DATA_INLINE, State.FAULT_IO)
    spent = sum(ns for (state, region, _), ns in taken.items() if region != Region.FETCH and state in own)
    mostly = spent > 0.5 * sum(taken.values())
    return [Evidence.of(OUTSIDE(), seconds(spent), "s", window.driver_pid)] if mostly else []


def makes_usual_batch(window: Window) -> bool:
    """Whether a worker was seen to make a batch, and all made no more than usual, but for as long as the driver waited:
    of a data set that divides itself, one may have batches left when the others have none. Not where a stack shows
    another worker blocked in the code of its batch."""
    late = window.late
    if late.busy is None and (late.worker is None or late.worker.leaf not in STORAGE):
        return False
    if at_pipe(window) is not None:
        return False
    made = sum(pool_ns(window, *leaves) + usual_ns(window, *leaves) for leaves in (STORAGE, CPU, SWAP))
    return made > 0 and made >= _WORTH_A_WAIT * sum(
        ns for (state, _, _), ns in window.excess.items() if state == State.DATA_WAIT
    )


def at_pipe(window: Window) -> ThreadSample | None:
    """The worker that waits for a pipe, as an idle one does, but in the code that makes its batch, as a stack shows."""
    waits = (one for one in window.threads if one.leaf in _PIPES and window.end_ns - one.since_ns >= NS)
    return next((one for one in waits if (stack := window.late.stack_of(one.pid)) and not waits_for_work(stack)), None)


def waited(window: Window, left: Items, part: float = 1.0) -> dict[Item, float]:
    """The driver's wait for its workers. A pool of processes (concurrent.futures, multiprocessing.Pool) answers through
    a thread of the driver's process, for which the driver waits at a lock: such a lock counts where workers did as much
    meanwhile, beyond the ordinary; so does a sleep where stacks show that its loader asks again and again whether a
    batch is there. Where a DataLoader is seen to fetch, its own waits are known, and a lock is none."""
    states = [State.DATA_WAIT]
    if window.context.workers and not window.fetches_per_backward:
        worked = max(0.0, pool_ns(window, *STORAGE, *CPU, *SWAP, *BLOCKED))
        for state in (State.LOCK, State.SLEEP) if window.polls else (State.LOCK,):
            spent = sum(ns for (of, _, _), ns in window.excess.items() if of == state)
            states += [state] if 0 < _WORTH_A_LOCK * spent <= worked else []
    return take_items(left, states=states, part=part)


def asks_no_rank(window: Window) -> bool:
    """Whether stacks of waits were taken, and none is in a process group or its store, by which ranks meet."""
    stacks = [stack.frames for stack in window.late.stacks if stack.frames and not stack.running]
    return bool(stacks) and not any(name in frame for frames in stacks for frame in frames for name in _OF_RANKS)


def asks_ranks(window: Window) -> bool:
    """Whether stacks were taken, and all are in a library's process group or its store, and in no model. (A script of
    the user's may be called like that.)"""
    stacks = [stack.frames for stack in window.late.stacks if stack.frames]
    outside = [[frame for frame in frames if not is_own(frame)] for frames in stacks if not in_batch(frames)]
    asking = [one for one in outside if any(name in frame for frame in one for name in _OF_RANKS)]
    return bool(stacks) and len(asking) == len(stacks)


def at_lock(window: Window, left: Items) -> dict[Item, float]:
    """State `lock`, and a rank's waits at a lock outside of its backward, where stacks show that it asks no other."""
    taken = take_items(left, states=[State.LOCK])
    if asks_no_rank(window):
        outside = [region for region in Region if region != Region.BACKWARD]
        taken |= take_items(left, states=[State.COLLECTIVE], leaves=[Leaf.LOCK], regions=outside)
    return taken


def waited_for_cpu(window: Window, left: Items) -> dict[Item, float]:
    """Of the driver's wait for its workers the share in which these were on a CPU or wanted one, where the share of
    storage is taken already."""
    busy = shares(window)
    return waited(window, left, busy.cpu / (1 - busy.storage) if busy.storage < 1 else 0.0)


def without_hang(window: Window, items: Items) -> Items:
    """Without the wait for one worker of an evaluation that was blocked for a second or more at a stretch, neither in
    its queue nor in storage."""
    seen = window.late.worker
    if seen is None or seen.leaf not in BLOCKED or seen.ns < NS or not evaluates(window):
        return items
    waits = at_most(take_items(items, states=[State.DATA_WAIT]), seen.ns)
    return {item: ns - waits.get(item, 0.0) for item, ns in items.items()}


def waits_too(window: Window) -> bool:
    """Whether a good part of the excess is waits: a stack of a thread that was on no CPU shows one of those."""
    waits = sum(ns for (state, _, _), ns in window.excess.items() if state not in (State.COMPUTE, State.RUNQUEUE))
    return waits > _WAITS_TOO * sum(window.excess.values())


def evaluates(window: Window) -> bool:
    """Whether more batches were fetched than trained on, and a model ran on them, or a stack shows an evaluation by a
    function's name: most of it may be waits for its batches."""
    extra = window.extra_fetches
    if extra < window.policy.evaluation_fetches:
        return False
    named = any(is_named(seen.frames, window.loop) for seen in window.late.stacks)
    return named or model_ran(extra, window.batch, window.excess)


def new_epoch(window: Window) -> list[Evidence]:
    """Whether the loader began anew in a step: the fetch that finds the epoch's end is one more than its backwards, or
    its workers were started again. No batch was made ahead then. (Where batches are put together of several fetches,
    those of a step differ.)"""
    starts, more = window.starts, round(window.extra_fetches)
    again = not isinstance(starts, Unseen) and not starts.first and starts.count + starts.due > 0
    if isinstance(starts, Unseen):
        often = window.fetches_per_backward >= 1 + _OFTEN
        again = often or (window.renewals is not None and window.renewals.usual)
    one = 1 if window.fetches_per_backward else 2  # several steps may train on the first
    if again or (more >= one and window.fetches_per_backward <= 1):
        return [Evidence.of(NEW_EPOCH(), max(0, more), "", window.driver_pid)]
    return []


def slowest(window: Window, *leaves: Leaf) -> ThreadSample | None:
    """The worker that has been in one of the leaves longest, of those seen last."""
    inside = [t for t in window.threads if t.leaf in leaves and t.run != ThreadState.GONE]
    return min(inside, key=lambda t: t.since_ns, default=None)


def asked_again(window: Window, kind: Callable[[str], bool] = bool, spread_ns: float = 0.0) -> str:
    """The file of a kind that the driver asked for most by its name, twice at least, so long apart; "" none."""
    asked = {
        path: one.times
        for path, one in window.late.files.items()
        if one.times > 1 and kind(path) and one.last_ns - one.first_ns >= spread_ns
    }
    return max(asked, key=lambda path: asked[path], default="")


def for_blocked_workers(summary: Message | None) -> bool:
    """Whether a stall is told as a wait for blocked workers: their stacks explain it."""
    return summary is not None and summary.id in _OF_BLOCKED


def user_thread(window: Window, *, locked: bool = False) -> tuple[str, int]:
    """Where the one other thread was that runs the user's own code, and its id as the process has it; "" and 0 where
    there are several: a driver at a lock waits for some thread, and of several nobody knows for which. ``locked``: of
    those that every look found at a lock."""
    seen: dict[int, list[str]] = {}
    for one in (one for stack in window.late.stacks for one in stack.others if is_own(one.frame)):
        seen.setdefault(one.own_tid, []).append(one.frame)
    for thread in window.late.beside.values() if locked else ():  # looks leave out who waits for a lock
        seen.pop(thread.own_tid, None)
    if len(seen) != 1:
        return "", 0
    ((own_tid, frames),) = seen.items()
    return Counter(frames).most_common(1)[0][0], own_tid
