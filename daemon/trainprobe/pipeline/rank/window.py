"""The only place that makes a rule's ``Window``, from what the states of a rank hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainprobe.causes.base import BlockedWorkers, Feeder, Renewals, Unseen, Window, WorkerStarts, WrittenLog
from trainprobe.causes.waiting import MAKING
from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.host.gpu_speed import Slowed
from trainprobe.derive.python.stacks import asks_iterator
from trainprobe.derive.steps.interval import Files
from trainprobe.derive.steps.late_step import LateStepObservations
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Phase, State
from trainprobe.model.cells import COMPUTING
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import GpuMemoryCalls, StackSeen
from trainprobe.model.moment import NS
from trainprobe.model.sample import RivalSample
from trainprobe.pipeline.rank.state import RankState

OPEN = Unseen("open")  # only marks carry this counter, and the open step has none yet
WHOLE_RUN = Unseen("whole_run")  # ordinary steps are known by their sums: this belongs to one moment of one step
ONE_STEP = Unseen("one_step")  # what was slow over the whole run is no evidence about one step
NO_MARKS = Unseen("no_marks")  # only marks carry this, and the rank has none
NO_STEPS = Unseen("no_steps")  # workers start at any time: without steps, that they do explains no wait
NO_HOST = Unseen("no_host")  # the host has not been sampled yet
SLOWEST = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """A part of a driver's time, as its ledger has it. Times in ns."""

    start_ns: int
    end_ns: int
    baseline_ns: float
    excess: Mapping[Item, float]
    items: Mapping[Item, int]
    pool: Sequence[float]
    files: Files = ()
    extra_fetches: float = 0.0
    churn: GpuMemoryCalls | Unseen = OPEN
    swap_faults: int | Unseen | None = OPEN
    collected_ns: int = 0
    taken_ns: int = 0


def window_of(rank: RankState, part: Measured) -> Window:
    start, end, saves = part.start_ns, part.end_ns, rank.files.saves
    baseline, workers, around = rank.progress.baseline, rank.lives.workers, rank.surroundings
    rivals, batch = around.devices.rivals_at(start), baseline.batch()
    return Window(
        *(start, end, part.baseline_ns, part.excess, part.items),
        rank.wait_context(),
        rank.policy,
        driver_pid=rank.seen.pid,
        driver_tid=rank.tid,
        pool=part.pool,
        usual=baseline.pool(),
        extra_fetches=part.extra_fetches,
        batch=batch,
        fetches_per_backward=batch.per_backward,
        workers=rank.loader_workers,
        starts=_starts(rank, part),
        evaluators=rank.phases.evaluators,
        loop=rank.ordinary.lines.loop,
        usual_evaluation_ns=rank.phases.usual_ns(Phase.EVALUATION),
        usual_no_grad_ns=rank.phases.usual_no_grad_ns(),
        usual_outside_ns=rank.phases.usual_outside_ns(),
        usual_quiet_ns=rank.phases.usual_quiet_ns(),
        usual_ahead=rank.files.saving_steps.ahead_per_byte,
        compilers=workers.compilers_in(start, end),
        compile_ns=sum(b - a for a, b in workers.compiling(start, end)),
        saves=saves.being_written(start, end),
        savers={s.tid: s.path for s in saves.checkpoints() if s.key[0] == rank.seen.pid and s.tid != rank.tid},
        removals=saves.removed(start, end),
        logs=_logs(part),
        files=saves.touched(rank.seen.pid, start, end, rank.open.late.files),
        slow_files=ONE_STEP,
        deaths=[d for d in rank.lives.deaths if start - rank.policy.death_stalls_ns <= d.at_ns <= end],
        unsent=[one for one in rank.lives.unsent if start - rank.policy.death_stalls_ns <= one.at_ns <= end],
        child_command=workers.child_command_in(start, end),
        threads=list(rank.open.worker_samples.values()),
        stack=rank.open.stack.frames if rank.open.stack is not None else (),
        late=rank.open.late,
        python_threads=rank.open.python_threads,
        replicas=rank.ordinary.lines.replicas,
        stopper=rank.lives.stopper_in(start, end),
        swap_faults=part.swap_faults,
        collected_ns=part.collected_ns,
        taken_ns=part.taken_ns,
        cpus=around.devices.cpus or NO_HOST,
        devices=around.devices,
        rivals=rivals,
        own=rank.pids | around.company.pids | _known(rank, rivals),
        stolen=around.devices.stolen,
        quota=around.quota.over(start, end),
        io_limits=around.quota.io_limits,
        churn=part.churn,
        slowed=around.gpu_pace.over(start, end),
        servers=rank.open.servers,
        fetch_bytes=rank.memory.batch_bytes.mean,
        restored=rank.files.restored_in(start, end),
        others_late_ns=around.company.others_late_ns(rank.seen.pid, start, end),
        renewals=_renewals(rank),
        polls=_polls(rank.open.late.stacks),
    )


def _logs(part: Measured) -> Sequence[WrittenLog]:
    written = ((use, path) for use, of, path in part.files if of == FileClass.LOG)
    return [WrittenLog(path, use.io_ns, use.bytes, use.calls, use.gap_ns) for use, path in written]


def _starts(rank: RankState, part: Measured) -> WorkerStarts:
    workers, start, end, usual = rank.lives.workers, part.start_ns, part.end_ns, rank.progress.baseline.pool()
    started = workers.starts_in(start, end)
    return WorkerStarts(
        started,
        first=workers.started == started,
        due=rank.progress.first_due,
        renewed_ns=workers.renewed_ns(start, end) if part.churn is not OPEN else 0,  # an open one's may evaluate
        since_ns=workers.since_start_ns(start, end),
        usual_ns=(rank.lives.startup.workers or 0.0) * NS,
        starting_ns=workers.starting_ns(start, end),
        batch_ns=sum(usual[leaf] for leaf in MAKING) / max(1.0, rank.progress.baseline.fetches()),
    )


def _polls(stacks: Sequence[StackSeen]) -> bool:
    waits = [one.frames for one in stacks if one.frames and not one.running]
    return bool(waits) and all(map(asks_iterator, waits))


def _renewals(rank: RankState) -> Renewals | None:
    seen, workers = rank.lives.renewed, rank.lives.workers
    if not seen.workers:
        return None
    return Renewals(
        *(seen.workers, seen.times, seen.fetches, seen.beyond_ns, seen.pool),
        spawned=2 * workers.spawned > workers.started,
        stacks=rank.ordinary.of_workers.taken,
        usual=2 * seen.steps > rank.ordinary.count,
    )


def _known(rank: RankState, rivals: Sequence[RivalSample]) -> set[int]:
    """The rank's own of them: some may have ended meanwhile."""
    return {rival.pid for rival in rivals if rank.known(rival.pid)}


def window_of_second(rank: RankState, part: Measured) -> Window:
    """What there is to judge a second by, where nothing marks steps."""
    return replace(window_of(rank, part), starts=NO_STEPS, logs=NO_MARKS, threads=NO_MARKS)


def ordinary_fetches(rank: RankState) -> float:
    """For each backward of ordinary steps: an evaluation has fetches of its own."""
    backwards = rank.ordinary.count * rank.progress.baseline.backwards()
    return rank.ordinary.fetches / backwards if backwards else 0.0


def window_of_ordinary(rank: RankState, suspects: Mapping[Item, float], slowed: Slowed | None) -> Window:
    """What there is to judge all ordinary steps together by; ``slowed``: the GPU that lost most in them."""
    ordinary = rank.ordinary
    items = {item: int(ns) for item, ns in ordinary.items.items()}
    part = Measured(rank.start_ns, rank.open.sample_ns, 0.0, suspects, items, ordinary.pool_in_waits()[0])
    window, of = window_of(rank, part), ordinary.of_workers
    rivals = rank.surroundings.devices.rivals_at_most(rank.start_ns, lambda pid: pid in window.own or rank.known(pid))
    return replace(
        window,
        rivals=rivals,
        own=window.own | _known(rank, rivals),
        usual=WHOLE_RUN,
        starts=WHOLE_RUN,
        fetches_per_backward=ordinary_fetches(rank),
        saves=WHOLE_RUN,
        removals=WHOLE_RUN,
        logs=_all_logs(rank, suspects),
        files=WHOLE_RUN,
        slow_files=rank.files.slow.slowest(SLOWEST),
        restored="",
        others_late_ns=0,
        deaths=WHOLE_RUN,
        unsent=WHOLE_RUN,
        threads=WHOLE_RUN,
        stack=WHOLE_RUN,
        late=LateStepObservations(
            inspection=rank.open.inspected
        ),  # peer and affinity outlast the step, its waits do not
        churn=ordinary.churn,
        swap_faults=ordinary.swap_faults or None,
        feeder=_feeder(rank),
        evaluates_in_steps=ordinary.lines.evaluates,
        polls=ordinary.lines.polls,
        late_rank=_late_rank(ordinary.collectives.late),
        blocked_workers=BlockedWorkers(
            of.blocked, of.seen, rank.lives.workers.command_of_workers(), of.reading, ordinary.lines.in_queue
        ),
        beside_saves=rank.files.beside_saves.beyond(ordinary.items, ordinary.count),
        slowed=slowed,
    )


def _feeder(rank: RankState) -> Feeder | None:
    ordinary, first, last = rank.ordinary, rank.memory.cpu_from, rank.memory.cpu_last
    feeders = ordinary.lines.feeders
    thread = feeders.most()
    if thread is None:
        return None
    reads = feeders.reads_network(thread)
    if first is None or last is None or last[1] <= first[1]:
        return Feeder(thread, None, reads)
    spent = (last[0] - first[0]) / (last[1] - first[1]) * ordinary.count
    own = sum(ns for (_, _, leaf), ns in ordinary.items.items() if leaf in COMPUTING)
    return Feeder(thread, spent - own * max(1, rank.surroundings.devices.cpus), reads)


def _late_rank(late: Mapping[str, float]) -> str | None:
    """The rank that most of the waits for other ranks were for."""
    last = max(late, key=lambda name: late[name], default=None)
    return last if last is not None and late[last] > sum(late.values()) / 2 else None


def _all_logs(rank: RankState, suspects: Mapping[Item, float]) -> Sequence[WrittenLog]:
    """All logs; one with most of their time is named. Only where a log is to blame: in a storm the CPU between calls on
    logs goes into their lines."""
    if not any(state == State.LOGGING for state, _, _ in suspects):
        return ()
    logs = [*rank.files.saves.all_logs(), *rank.files.saves.logs.gone.values()]
    half = sum(log.ns for log in logs) / 2
    return [WrittenLog(log.path if log.ns > half else "", log.ns, log.bytes, log.writes) for log in logs]
