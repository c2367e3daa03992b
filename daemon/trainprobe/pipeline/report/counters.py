"""A rank's counters, its checkpoints and its samples over time: figures without words."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_numbers import files_of_latest
from trainprobe.model import vocabulary
from trainprobe.model.cause import LOST, Cause, Phase
from trainprobe.model.cells import Leaf, Region, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import STALL_BUCKETS, Checkpoint, Counters, Samples
from trainprobe.pipeline.rank.snapshot import FileFigures, RankSnapshot
from trainprobe.pipeline.stalls import Durations, StallFigures

_ERRNO = {28: "ENOSPC", 122: "EDQUOT", 5: "EIO", 18: "EXDEV", 13: "EACCES", 30: "EROFS", 27: "EFBIG", 9: "EBADF"}

_LOST = [(cause, cause.value) for cause in LOST]


def counters(rank: RankSnapshot, at: Moment, lost: Mapping[Cause, float]) -> Counters:
    """``lost``: ns in stalls, the open one included."""
    stalls, files, steps, opened = rank.stalls, rank.files, rank.steps, rank.stalls.opened
    counts = {**stalls.counts}
    if opened is not None:
        counts[opened.cause] = counts.get(opened.cause, 0) + 1
    starts = {**stalls.last_start, **({opened.cause: opened.start_ns} if opened is not None else {})}
    logs = (*files.logs, *files.gone_logs)
    durations, saved = stalls.memo.get(_durations, stalls), files.memo.get(_saved, files)
    open_fds, max_fds = rank.fullest if rank.fullest is not None else (None, None)
    return Counters(
        phase_seconds={phase.value: rank.time.phases.get(phase, 0.0) / NS for phase in Phase if phase != Phase.TRAIN},
        stall_seconds={name: lost.get(cause, 0.0) / NS for cause, name in _LOST},
        stalls={name: counts.get(cause, 0) for cause, name in _LOST},
        stall_last_start={cause.value: at.wall_of(ns) for cause, ns in starts.items()},
        stall_active={name: int(stalls.open is not None and stalls.open.cause == cause) for cause, name in _LOST},
        stall_durations=list(durations.counts),
        stall_duration_sum=durations.seconds,
        step_durations=list(steps.histogram),
        step_duration_sum=steps.total_seconds,
        last_step=at.wall_of(steps.boundary_ns) if steps.boundary_ns is not None else None,
        baseline_seconds=steps.baseline_ns / NS if steps.baseline_ns is not None else None,
        phase=rank.time.active.value,
        checkpoints=dict(saved.outcomes),
        checkpoint_bytes=saved.bytes,
        checkpoint_seconds=dict(saved.seconds),
        checkpoint_last_seconds=saved.last_seconds,
        checkpoint_last_bytes=saved.last_bytes,
        saves=files.saves,
        save_every_steps=files.every,
        log_writes={kind: sum(use.writes for use in logs if use.kind == kind) for kind in vocabulary.LOG_KINDS},
        log_bytes={kind: sum(use.bytes for use in logs if use.kind == kind) for kind in vocabulary.LOG_KINDS},
        log_file_bytes={
            k: size for k in vocabulary.LOG_KINDS if (size := sum(use.size or 0 for use in files.logs if use.kind == k))
        },
        log_seconds={kind: sum(use.ns for use in logs if use.kind == kind) / NS for kind in vocabulary.LOG_KINDS},
        worker_exits={reason: rank.lives.exits.get(reason, 0) for reason in vocabulary.EXIT_REASONS},
        open_fds=open_fds,
        max_fds=max_fds,
        pss_bytes=rank.memory.pss_bytes,
        swap_bytes=rank.memory.swap_bytes,
        major_faults=rank.major_faults,
        reclaim_seconds=_leaf(rank.time.cells, Leaf.RECLAIM),
        throttled_seconds=_leaf(rank.time.cells, Leaf.THROTTLED),
        runqueue_seconds=_leaf(rank.time.cells, Leaf.RUNQUEUE),
    )


@dataclass(frozen=True, slots=True)
class _Saved:
    outcomes: Mapping[str, int]
    bytes: int
    seconds: Mapping[str, float]  # by "operation/blocking"
    last_seconds: float | None
    last_bytes: int | None


def _saved(files: FileFigures) -> _Saved:
    done = files.done
    outcomes = Counter([save.outcome for save in done])
    last = files_of_latest(list(zip(files.checkpoints, files.numbers)))
    return _Saved(
        {one: files.gone.outcomes.get(one, 0) + outcomes[one] for one in vocabulary.CHECKPOINT_OUTCOMES},
        files.gone.bytes + sum([save.bytes for save in done]),
        _checkpoint_seconds(files),
        (max(save.end_ns or 0 for save in last) - min(save.sums.begin_ns for save in last)) / NS if last else None,
        sum(save.sums.bytes for save in last) if last else None,
    )


def _durations(stalls: StallFigures) -> Durations:
    gone, seconds = stalls.gone, sorted([entry.ns / NS for entry in stalls.entries])
    up_to = [0, *(bisect_right(seconds, bucket) for bucket in STALL_BUCKETS), len(seconds)]
    counts = [known + more - less for known, less, more in zip(gone.counts, up_to, up_to[1:])]
    return Durations(counts, gone.seconds + sum(seconds))


def _checkpoint_seconds(files: FileFigures) -> dict[str, float]:
    by = {
        f"{operation}/{blocking}": 0.0
        for operation in vocabulary.CHECKPOINT_OPERATIONS
        for blocking in vocabulary.BLOCKING
    }
    for key, ns in files.gone.ns.items():
        by[key] += ns / NS
    parts: dict[str, list[tuple[int, ...]]] = {blocking: [] for blocking in vocabulary.BLOCKING}
    for save in files.done:
        parts["true" if save.tid in files.drivers else "false"].append(save.parts or save.ns_by_operation())
    for blocking, of in parts.items():
        for place, operation in enumerate(vocabulary.CHECKPOINT_OPERATIONS):
            by[f"{operation}/{blocking}"] += sum([each[place] for each in of]) / NS
    return by


def _leaf(cells: Sequence[int], leaf: Leaf) -> float:
    return sum(cells[cell(region, leaf)] for region in Region) / NS


def checkpoints(rank: RankSnapshot, at: Moment, limit: int) -> list[Checkpoint]:
    latest = zip(rank.files.checkpoints[-limit:], rank.files.numbers[-limit:])
    return [
        shown if (shown := save.shown) is not None and shown.save == number else _checkpoint(rank, save, number, at)
        for save, number in latest
    ]


def _checkpoint(rank: RankSnapshot, save: Save, number: int, at: Moment) -> Checkpoint:
    by = "driver" if save.tid in rank.files.drivers else "thread" if save.key[0] == rank.seen.pid else "process"
    spent = max(0, (save.end_ns or rank.time.reached) - save.begin_ns)
    serialize = save.gap_ns + save.ahead_ns + save.inside_ns
    made = Checkpoint(
        path=save.path,
        start=at.wall_of(save.begin_ns),
        end=at.wall_of(save.end_ns) if save.end_ns else None,
        bytes=save.bytes,
        seconds=spent / NS,
        write_seconds=save.write_ns / NS,
        fsync_seconds=save.sync_ns / NS,
        rename_seconds=save.rename_ns / NS,
        serialize_seconds=serialize / NS,
        blocked_seconds=save.blocked_ns(save.end_ns or rank.time.reached) / NS if by == "driver" else 0.0,
        by=by,
        outcome=save.outcome,
        error=_ERRNO.get(save.errno, f"errno {save.errno}") if save.errno else None,
        save=number,
    )
    save.shown = made if save.end_ns else None
    return made


def samples(rank: RankSnapshot, at: Moment) -> Samples:
    course = rank.course
    return Samples(
        [at.wall_of(point.at_ns) for point in course],
        [point.pss_bytes for point in course],
        [point.swap_bytes for point in course],
        [point.workers for point in course],
        [point.gpu_utilization for point in course],
    )
