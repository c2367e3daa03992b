"""A rank as it stands at one moment, for the report: frozen, with sums settled and the open step taken in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainprobe.causes.policy import Policy
from trainprobe.causes.situation import Notice
from trainprobe.causes.waiting import CPU, FETCHING, STORAGE, SWAP
from trainprobe.derive.files.logs import LogUse
from trainprobe.derive.files.safety import Safety
from trainprobe.derive.files.save import Save, SaveTotals
from trainprobe.derive.memo import Memo
from trainprobe.derive.steps.black_box import BlackBoxSecond
from trainprobe.derive.steps.clock import Mode
from trainprobe.derive.steps.ledger import by_state, flatten
from trainprobe.derive.trend.downsample import medians
from trainprobe.derive.trend.resource_timeline import TimelinePoint
from trainprobe.derive.workers import Death
from trainprobe.model.cause import Cause, Phase, State
from trainprobe.model.cells import Leaf
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import ProcessEvent, RankSeen, ThreadSample
from trainprobe.model.moment import NS
from trainprobe.model.report import Fds, Framework, Memory, OrdinaryStep, PythonLine, Restore, SlowFile, Startup
from trainprobe.model.sample import MemorySample
from trainprobe.pipeline.bottlenecks import FoundBottleneck, bottlenecks, data_ns, waits
from trainprobe.pipeline.rank.lives import Sender, Sent
from trainprobe.pipeline.rank.phases import PhaseInterval
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.stalls import StallFigures

IMPORTS_NS = 2 * NS
"""So long after its start a process that makes no steps has imported what it needs."""
TOGETHER_NS = NS // 10
"""A signal to a group reaches its processes within this time."""


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The steps so far. ``known`` counts those too of which it is not decided yet whether they are steps."""

    count: int
    known: int
    before_first: int  # steps before the first boundary
    mode: Mode
    baseline_ns: float | None
    boundary_ns: int | None
    first_boundary_ns: int
    lengths: Sequence[float]  # seconds, of the latest
    histogram: Sequence[int]
    total_seconds: float
    rhythm_ns: int | None  # time judged second by second; None: nothing is judged so


@dataclass(frozen=True, slots=True)
class TimeFigures:
    start: int
    end: int | None
    reached: int  # up to here it is accounted for
    sampled: int  # the latest sample of the driver
    states: Mapping[State, float]
    phases: Mapping[Phase, float]
    active: Phase
    spans: Sequence[PhaseInterval]
    cells: Sequence[int]
    ordinary: float
    data: float  # waits for data, in ordinary steps


@dataclass(frozen=True, slots=True)
class FileFigures:
    checkpoints: Sequence[Save]
    numbers: Sequence[int]  # of the saves that they belong to
    done: Sequence[Save]  # of these the closed ones
    memo: Memo  # what is made of them
    total: int
    gone: SaveTotals  # checkpoints that have left the list
    drivers: frozenset[int]  # threads whose saves block
    saves: int  # by the driver since there was a baseline, each of one or more files
    every: int | None  # steps between those that recur
    period_ns: float  # between two of them; 0: not known
    safety: Safety
    logs: Sequence[LogUse]
    gone_logs: Sequence[LogUse]  # by kind: the sums of those that have no name any more
    slow: Sequence[SlowFile]


@dataclass(frozen=True, slots=True)
class LifeFigures:
    started: int
    ended: int
    count: int
    peak: int
    exits: Mapping[str, int]  # by reason
    worker_deaths: Sequence[Death]
    abnormal: Sequence[Death]  # but for those that a signal to the whole run brought
    exit_event: ProcessEvent | None
    signal: Sent | None  # that ended it, or will
    signals: Sequence[Sent]  # all fatal ones so far
    oom_killed: bool
    warned: int  # warnings of the rank that are kept no longer: of limits, and of deaths


@dataclass(frozen=True, slots=True)
class RankSnapshot:
    """What the report says of a rank is made of this alone."""

    seen: RankSeen
    policy: Policy
    attached: bool
    sample: ThreadSample | None
    steps: StepFigures
    time: TimeFigures
    stalls: StallFigures
    boxes: Mapping[int, Sequence[BlackBoxSecond]]  # what came before a stall, by the stall's id_ns
    bottlenecks: Sequence[FoundBottleneck]
    ordinary: OrdinaryStep
    files: FileFigures
    lives: LifeFigures
    notices: Sequence[Notice]
    memory: Memory
    course: Sequence[TimelinePoint]
    fds: Fds
    fullest: tuple[int, int] | None  # open descriptors and their limit, of the process that is next to it
    major_faults: int
    lines: Sequence[PythonLine]
    reported: float  # part of the stacks of ordinary steps that show a tracker
    worker_stacks: Sequence[tuple[str, ...]]  # of ordinary steps
    framework: Framework
    startup: Startup
    restores: Sequence[Restore]


def snapshot(rank: RankState, now_ns: int, limit: MemorySample | None) -> RankSnapshot:
    """The rank as of ``now_ns``; ``limit``: the run's memory limit."""
    rank.ledger.settle()
    rank.ordinary.settle()
    latest, processes = rank.ledger.latest, rank.memory.with_descriptors()
    used = [(p.open_fds, p.max_fds) for p in processes if p.open_fds and p.max_fds]
    lines, waited = rank.ordinary.lines, waits(rank)
    return RankSnapshot(
        seen=rank.seen,
        policy=rank.policy,
        attached=rank.attached,
        sample=rank.open.sample,
        steps=_steps(rank),
        time=_time(rank, now_ns, data_ns(waited)),
        stalls=rank.book.figures(),
        boxes=_boxes(rank),
        bottlenecks=bottlenecks(rank, waited),
        ordinary=_ordinary(rank),
        files=_files(rank),
        lives=_lives(rank),
        notices=tuple(rank.notices.told.values()),
        memory=_memory(rank, limit),
        course=tuple(rank.memory.course.points),
        fds=Fds(rank.memory.fds_peak, max((p.max_fds for p in processes if p.max_fds), default=None)),
        fullest=max(used, key=lambda pair: pair[0] / pair[1], default=None),
        major_faults=latest.major_faults if latest is not None else 0,
        lines=[PythonLine(frame, hits, lines.samples) for frame, hits in lines.top()],
        reported=lines.reported / max(1, lines.samples),
        worker_stacks=tuple(rank.ordinary.of_workers.taken),
        framework=Framework(rank.open.framework.name, rank.open.framework.version),
        startup=rank.lives.startup,
        restores=rank.lives.restores,
    )


def _steps(rank: RankState) -> StepFigures:
    progress = rank.progress
    clock, boundary = progress.clock, progress.boundary
    return StepFigures(
        clock.count,
        clock.provisional,
        clock.before,
        clock.mode,
        progress.baseline.ns if progress.baseline.stands else None,
        boundary.at_ns if boundary is not None else None,
        progress.first_boundary_ns,
        tuple(progress.lengths.recent),
        tuple(progress.lengths.histogram),
        progress.lengths.total,
        progress.wait_baseline.judged_ns if progress.wait_baseline.stands else None,
    )


def _time(rank: RankState, now_ns: int, of_data_ns: float) -> TimeFigures:
    latest, sample, ordinary = rank.ledger.latest, rank.open.sample, rank.ordinary
    reached = rank.end_ns
    if reached is None:
        reached = max(latest.at_ns if latest is not None else 0, rank.open.sample_ns) or now_ns
    phases, active, spans = dict(rank.phases.ns), Phase.TRAIN, list(rank.phases.spans)
    live = rank.phases.live
    if rank.end_ns is not None:
        active = Phase.SHUTDOWN
    elif not rank.progress.judged:
        live = rank.first_phase, max(0, reached - rank.start_ns)
    if live is not None:
        active, ns = live
        phases[active] = phases.get(active, 0.0) + ns
        spans.append(PhaseInterval(active, int(reached - ns), None, rank.progress.clock.count))
    return TimeFigures(
        rank.start_ns,
        rank.end_ns,
        reached,
        rank.open.sample_ns,
        _states(rank),
        phases,
        active,
        spans,
        sample.cells if sample is not None and rank.end_ns is None else rank.ledger.cells,
        ordinary.ns,
        of_data_ns,
    )


def _states(rank: RankState) -> dict[State, float]:
    """Up to the latest sample, or to the latest row."""
    ledger, sample = rank.ledger, rank.open.sample
    out = dict(ledger.states)
    if rank.end_ns is not None:
        return out
    fresh = sample is not None and sum(sample.cells) > sum(ledger.cells)
    seen = sample if fresh else ledger.latest
    if seen is not None:
        delta = [max(0, a - b) for a, b in zip(seen.cells, ledger.cells)]
        files = [(use, of) for use, of, _ in rank.live_files()] if fresh else []
        for state, ns in by_state(flatten(delta, files, rank.wait_context())).items():
            out[state] = out.get(state, 0.0) + ns
    return out


def _boxes(rank: RankState) -> dict[int, tuple[BlackBoxSecond, ...]]:
    """Of stalls that have ended; and of the open one, where it is long."""
    boxes, latest = dict(rank.book.frozen), rank.book.listed()[-1:]
    for entry in latest:
        if entry.end_ns is None and entry.ns >= rank.policy.freeze_ns and not boxes.get(entry.id_ns):
            boxes[entry.id_ns] = rank.stalls.box.before(entry.start_ns)
    return boxes


def _ordinary(rank: RankState) -> OrdinaryStep:
    ordinary, busy = rank.ordinary, rank.surroundings.busy
    steps, (pool, fetches) = ordinary.count, ordinary.pool_of_batches()
    if not steps:
        return OrdinaryStep()
    made = OrdinaryStep(steps, ordinary.ns / steps / NS)
    made.states = {state.value: ns / steps / NS for state, ns in by_state(ordinary.items).items() if ns > 0}
    made.fetches = ordinary.fetches / steps
    made.workers = ordinary.workers
    idle, few = _without_data(rank, made.workers or 0)
    made.workers_without_data = 0 if few else idle
    if ordinary.worker_ns > 0 and fetches and not (few or rank.lives.renewed.waited_for):  # else starts are most of it
        made.worker_cpu_seconds_per_batch = sum(pool[leaf] for leaf in CPU) / fetches / NS
        made.worker_storage_seconds_per_batch = sum(pool[leaf] for leaf in STORAGE) / fetches / NS
        made.worker_memory_seconds_per_batch = sum(pool[leaf] for leaf in SWAP) / fetches / NS
        made.worker_queue_seconds_per_batch = pool[Leaf.RUNQUEUE] / fetches / NS
        made.worker_blocked_seconds_per_batch = sum(pool[leaf] for leaf in FETCHING) / fetches / NS
    cpu_from, cpu_last = rank.memory.cpu_from, rank.memory.cpu_last
    if cpu_from and cpu_last and cpu_last[1] > cpu_from[1]:
        made.driver_cpu_seconds = (cpu_last[0] - cpu_from[0]) / (cpu_last[1] - cpu_from[1]) / NS
    made.busy_cpus = busy.cpus
    made.instructions = list(ordinary.counting.per_step)
    made.paces = [ns / NS for ns in busy.paces_ns]
    made.stretches = medians(list(ordinary.lengths))
    made.wait_stretches, made.waits = len(ordinary.waits.stretches), ordinary.waits.per_step()
    made.written_calls, made.written_bytes = ordinary.waits.calls(), ordinary.waits.bytes()
    return made


def _without_data(rank: RankState, used: int) -> tuple[int, bool]:
    """Workers that got nothing to load, and whether that is for want of batches: an epoch has fewer than workers."""
    boundary, ordinary, workers = rank.progress.boundary, rank.ordinary, rank.lives.workers
    if not used or boundary is None:
        return 0, False
    trained = (ordinary.count + ordinary.late.steps) * max(1.0, rank.progress.baseline.backwards())
    ends = ordinary.fetches + ordinary.late.fetches - trained
    ended = workers.without_data(used, boundary.at_ns)
    idle = workers.without_data(used, boundary.at_ns, rank.open.unused_workers)
    return idle, idle > ended and ends * workers.count >= trained


def _files(rank: RankState) -> FileFigures:
    saves, safety, saving = rank.files.saves, rank.files.safety, rank.files.saving_steps
    return FileFigures(
        saves.checkpoints(),
        saves.numbers(),
        saves.closed_checkpoints(),
        saves.memo,
        sum(saves.gone.outcomes.values()) + len(saves.closed_checkpoints()),
        replace(saves.gone),
        frozenset(saves.drivers),
        max(saving.count, rank.book.counts.get(Cause.CHECKPOINT, 0)),  # after the last step, too
        saving.every,
        saving.period_ns,
        replace(safety, gaps=replace(safety.gaps)),
        saves.all_logs(),
        list(saves.logs.gone.values()),
        [SlowFile(use.path, use.reads, use.ns / NS) for use in rank.files.slow.slowest()],
    )


def _lives(rank: RankState) -> LifeFigures:
    lives, workers, progress = rank.lives, rank.lives.workers, rank.progress
    boundary = progress.boundary
    since_ns = boundary.at_ns - max(2 * progress.baseline.ns, NS) if boundary is not None else 0
    signal = lives.ended_by(since_ns)
    outside = signal is not None and signal.by is not Sender.OF_THE_RUN
    until_ns = signal.event.at_ns - TOGETHER_NS if signal is not None and outside else None
    return LifeFigures(
        workers.started,
        workers.ended,
        workers.count,
        workers.peak,
        dict(workers.exits_by_reason),
        tuple(workers.deaths),
        tuple(death for death in lives.deaths if until_ns is None or death.at_ns < until_ns),
        lives.exit_event,
        signal,
        tuple(lives.signals),
        lives.oom_killed,
        lives.forgotten + rank.notices.total - len(rank.notices.told),
    )


def _memory(rank: RankState, limit: MemorySample | None) -> Memory:
    memory, read_ns = rank.memory, rank.memory.read_after_ns
    imported_ns = rank.progress.first_boundary_ns or rank.start_ns + IMPORTS_NS  # before, it is the interpreter's
    return Memory(
        memory.summed("pss_bytes"),
        memory.pss_peak if memory.read_ns >= imported_ns else None,
        memory.summed("swap_bytes"),
        memory.summed("shm_bytes"),
        memory.batch_bytes.mean,
        limit.limit_bytes if limit is not None else None,
        limit.limit_scope if limit is not None else None,
        memory.shm_peak,
        memory.worker_pss,
        memory.worker_private,
        memory.taken_peak if memory.taken_workers == memory.workers.peak else None,
        memory.others_bytes,
        None if read_ns is None else read_ns / NS,
    )
