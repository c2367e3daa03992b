"""From a rank's fold to its part of the report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from trainprobe.advise.loader import loader
from trainprobe.advise.text import Facts, advice, worker_death
from trainprobe.derive.black_box import Second
from trainprobe.derive.ledger import by_state, flatten
from trainprobe.derive.saves import Save
from trainprobe.derive.stacks import common
from trainprobe.derive.steps import Mode
from trainprobe.derive.stretches import medians
from trainprobe.detect.rules.checkpoint import SAVED_BESIDE
from trainprobe.detect.rules.worker_startup import WORKERS_STARTED
from trainprobe.detect.waiting import CPU, FETCHING, STORAGE, SWAP
from trainprobe.model.cause import LOST, Cause, Phase, State
from trainprobe.model.cells import Leaf, Region, cell
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import (
    STALL_BUCKETS,
    Bottleneck,
    Bound,
    Checkpoint,
    Counters,
    Evidence,
    Fds,
    LogFile,
    Memory,
    OrdinaryStep,
    Period,
    PhaseSpan,
    PythonLine,
    Rank,
    Samples,
    SlowFile,
    Stall,
    Steps,
    Totals,
    Warning_,
    WorkerExit,
    Workers,
)
from trainprobe.model.sample import ProcessSample
from trainprobe.pipeline.bottlenecks import Found, bottlenecks
from trainprobe.pipeline.frozen import black_box
from trainprobe.pipeline.rank import RankFold
from trainprobe.pipeline.stalls import Entry
from trainprobe.pipeline.unsafe import unsafe_checkpoints
from trainprobe.pipeline.verdict import Losses, bound, exit_of, losses, verdict

LIST = 200
BY_GPU = "no PyTorch marks them: a step goes from one call of CUDA that recurs evenly to the next"
BY_RHYTHM = "each second's waits are held against the usual ones"
_ERRNO = {28: "ENOSPC", 122: "EDQUOT", 5: "EIO", 18: "EXDEV", 13: "EACCES", 30: "EROFS", 27: "EFBIG", 9: "EBADF"}
EXITS = ("finished", "oom_kill", "killed", "crashed", "exited")
OUTCOMES = ("complete", "error", "unsafe")
OPERATIONS = ("write", "fsync", "rename", "serialize", "other")


def rank_report(fold: RankFold, at: Moment, run: str, number: int, name: str, world: int, cpus: int) -> Rank:
    """The rank's entry as of ``at``."""
    fold.settle()
    reached = _reached(fold, at)
    wall = max(0, reached - fold.start_ns)
    found = bottlenecks(fold)
    lost = losses(fold, found)
    phases = _phases(fold, reached)
    states = _states(fold)
    total = lost.total()
    productive = max(0.0, wall - sum(phases.values()) - sum(total.values()))
    ordinary = _ordinary(fold)
    facts = _facts(fold, lost, wall, ordinary, cpus)
    entries = [entry for entry in fold.book.listed() if not entry.given_back]
    saves = fold.saves.checkpoints()
    warnings = [*_warnings(fold, at), *unsafe_checkpoints(fold, at)]
    return Rank(
        rank=number,
        world_size=world,
        pid=fold.seen.pid,
        container_pid=fold.seen.container_pid,
        name=name,
        exit=exit_of(fold),
        wall_seconds=wall / NS,
        productive_seconds=productive / NS,
        verdict=verdict(fold, lost, found, wall),
        bound=_bound(fold, lost),
        steps=_steps(fold),
        phases=_spans(fold, at, reached),
        ledger={state.value: states.get(state, 0.0) / NS for state in State},
        lost={cause.value: ns / NS for cause, ns in sorted(total.items(), key=lambda pair: -pair[1]) if ns > 0},
        stalls=[_stall(fold, entry, at, f"{run}-{name}", facts.get(entry.cause, Facts())) for entry in entries[-LIST:]],
        bottlenecks=[_bottleneck(one, facts) for one in found],
        warnings=warnings[-LIST:],
        checkpoints=[_checkpoint(fold, save, at, reached) for save in saves[-LIST:]],
        workers=_workers(fold, at),
        memory=_memory(fold),
        fds=Fds(fold.fds_peak, max((p.max_fds for p in fold.processes.values() if p.max_fds), default=None)),
        slow_files=[SlowFile(use.path, use.reads, use.ns / NS) for use in fold.slow_files.slowest()],
        python_lines=[PythonLine(frame, hits, fold.lines.samples) for frame, hits in fold.lines.top()],
        logs=[LogFile(u.path, u.bytes, u.writes, u.ns / NS, u.kind, u.size) for u in fold.saves.all_logs()[:20]],
        totals=Totals(
            fold.book.total + (1 if fold.book.opened else 0) - fold.book.given_back,
            fold.saves.total,
            fold.workers.ended,
            len(warnings),
        ),
        counters=_counters(fold, at, lost, phases),
        ordinary=ordinary,
        samples=_samples(fold, at),
    )


_DATA = (Cause.DATA_CPU, Cause.DATA_STORAGE, Cause.DATA_INLINE, Cause.WORKER_STARTUP, Cause.WORKER_HANG)


def _bound(fold: RankFold, lost: Losses) -> Bound:
    """Data's part of the training's own time: ordinary steps and stalls, without start-up and evaluation."""
    waits = sum(ns for (state, _, _), ns in fold.ordinary.items() if state in (State.DATA_WAIT, State.DATA_INLINE))
    data = waits + sum(lost.stalls.get(cause, 0.0) for cause in _DATA)
    found = bound(data, fold.ordinary_ns + sum(lost.stalls.values()), fold.clock.count)
    if fold.clock.mode == Mode.GPU and found.by != "input":
        return Bound("unknown", "no PyTorch marks tell when it waits for data")
    return found


def _reached(fold: RankFold, at: Moment) -> int:
    """Up to when the rank's time is accounted for."""
    if fold.end_ns is not None:
        return fold.end_ns
    latest = fold.latest.at_ns if fold.latest else 0
    return max(latest, fold.sample_ns) or at.monotonic_ns


def _states(fold: RankFold) -> dict[State, float]:
    out = dict(fold.ledger)
    if fold.end_ns is None and fold.sample is not None and sum(fold.sample.cells) > sum(fold.flat):
        delta = [max(0, a - b) for a, b in zip(fold.sample.cells, fold.flat)]
        live = fold.live_files()
        for state, ns in by_state(flatten(delta, [(use, of) for use, of, _ in live], fold.setting())).items():
            out[state] = out.get(state, 0.0) + ns
    elif fold.end_ns is None and fold.latest is not None:
        delta = [max(0, a - b) for a, b in zip(fold.latest.cells, fold.flat)]
        for state, ns in by_state(flatten(delta, [], fold.setting())).items():
            out[state] = out.get(state, 0.0) + ns
    return out


def _phases(fold: RankFold, reached: int) -> dict[Phase, float]:
    out = dict(fold.phases)
    if fold.end_ns is None and not fold.judged:
        phase = Phase.ATTACHING if fold.attached else Phase.STARTUP
        out[phase] = out.get(phase, 0.0) + max(0, reached - fold.start_ns)
    elif fold.live_phase is not None:
        phase, ns = fold.live_phase
        out[phase] = out.get(phase, 0.0) + ns
    return out


def _active(fold: RankFold) -> Phase:
    if fold.end_ns is not None:
        return Phase.SHUTDOWN
    if not fold.judged:
        return Phase.ATTACHING if fold.attached else Phase.STARTUP
    return fold.live_phase[0] if fold.live_phase else Phase.TRAIN


def _spans(fold: RankFold, at: Moment, reached: int) -> list[PhaseSpan]:
    out = [
        PhaseSpan(s.phase.value, at.wall_of(s.start_ns), at.wall_of(s.end_ns) if s.end_ns else None) for s in fold.spans
    ]
    if fold.end_ns is None and not fold.judged:
        out.append(PhaseSpan(_active(fold).value, at.wall_of(fold.start_ns), None))
    elif fold.live_phase is not None:
        out.append(PhaseSpan(fold.live_phase[0].value, at.wall_of(int(reached - fold.live_phase[1])), None))
    return out[-LIST:]


def _steps(fold: RankFold) -> Steps:
    count = fold.clock.provisional
    source = "gpu" if fold.clock.mode == Mode.GPU else "autograd" if count else "none"
    reason = "" if count else (fold.seen.marks or "no optimiser step or backward was seen")
    if not count and fold.rhythm.stands:
        source, reason = "rhythm", f"{reason}; {BY_RHYTHM}"
    elif source == "gpu":
        reason = BY_GPU
    steps = Steps(count, source, reason)
    if not fold.durations:
        return steps
    ordered = sorted(fold.durations)
    steps.median_seconds = median(ordered)
    steps.p99_seconds = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    if fold.boundary is not None and fold.boundary.at_ns > fold.first_boundary_ns:
        steps.per_second = (fold.clock.count - fold.clock.before - 1) / (
            (fold.boundary.at_ns - fold.first_boundary_ns) / NS
        )
    recent = sorted(list(fold.durations)[-200:])
    middle = median(recent)
    if len(recent) >= 10 and middle > 0:
        steps.variation_ratio = (recent[int(0.9 * (len(recent) - 1))] - recent[int(0.1 * (len(recent) - 1))]) / middle
    steps.drift_ratio_per_1000_steps = _drift(fold)
    return steps


def _drift(fold: RankFold) -> float | None:
    """Slope of the step's length: the difference of medians of the first and the last quarter of what is kept."""
    values = list(fold.durations)
    quarter = len(values) // 4
    if quarter < 50:
        return None
    first, last = median(values[:quarter]), median(values[-quarter:])
    return (last - first) / first / (len(values) - quarter) * 1000 if first > 0 else None


def _ordinary(fold: RankFold) -> OrdinaryStep:
    steps = fold.ordinary_steps
    if not steps:
        return OrdinaryStep()
    made = OrdinaryStep(steps, fold.ordinary_ns / steps / NS)
    made.states = {state.value: ns / steps / NS for state, ns in by_state(fold.ordinary).items() if ns > 0}
    made.fetches = fold.ordinary_fetches / steps
    fetches = fold.ordinary_fetches + fold.waited_fetches
    if fold.worker_ns > 0 and fetches:
        pool = [a + b for a, b in zip(fold.ordinary_pool, fold.waited_pool)]
        made.worker_cpu_seconds_per_batch = sum(pool[leaf] for leaf in CPU) / fetches / NS
        made.worker_storage_seconds_per_batch = sum(pool[leaf] for leaf in STORAGE) / fetches / NS
        made.worker_memory_seconds_per_batch = sum(pool[leaf] for leaf in SWAP) / fetches / NS
        made.worker_queue_seconds_per_batch = pool[Leaf.RUNQUEUE] / fetches / NS
        made.worker_blocked_seconds_per_batch = sum(pool[leaf] for leaf in FETCHING) / fetches / NS
    if fold.cpu_from and fold.cpu_last and fold.cpu_last[1] > fold.cpu_from[1]:
        made.driver_cpu_seconds = (fold.cpu_last[0] - fold.cpu_from[0]) / (fold.cpu_last[1] - fold.cpu_from[1]) / NS
    made.busy_cpus = fold.busy.cpus
    made.instructions = list(fold.counting.per_step)
    made.paces = [ns / NS for ns in fold.busy.paces_ns]
    made.stretches = medians(list(fold.ordinary_lengths))
    made.wait_stretches, made.waits = len(fold.waits.stretches), fold.waits.per_step()
    made.written_calls, made.written_bytes = fold.waits.calls(), fold.waits.bytes()
    return made


def _facts(fold: RankFold, lost: Losses, wall: float, ordinary: OrdinaryStep, cpus: int) -> dict[Cause, Facts]:
    out = {}
    step = fold.baseline.ns / NS
    total = lost.total()
    stalls = {cause.value: ns / NS for cause, ns in lost.stalls.items()}
    costs = loader(ordinary, fold.workers.peak, stalls, cpus)
    for cause, ns in total.items():
        entries = [e for e in fold.book.entries if e.cause == cause]
        largest = max(entries, key=lambda e: e.ns, default=None)
        evidence = largest.evidence if largest else []
        seen = {one.what for one in evidence}
        sync = [e.value for e in evidence if e.what == "seconds in fsync"]
        spent = largest.ns / NS if largest else 0.0
        where = common([stack for e in entries for stack in e.stacks])
        out[cause] = Facts(
            share=ns / wall if wall else 0.0,
            each=median(e.ns for e in entries) / NS if entries else 0.0,
            every=fold.book.every(cause) if fold.clock.count else None,
            step_seconds=step,
            fetching=fold.ordinary_fetches > 0,
            loader=costs,
            loader_starts=WORKERS_STARTED in seen,
            period=_period(fold, cause),
            where=where.frame if where else "",
            where_told=where.told() if where else "",
            saved_beside=SAVED_BESIDE in seen,
            sync_share=sum(v for v in sync if isinstance(v, (int, float))) / spent if spent else 0.0,
            writes_per_step=sum(u.writes for u in fold.saves.all_logs()) / max(1, fold.clock.count),
        )
    return out


def _stall(fold: RankFold, entry: Entry, at: Moment, place: str, fact: Facts) -> Stall:
    start = at.wall_of(entry.start_ns)
    return Stall(
        id=entry.kept_id or f"{place}-{int(at.wall_of(entry.id_ns) * 1000)}",
        start=start,
        end=None if entry.end_ns is None else at.wall_of(entry.end_ns),
        seconds=entry.ns / NS,
        cause=entry.cause.value,
        shares={cause.value: ns / NS for cause, ns in entry.shares.items()},
        first_step=entry.first_step,
        steps=entry.steps,
        period=Period(fact.every, fact.period) if fact.period else None,
        summary=_summary(entry, fact),
        chain=entry.chain,
        evidence=entry.evidence,
        python_stack=list(entry.stack) or None,
        advice=advice(entry.cause, fact),
        black_box=black_box(fold.frozen.get(entry.id_ns) or _live_box(fold, entry), at),
    )


def _live_box(fold: RankFold, entry: Entry) -> tuple[Second, ...]:
    """What came before a stall that is long and not over."""
    if entry.end_ns is not None or entry.ns < fold.policy.freeze_ns:
        return ()
    return fold.box.before(entry.start_ns)


def _summary(entry: Entry, fact: Facts) -> str:
    """The rule's sentence, with the Python line of all samples and the rhythm of all stalls of the cause."""
    given = f"; the GPU worked on for {entry.given_ns / NS:.2f} s more, which are not lost" if entry.given_ns else ""
    text = entry.summary
    if entry.cause == Cause.CPU_BOUND and fact.where_told and fact.where.partition("(")[0] in "".join(entry.stack):
        text = f"{entry.shares[entry.cause] / NS:.2f} s of CPU in {fact.where_told}"
    elif entry.steps > 1:
        text += f" in the longest of {entry.steps} steps"
    if not fact.period:
        return text + given
    every = f"every {fact.every} steps" if fact.every else f"every {fact.period:.0f} s"
    return f"{text}; {every}, {fact.each:.1f} s, {fact.share:.0%} of the run" + given


def _period(fold: RankFold, cause: Cause) -> float:
    """Seconds between stalls of a cause that recur by steps or by the clock; 0: they do not."""
    starts = fold.book.starts.get(cause, [])
    if fold.book.every(cause) is None and fold.book.every_ns(cause) is None:
        return 0.0
    return median(b - a for a, b in pairwise(starts)) / NS


def _bottleneck(one: Found, facts: dict[Cause, Facts]) -> Bottleneck:
    return Bottleneck(
        one.cause.value,
        one.share,
        one.ns / NS,
        one.claim.summary,
        list(one.claim.evidence),
        advice(one.cause, facts.get(one.cause, Facts())),
    )


def _warnings(fold: RankFold, at: Moment) -> list[Warning_]:
    told = fold.notices.told.values()
    explained = {notice.pid for notice in told if notice.cause == Cause.OOM_KILL and notice.happened}
    out = [
        Warning_(n.cause.value, at.wall_of(n.at_ns), n.eta_seconds, n.summary, list(n.evidence), list(n.advice))
        for n in told
    ]
    for death in fold.deaths[-LIST:]:
        if death.pid in explained:
            continue
        cause = Cause.OOM_KILL if death.reason == "oom_kill" else Cause.WORKER_DEATH
        evidence = [Evidence("worker lived", round(death.lived_ns / NS, 3), "s", death.pid)]
        if death.signal is not None:
            evidence.append(Evidence("signal", death.signal, "", death.pid))
        elif death.code is not None:
            evidence.append(Evidence("exit code", death.code, "", death.pid))
        if death.sender_pid:
            evidence.append(Evidence(f"signal sent by {death.sender_comm or 'a process'}", None, "", death.sender_pid))
        todo = advice(cause, Facts()) if cause == Cause.OOM_KILL else worker_death(death.signal, death.sender)
        out.append(Warning_(cause.value, at.wall_of(death.at_ns), None, death.told(), evidence, todo))
    return sorted(out, key=lambda warning: warning.time)[-LIST:]


def _by(fold: RankFold, save: Save) -> str:
    if save.tid in fold.saves.drivers:
        return "driver"
    return "thread" if save.key[0] == fold.seen.pid else "process"


def _checkpoint(fold: RankFold, save: Save, at: Moment, reached: int) -> Checkpoint:
    by = _by(fold, save)
    end = save.end_ns or (fold.end_ns if fold.end_ns is not None else None)
    spent = (end or reached) - save.start_ns
    own = save.write_ns + save.sync_ns + save.rename_ns + save.gap_ns + save.meta_ns
    return Checkpoint(
        path=save.path,
        start=at.wall_of(save.start_ns),
        end=at.wall_of(save.end_ns) if save.end_ns else None,
        bytes=save.bytes,
        seconds=max(0, spent) / NS,
        write_seconds=save.write_ns / NS,
        fsync_seconds=save.sync_ns / NS,
        rename_seconds=save.rename_ns / NS,
        serialize_seconds=save.gap_ns / NS,
        blocked_seconds=min(own, max(0, spent)) / NS if by == "driver" else 0.0,
        by=by,
        outcome=save.outcome,
        error=_ERRNO.get(save.errno, f"errno {save.errno}") if save.errno else None,
    )


def _workers(fold: RankFold, at: Moment) -> Workers:
    exits = [
        WorkerExit(d.pid, at.wall_of(d.at_ns), d.code, d.signal, d.reason, d.sender_pid)
        for d in fold.workers.deaths[-LIST:]
    ]
    return Workers(fold.workers.started, fold.workers.ended, fold.workers.count, exits, fold.workers.peak)


def _memory(fold: RankFold) -> Memory:
    return Memory(
        fold.summed("pss_bytes"),
        fold.pss_peak,
        fold.summed("swap_bytes"),
        fold.summed("shm_bytes"),
        fold.batch_bytes.mean,
        fold.limit_bytes,
        fold.limit_scope,
        fold.shm_peak,
        fold.worker_pss,
        fold.worker_private,
        fold.taken_peak if fold.taken_workers == fold.workers.peak else None,
        fold.others_bytes,
        None if fold.read_after_ns is None else fold.read_after_ns / NS,
    )


def _samples(fold: RankFold, at: Moment) -> Samples:
    points = fold.course.points
    return Samples(
        [at.wall_of(point.at_ns) for point in points],
        [point.pss_bytes for point in points],
        [point.swap_bytes for point in points],
        [point.workers for point in points],
        [point.gpu_utilization for point in points],
    )


def _histogram(values: list[float]) -> list[int]:
    out = [0] * (len(STALL_BUCKETS) + 1)
    for value in values:
        out[next((i for i, bound_ in enumerate(STALL_BUCKETS) if value <= bound_), len(STALL_BUCKETS))] += 1
    return out


def _counters(
    fold: RankFold,
    at: Moment,
    lost: Losses,
    phases: dict[Phase, float],
) -> Counters:
    book, opened = fold.book, fold.book.open
    closed = [ns / NS for ns in book.durations] + [e.ns / NS for e in book.entries]
    counts = {c: book.counts.get(c, 0) + (1 if book.opened and book.opened.cause == c else 0) for c in LOST}
    starts = {**book.last_start, **({book.opened.cause: book.opened.start_ns} if book.opened else {})}
    saves = fold.saves.checkpoints()
    done = [s for s in saves if s.end_ns is not None]
    by = {f"{operation}/{blocking}": 0.0 for operation in OPERATIONS for blocking in ("true", "false")}
    for key, ns in fold.saves.gone.ns.items():
        by[key] += ns / NS
    for save in done:
        for key, spent in fold.saves.seconds_by(save).items():
            by[key] += spent / NS
    last = max(done, key=lambda s: s.end_ns or 0, default=None)
    logs = fold.saves.all_logs()
    cells = fold.sample.cells if fold.sample is not None and fold.end_ns is None else fold.flat
    worst = max((p for p in fold.processes.values() if p.open_fds and p.max_fds), key=_fullness, default=None)
    kinds = ("tensorboard", "wandb", "stdout", "log")
    memory = _memory(fold)
    return Counters(
        phase_seconds={p.value: phases.get(p, 0.0) / NS for p in Phase if p != Phase.TRAIN},
        stall_seconds={c.value: lost.stalls.get(c, 0.0) / NS for c in LOST},
        stalls={c.value: n for c, n in counts.items()},
        stall_last_start={c.value: at.wall_of(ns) for c, ns in starts.items()},
        stall_active={c.value: int(opened is not None and opened.cause == c) for c in LOST},
        stall_durations=_histogram(closed),
        stall_duration_sum=sum(closed),
        step_durations=list(fold.histogram),
        step_duration_sum=fold.duration_sum,
        last_step=at.wall_of(fold.boundary.at_ns) if fold.boundary else None,
        baseline_seconds=fold.baseline.ns / NS if fold.baseline.stands else None,
        phase=_active(fold).value,
        checkpoints={o: fold.saves.gone.outcomes.get(o, 0) + sum(1 for s in done if s.outcome == o) for o in OUTCOMES},
        checkpoint_bytes=fold.saves.gone.bytes + sum(s.bytes for s in done),
        checkpoint_seconds=by,
        checkpoint_last_seconds=((last.end_ns or 0) - last.start_ns) / NS if last else None,
        checkpoint_last_bytes=last.bytes if last else None,
        log_writes={k: sum(u.writes for u in logs if u.kind == k) for k in kinds},
        log_bytes={k: sum(u.bytes for u in logs if u.kind == k) for k in kinds},
        log_file_bytes={k: size for k in kinds if (size := sum(u.size or 0 for u in logs if u.kind == k))},
        log_seconds={k: sum(u.ns for u in logs if u.kind == k) / NS for k in kinds},
        worker_exits={r: fold.workers.exits_by_reason.get(r, 0) for r in EXITS},
        open_fds=worst.open_fds if worst else None,
        max_fds=worst.max_fds if worst else None,
        pss_bytes=memory.pss_bytes,
        swap_bytes=memory.swap_bytes,
        major_faults=fold.latest.major_faults if fold.latest else 0,
        reclaim_seconds=_leaf(cells, Leaf.RECLAIM),
        throttled_seconds=_leaf(cells, Leaf.THROTTLED),
        runqueue_seconds=_leaf(cells, Leaf.RUNQUEUE),
    )


def _fullness(sample: ProcessSample) -> float:
    return (sample.open_fds or 0) / (sample.max_fds or 1)


def _leaf(cells: Sequence[int], leaf: Leaf) -> float:
    return sum(cells[cell(region, leaf)] for region in Region) / NS
