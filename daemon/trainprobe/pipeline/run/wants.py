"""What the judgement of a run would like to see next."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.causes import groups
from trainprobe.causes.phases.evaluation import ENOUGH
from trainprobe.causes.registry import SPECS, explained_by_worker
from trainprobe.derive.python.evaluators import is_evaluation, is_named
from trainprobe.derive.python.stacks import is_idle
from trainprobe.derive.steps.ledger import by_state
from trainprobe.derive.steps.stability import MOST_NS
from trainprobe.model.cause import State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import ThreadSample
from trainprobe.model.moment import NS
from trainprobe.model.sample import WrittenFile
from trainprobe.model.step_deadline import Armed
from trainprobe.pipeline.rank.open_step import QUIET
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.run.state import RunState

STACK_EVERY = 5 * NS
ORDINARY_STACK_EVERY = 30 * NS
UNDECIDED_EVERY_NS, UNDECIDED = NS // 4, 4
UNMARKED_NS, UNSTEPPED_NS = 10 * NS, 20 * NS
OFTEN, SELDOM, WORKERS_OFTEN = 4, 20, 6
"""After so many of a rank each second one doubles the pause, up to so many times: a stack takes 20 to 50 ms of a
processor, and later ones seldom show anything new."""
SEEMINGLY_IDLE = 4  # workers that are asked for their stacks
CROWDED, LOCKED = 0.15, 0.3
"""Part of a driver's time in the run queue, and of its steps in waits for workers."""
WAITS = frozenset({Leaf.LOCK, Leaf.POLL, Leaf.SOCKET})
"""A driver in one of these waits for another thread, whose stack explains more."""
LEFT_NS = 10 * NS
"""After a run's end until all that it left is found."""

Threads = tuple[tuple[int, int], ...]
"""(pid, tid) of each."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What the judgement would like to see next."""

    detail: bool = False  # read worker ledgers each 50-100 ms: a step is late
    stacks: Threads = ()  # threads whose Python stack would help
    inspect: Threads = ()  # drivers whose step is late, and workers at a file's lock
    rivals: bool = False  # who uses the processors: a driver waits for one
    faults: bool = False  # trace page faults: major faults rise
    looks: bool = False  # trace which files drivers ask for: one sleeps that should not
    tell: bool = False  # a stall has opened or a limit was hit: a report should not wait
    spaces: tuple[tuple[int, str], ...] = ()  # (pid, directory) whose file system's room is of interest
    files: tuple[WrittenFile, ...] = ()  # whose size is of interest
    stable_ns: int = 0  # for how long all runs have stepped evenly: the longer, the rarer sampling may be
    count: Threads = ()  # drivers whose instructions are to be counted


def armed(run: RunState) -> list[Armed]:
    return [one for rank in run.ranks if (one := rank.armed()) is not None]


def late_ranks(run: RunState, now_ns: int) -> list[RankState]:
    return [rank for rank in run.ranks if (limit := rank.limit_ns()) is not None and now_ns >= limit]


def late_threads(run: RunState, now_ns: int) -> list[tuple[int, int]]:
    """Drivers whose step is late, and the workers that they wait for where those may be at a lock on a file: what /proc
    says of them helps."""
    late = late_ranks(run, now_ns)
    workers = [
        one.pid for rank in late if (one := rank.open.late.worker) and (one.locks_file or one.leaf == Leaf.SLEEP)
    ]
    return [*((rank.seen.pid, rank.tid) for rank in late), *((pid, pid) for pid in workers)]


def stacks(runs: Sequence[RunState], now_ns: int) -> Threads:
    """Threads whose stack would help: of each run's late drivers each 5 s at most; then, now and then, of a driver in a
    run where none is late."""
    late = [(run, late_ranks(run, now_ns)) for run in runs]
    found = [pair for run, ranks in late if ranks for pair in _stacks_of_late(run, ranks, now_ns)]
    return (*found, *(pair for run, ranks in late if not ranks for pair in _ordinary_stack(run, now_ns)))


def _stacks_of_late(run: RunState, late: list[RankState], now_ns: int) -> list[tuple[int, int]]:
    fresh = [
        r for r in late if r.open.stack is None or r.open.stack.late or _undecided(r, now_ns) or _hidden(r) is not None
    ]
    if not fresh and now_ns - run.stack_ns < STACK_EVERY:
        return []
    run.stack_ns = now_ns
    return [_asked(rank) for rank in sorted(fresh or late, key=_waiting)]


def _waiting(rank: RankState) -> int:
    """How little its stack may tell: it waits (1), and for other ranks, whose work shows why (2)."""
    sample = rank.open.sample
    if sample is None or sample.leaf not in WAITS:
        return 0
    return 1 + (rank.ledger.ranks and sample.region == Region.BACKWARD)


def _undecided(rank: RankState, now_ns: int) -> bool:
    """Whether gradients are off and its few stacks show no evaluation: between its forward passes they show none. Or
    whether gradients are on (JAX has no others) and one more stack of an evaluation would be enough. Or whether they
    show nothing else, and the run's first evaluation seems to be over: whose is what follows?"""
    sample, stacks = rank.open.sample, rank.open.late.stacks
    if sample is None or not 0 < len(stacks) < UNDECIDED or now_ns - stacks[-1].at_ns < UNDECIDED_EVERY_NS:
        return False
    evaluators, loop = rank.phases.evaluators, rank.ordinary.lines.loop
    evaluates = [is_evaluation(one.frames, evaluators, loop) for one in stacks]
    if sample.region == Region.NO_GRAD:
        return not any(evaluates)
    if len(stacks) < ENOUGH and sample.region == Region.STEP and all(is_named(one.frames, loop) for one in stacks):
        return True
    first = rank.phases.usual_outside_ns() is None and sample.region == Region.STEP and sample.leaf == Leaf.CPU
    return first and all(evaluates) and _quiet_ns(rank, sample) >= UNDECIDED_EVERY_NS


def _quiet_ns(rank: RankState, sample: ThreadSample) -> int:
    """With gradients off in the open step."""
    return sum(sample.cells[place] - rank.ledger.cells[place] for place in QUIET)


def _hidden(rank: RankState) -> int | None:
    """The busy or else the blocked worker that was not asked yet, where the driver's stack shows a wait in a queue. Of
    workers that seem idle, some in turn: one may read a pipe of its own."""
    stack, late = rank.open.stack, rank.open.late
    if stack is None or not stack.frames or not is_idle(stack.frames):
        return None
    worker = late.busy if late.busy is not None or late.worker is None else late.worker.pid
    if worker is None and len(late.asked) < SEEMINGLY_IDLE:
        worker = next((pid for pid in _loader_workers(rank) if pid not in late.asked), None)
    return None if worker is None or worker in late.asked or late.stack_of(worker) else worker


def _ordinary_stack(run: RunState, now_ns: int) -> list[tuple[int, int]]:
    """Of each rank in turn; seldomer when there are some. Of the driver and of a worker that it waits for in turn, and
    soon of the first ones: they name the code of a run that workers slow in each step."""
    some = any(rank.stepped for rank in run.ranks)  # else the others are launchers
    stepping = [rank for rank in run.ranks.live if rank.stepped or not some if _goes_on(rank, now_ns)]
    if not stepping:
        return []
    rank = min(stepping, key=lambda r: r.ordinary.lines.samples)
    samples, of_workers = rank.ordinary.lines.samples, rank.ordinary.of_workers.asked
    framework = rank.open.framework
    unknown = not (samples or framework.looks) or (not rank.stepped and framework.name is None and samples < OFTEN)
    if now_ns - run.stack_ns < STACK_EVERY:
        return []
    worker = _waited_worker(rank) if not unknown and of_workers < max(WORKERS_OFTEN, samples) else None
    doublings = max(0, samples + max(0, of_workers - WORKERS_OFTEN) - OFTEN + 2) // 2
    pause = UNMARKED_NS if unknown else ORDINARY_STACK_EVERY * min(1 << min(doublings, 8), SELDOM)
    if worker is not None and of_workers < WORKERS_OFTEN:
        pause = UNMARKED_NS if of_workers else STACK_EVERY
    elif samples < OFTEN and any(_waits_in_each_step(rank, one, LOCKED) for one in (State.LOCK, State.SLEEP)):
        pause = STACK_EVERY  # for a thread of its own, whose line is to be told, or for a batch
    if now_ns - run.stack_ns < pause:
        return []
    run.stack_ns = rank.ordinary.lines_ns = now_ns
    if worker is None:
        return [(rank.seen.pid, rank.tid)]
    rank.ordinary.of_workers.asked += 1
    return [(worker, worker)]


def _loader_workers(rank: RankState) -> list[int]:
    """Of the training's own loader, as far as others are known."""
    others = rank.open.unused_workers
    return [pid for pid, life in rank.lives.workers.live.items() if life.role == "worker" and pid not in others]


def _waited_worker(rank: RankState) -> int | None:
    """A worker, each in turn, where the driver waits for one now or for a part of each step; None: it does not."""
    workers = sorted(_loader_workers(rank))
    if not workers or not (_waits(rank.open.sample) or _waits_in_each_step(rank)):
        return None
    return workers[rank.ordinary.of_workers.asked % len(workers)]


def _waits(sample: ThreadSample | None) -> bool:
    return sample is not None and sample.leaf in WAITS and sample.region in (Region.FETCH, Region.STEP)


def _waits_in_each_step(rank: RankState, state: State = State.DATA_WAIT, part: float = CROWDED) -> bool:
    states = by_state(rank.progress.baseline.items()) if rank.progress.baseline.stands else {}
    return states.get(state, 0.0) >= part * sum(states.values()) > 0


def _goes_on(rank: RankState, now_ns: int) -> bool:
    """Whether its start-up is over, or may be: where nothing marks steps, after a while."""
    if rank.stepped:
        return rank.progress.baseline.stands
    return now_ns - rank.start_ns >= (UNMARKED_NS if rank.by_rhythm else UNSTEPPED_NS)


def _asked(rank: RankState) -> tuple[int, int]:
    """The thread whose stack explains more: of a blocked or busy worker that the driver waits for, once; else the
    driver's."""
    late, opened = rank.open.late, rank.stalls.open
    pid = late.worker.pid if late.worker is not None else late.busy
    if (hidden := _hidden(rank)) is not None:
        late.asked.add(hidden)
        return hidden, hidden
    if opened is None or pid is None or late.stack_of(pid):
        return rank.seen.pid, rank.tid
    if not explained_by_worker(opened.cause, opened.summary):
        return rank.seen.pid, rank.tid
    return pid, pid


def counting(run: RunState, now_ns: int) -> list[tuple[int, int]]:
    """Drivers whose instructions are to be counted until the next frame."""
    ranks = (rank for rank in run.ranks.live if rank.progress.baseline.stands)
    return [(rank.seen.pid, rank.tid) for rank in ranks if rank.ordinary.counting.wanted(now_ns)]


def crowded(run: RunState) -> bool:
    """Whether a driver waits for a processor so much that its rivals are of interest."""
    return any(rank.open.queueing >= CROWDED or rank.open.late.queued for rank in run.ranks.live)


def faulting(run: RunState, now_ns: int) -> bool:
    """Whether major faults are worth tracing: swapping is under way."""
    return any(
        rank.surroundings.swapping.by_training(now_ns)
        or (rank.stalls.open is not None and SPECS[rank.stalls.open.cause].group is groups.MEMORY)
        for rank in run.ranks.live
    )


def sleeping(run: RunState, now_ns: int) -> bool:
    """Whether a late driver sleeps, perhaps until a file is there or no longer there."""
    late = (rank.open for rank in late_ranks(run, now_ns))
    return any(one.late.files or (one.sample is not None and one.sample.leaf == Leaf.SLEEP) for one in late)


def stable_ns(run: RunState, now_ns: int) -> int:
    """For how long each rank that steps has stepped evenly; 0 while none does, and shortly after the run's end."""
    if run.end_ns is not None:
        return MOST_NS if now_ns - run.end_ns >= LEFT_NS else 0
    return min((rank.stable_ns(now_ns) for rank in run.ranks if rank.stepped), default=0)


def spaces(run: RunState) -> list[tuple[int, str]]:
    """(pid, directory) of the latest checkpoint of each rank that goes on."""
    found = []
    for rank in run.ranks.live:
        saves = rank.files.saves.checkpoints()
        if saves and "/" in saves[-1].path:
            found.append((rank.seen.pid, saves[-1].path.rpartition("/")[0]))
    return found


def logs(run: RunState) -> list[WrittenFile]:
    """The longest log files of each rank that goes on."""
    longest = ((rank.seen.pid, log) for rank in run.ranks.live for log in rank.files.longest_logs)
    return [WrittenFile(pid, log.path, *log.inode) for pid, log in longest]
