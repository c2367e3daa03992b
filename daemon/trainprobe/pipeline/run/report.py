"""A run's part of the report."""

from __future__ import annotations

from trainprobe.model.moment import Moment
from trainprobe.model.report import LABELS, Rank, Run, RunTotals
from trainprobe.pipeline.gpus import bound_by
from trainprobe.pipeline.limits import RunLimits
from trainprobe.pipeline.rank.snapshot import snapshot
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.report.rank import RankPlace, rank_report
from trainprobe.pipeline.report.restart_merge import closed, continued, cut, open_stall
from trainprobe.pipeline.run.state import RunState


def run_report(run: RunState, at: Moment, cpus: int) -> Run:
    """The run as of ``at``; ``cpus``: of the host."""
    started, ranks = run.started, []
    shown = run.ranks.shown()
    world = max([len({rank.seen.pid for rank in shown}), *(rank.seen.world_size or 1 for rank in shown)], default=1)
    memory = run.limits.kills.reached(started.run) or run.memory
    named = list(run.ranks.named())
    for rank, number, name in named:
        seen = snapshot(rank, at.monotonic_ns, memory)
        ranks.append(rank_report(seen, at, RankPlace(started.run, number, name, world, len(named)), cpus))
        _add_limits(ranks[-1], rank, run.limits)
    every = _with_the_kept(run, ranks)
    return Run(
        started.name,
        list(started.command),
        started.user,
        started.cwd,
        run.kept.started if run.kept is not None else at.wall_of(started.at_ns),
        at.wall_of(run.end_ns) if run.end_ns is not None else None,
        _labels(run),
        every,
        {"used_bytes": memory.used_bytes, "limit_bytes": memory.limit_bytes, "scope": memory.limit_scope}
        if memory
        else {},
        run.limits.kills.by_scope(),
        RunTotals(len(every) + run.ranks.given_up + len(run.ranks.refused)),
        started.attempt,
        started.job or started.name,
    )


def news(run: RunState) -> object:
    """It differs where more than even steps has happened; None: a stall or a save is open."""
    limits = run.limits
    seen: list[object] = [
        run.kept, run.end_ns, run.memory and run.memory.limit_bytes, limits.kills.count, len(limits.gpu_faults),
        [failed.count for failed in limits.counts.values()], len(limits.orphans),
    ]  # fmt: skip
    for rank in run.ranks:
        if rank.stalls.open is not None or rank.files.saves.open:
            return None
        lives, saves = rank.lives.workers, rank.files.saves
        seen += (
            rank.seen, rank.stepped, rank.end_ns, rank.stalls.total, rank.stalls.memo.edition, saves.memo.edition,
            len(rank.phases.spans), rank.phases.live is None, lives.started, lives.ended, len(rank.notices.told),
        )  # fmt: skip
    return seen


def may_wait(run: RunState) -> bool:
    """Whether nothing that is told of it moves on by itself: nothing is on its way to a limit."""
    open_ = (not notice.happened for rank in run.ranks for notice in rank.notices.told.values())
    return not run.limits.supplies.forecasts and not any(open_)


def _labels(run: RunState) -> dict[str, str | None]:
    known = {"container": run.limits.supplies.container} | dict(run.started.labels)
    return {key: known.get(key) for key in LABELS}


def _with_the_kept(run: RunState, live: list[Rank]) -> list[Rank]:
    """The live ranks merged with what an earlier daemon reported of them, and its ranks that had ended."""
    if run.kept is None:
        return live
    told = {rank.name: rank for rank in run.kept.told}
    same = {found.pid for found in run.kept.ranks if found.same_step}
    ranks = []
    for rank in live:
        before = told.pop(rank.name, None)
        if before is not None:
            goes_on = rank.pid in same and open_stall(before) is not None
            rank = continued(cut(before) if goes_on else closed(before), rank)
        ranks.append(rank)
    return [*(closed(rank) for rank in told.values()), *ranks]


def _add_limits(report: Rank, rank: RankState, limits: RunLimits) -> None:
    counters, shm = report.counters, limits.supplies.shm()
    if (gpus := limits.gpus.get(rank.seen.pid)) is not None:
        report.gpus = gpus.report()
        report.bound = bound_by(report.gpus, report.bound, gpus.shared)
    counters.fd_errors, counters.shm_errors = limits.fd_errors(rank), limits.shm_errors(rank)
    counters.shm_size_bytes = shm.limit if shm else None
    if rank.end_ns is not None:
        return
    counters.memory_exhaustion_seconds = limits.eta("memory", rank)
    counters.fd_exhaustion_seconds = limits.eta("fds", rank)
    counters.shm_exhaustion_seconds = limits.eta("shm", rank)
    saves = rank.files.saves.checkpoints() if limits.spaces else []
    space = limits.spaces.get(saves[-1].path.rpartition("/")[0]) if saves else None
    if space is not None:
        counters.checkpoint_available_bytes = space.available_bytes
        counters.checkpoint_files_free = space.files_free
