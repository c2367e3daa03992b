"""Joins two reports of one rank: by the daemon that was watching first, and by the one that went on.

Figures are added, and nothing counts twice. The later daemon reports the whole of a stall that was open between the
two; the part that the earlier one had reported of it is subtracted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from trainprobe.model import report
from trainprobe.model.cause import State
from trainprobe.model.message import Message, Template, text_of
from trainprobe.pipeline.report.verdict import HEALTHY, STALLS_COST, STEPS_COST, stalls

LISTED = 200
POINTS = 128  # of samples

Item = TypeVar("Item")
Used = TypeVar("Used", report.LogFile, report.SlowFile)


def open_stall(told: report.Rank) -> report.Stall | None:
    """The stall that was open when the rank was told last, if it was one of its own."""
    last = told.stalls[-1] if told.stalls else None
    return last if last is not None and last.end is None and last.steps == 1 else None


def cut(told: report.Rank) -> report.Rank:
    """What was told without the step that was open then: another process tells of it from its begin."""
    stall = open_stall(told)
    since = told.counters.last_step
    if stall is None or since is None:
        return told
    spent = min(max(stall.start - since, 0.0) + stall.seconds, told.wall_seconds)
    counters = dataclasses.replace(
        told.counters,
        stalls={cause: max(0, count - (cause == stall.cause)) for cause, count in told.counters.stalls.items()},
        stall_seconds=_less(told.counters.stall_seconds, stall.shares),
    )
    lost = {cause: seconds for cause, seconds in _less(told.lost, stall.shares).items() if seconds > 0}
    return dataclasses.replace(
        told,
        wall_seconds=told.wall_seconds - spent,
        verdict=told.verdict if told.verdict.cause in (None, *lost) else report.Verdict(),
        productive_seconds=max(0.0, told.productive_seconds - max(0.0, spent - stall.seconds)),
        lost=lost,
        stalls=told.stalls[:-1],
        totals=dataclasses.replace(told.totals, stalls=told.totals.stalls - 1),
        counters=counters,
    )


def closed(told: report.Rank) -> report.Rank:
    """What was told, with what was open closed when it was told of last: nobody knows when it ended."""
    stalls = [
        dataclasses.replace(stall, end=stall.start + stall.seconds) if stall.end is None else stall
        for stall in told.stalls
    ]
    phases = [span if span.end is not None else _ended(span, told) for span in told.phases]
    counters = dataclasses.replace(told.counters, stall_active={})
    exit_ = told.exit if report.has_ended(told) else None
    return dataclasses.replace(told, exit=exit_, stalls=stalls, phases=phases, counters=counters)


def _ended(span: report.PhaseSpan, told: report.Rank) -> report.PhaseSpan:
    """An open span as long as its phase is beyond the others of it."""
    others = sum(
        other.end - other.start for other in told.phases if other.phase == span.phase and other.end is not None
    )
    spent = told.counters.phase_seconds.get(span.phase, 0.0) - others
    return dataclasses.replace(span, end=span.start + max(0.0, spent))


def continued(told: report.Rank, live: report.Rank) -> report.Rank:
    """Both as one rank; ``told`` is ``cut`` or ``closed``."""
    offset = told.steps.count
    wall = told.wall_seconds + live.wall_seconds
    ledger = _sum(told.ledger, live.ledger)
    unseen = wall - sum(ledger.values())
    if unseen > 0:  # between the two lives
        ledger[State.OTHER.value] = ledger.get(State.OTHER.value, 0.0) + unseen
    elif live.ledger:  # of a step that goes on both tell: this process from its begin, in the state that it is in
        state = max(live.ledger, key=lambda name: live.ledger[name])
        ledger[state] = max(0.0, ledger[state] + unseen)
    lost = _sum(told.lost, live.lost)
    stalls = [dataclasses.replace(stall, first_step=stall.first_step + offset) for stall in live.stalls]
    both = dataclasses.replace(
        live,
        wall_seconds=wall,
        productive_seconds=told.productive_seconds + live.productive_seconds,
        bound=live.bound if live.bound.by != "unknown" else told.bound,
        steps=_steps(told.steps, live.steps),
        phases=[*told.phases, *(_later(span, offset) for span in live.phases)][-LISTED:],
        ledger=ledger,
        lost=dict(sorted(lost.items(), key=lambda pair: -pair[1])),
        stalls=[*told.stalls, *stalls][-LISTED:],
        bottlenecks=_bottlenecks(told.bottlenecks, live.bottlenecks, wall),
        warnings=[*told.warnings, *live.warnings][-LISTED:],
        checkpoints=_checkpoints(told, live)[-LISTED:],
        workers=dataclasses.replace(
            live.workers,
            # Those that lived then were found again by this process, unless they died in between.
            started=told.workers.started + max(0, live.workers.started - told.workers.live),
            ended=told.workers.ended + live.workers.ended,
            exits=[*told.workers.exits, *live.workers.exits][-LISTED:],
            peak=max(told.workers.peak, live.workers.peak),
        ),
        memory=merged(told.memory, live.memory),
        samples=_samples(told.samples, live.samples),
        fds=merged(told.fds, live.fds),
        gpus=live.gpus or told.gpus,
        framework=live.framework if live.framework.name else told.framework,
        startup=told.startup if told.startup.other is not None else live.startup,
        restores=told.restores or live.restores,
        started=told.started if told.started is not None else live.started,
        changes=live.changes or told.changes,
        slow_files=_by_path(told.slow_files, live.slow_files),
        logs=_by_path(told.logs, live.logs),
        totals=merged(told.totals, live.totals),
        counters=merged(told.counters, live.counters),
    )
    both.verdict = _verdict(told, live, both)
    return both


def _later(span: report.PhaseSpan, steps: int) -> report.PhaseSpan:
    """It came after so many more steps."""
    return span if span.step is None else dataclasses.replace(span, step=span.step + steps)


def merged(told: Item, live: Item) -> Item:
    """Field by field, as its metadata says (``SUM``, ``MOST``)."""
    values = {}
    for one in dataclasses.fields(live):  # type: ignore[arg-type]
        before, now = getattr(told, one.name), getattr(live, one.name)
        if now is None or before is None:
            values[one.name] = before if now is None else now
        else:
            values[one.name] = _MERGES[one.metadata.get("merge", "latest")](before, now)
    return type(live)(**values)


def _added(told: Any, live: Any) -> Any:
    if isinstance(told, dict) and isinstance(live, dict):
        return _sum(told, live)
    if isinstance(told, list) and isinstance(live, list):
        longest = max(len(told), len(live))
        return [sum(values[at] if at < len(values) else 0 for values in (told, live)) for at in range(longest)]
    return told + live


def _latest(told: Any, live: Any) -> Any:
    return told | live if isinstance(live, dict) else live


_MERGES: Mapping[str, Callable[[Any, Any], Any]] = {"sum": _added, "most": max, "latest": _latest}


def _names(value: object) -> list[str]:
    return [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]


def _sum(told: Mapping[str, float], live: Mapping[str, float]) -> dict[str, float]:
    return {key: told.get(key, 0) + live.get(key, 0) for key in {**told, **live}}


def _less(told: Mapping[str, float], part: Mapping[str, float]) -> dict[str, float]:
    return {key: max(0.0, value - part.get(key, 0.0)) for key, value in told.items()}


def _verdict(told: report.Rank, live: report.Rank, both: report.Rank) -> report.Verdict:
    """An end is the run's last word; else what cost more, with the figures of both lives."""
    if live.verdict.kind == "end":
        return live.verdict
    wall = both.wall_seconds
    if {told.verdict.kind, live.verdict.kind} == {"none"}:
        healthy = any(_says(one.verdict, HEALTHY) for one in (told, live))
        return report.Verdict.of(HEALTHY(steps=both.steps.count, seconds=wall)) if healthy else live.verdict
    chosen = max((told.verdict, live.verdict), key=lambda verdict: verdict.seconds)
    seconds = both.lost.get(chosen.cause or "", chosen.seconds)
    share = seconds / wall if wall > 0 else 0.0
    made = dataclasses.replace(chosen, seconds=seconds, share=share)
    if chosen.message is None or not (_says(chosen, STALLS_COST) or _says(chosen, STEPS_COST)):
        return made
    figures: dict[str, Any] = {"seconds": seconds, "share": share}
    if _says(chosen, STALLS_COST):
        figures["times"] = stalls(both.counters.stalls.get(chosen.cause or "", 0))
    message = Message(chosen.message.id, {**chosen.message.params, **figures})
    return dataclasses.replace(made, summary=text_of(message, chosen.summary), message=message)


def _says(verdict: report.Verdict, template: Template) -> bool:
    return verdict.message is not None and verdict.message.id == template.id


def _steps(told: report.Steps, live: report.Steps) -> report.Steps:
    if live.source == "none":
        return told
    return dataclasses.replace(merged(told, live), message=live.message)


def _bottlenecks(told: list[report.Bottleneck], live: list[report.Bottleneck], wall: float) -> list[report.Bottleneck]:
    seconds: dict[str, float] = {}
    chosen: dict[str, report.Bottleneck] = {}
    for one in (*told, *live):
        seconds[one.cause] = seconds.get(one.cause, 0.0) + one.seconds
        chosen[one.cause] = one
    made = [
        dataclasses.replace(one, seconds=seconds[cause], share=seconds[cause] / wall if wall > 0 else 0.0)
        for cause, one in chosen.items()
    ]
    return sorted(made, key=lambda one: -one.seconds)


def _checkpoints(told: report.Rank, live: report.Rank) -> list[report.Checkpoint]:
    """A file that was open goes on under its path; the parts of it that either process saw add up."""
    new = {saved.path for saved in live.checkpoints}
    going = {saved.path: saved for saved in told.checkpoints if saved.end is None}
    out = [saved for saved in told.checkpoints if saved.end is not None or saved.path not in new]
    for saved in live.checkpoints:
        saved = dataclasses.replace(saved, save=saved.save + told.totals.saves) if saved.save else saved
        before = going.pop(saved.path, None)
        if before is not None:
            end = saved.end if saved.end is not None else saved.start + saved.seconds
            both = merged(before, saved)
            saved = dataclasses.replace(
                both, start=before.start, seconds=end - before.start, error=saved.error, save=before.save
            )
        out.append(saved)
    return out


def _samples(told: report.Samples, live: report.Samples) -> report.Samples:
    """Both in one column; of neighbours the higher one where that is too long."""
    columns = [_whole(told, name) + getattr(live, name) for name in _names(live)]
    while len(columns[0]) > POINTS:
        columns = [columns[0][::2], *(_highest(column) for column in columns[1:])]
    return report.Samples(*columns)


def _whole(told: report.Samples, name: str) -> list[float | None]:
    """A column as long as the others, also where its writer did not know it."""
    column = getattr(told, name)
    return [*column, *[None] * (len(told.time) - len(column))]


def _highest(column: list[int | None]) -> list[int | None]:
    pairs = (column[at : at + 2] for at in range(0, len(column), 2))
    return [max((value for value in pair if value is not None), default=None) for pair in pairs]


def _by_path(told: list[Used], live: list[Used]) -> list[Used]:
    """Files, by what either process saw of each; the dearest."""
    made = {file.path: file for file in told}
    for file in live:
        before = made.get(file.path)
        made[file.path] = file if before is None else merged(before, file)
    return sorted(made.values(), key=lambda file: -file.seconds)[:20]
