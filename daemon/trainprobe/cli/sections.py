"""The parts of a run's text below its first lines; each is left out when it has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainprobe.cli.style import Style
from trainprobe.language.amounts import count, percent, seconds, size
from trainprobe.model.report import Bottleneck, Checkpoint, Evidence, Rank, Run, Stall, Warning_

STALLS_SHOWN = 10
CHECKPOINTS_SHOWN = 5
EXITS_SHOWN = 10
FILES_SHOWN = 5
STATES_SHOWN = 6
NAME, BAR = 16, 40


def sections(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    """All parts that have something to say, each behind an empty line and a title."""
    parts: list[tuple[str, Callable[[Run, Rank, Style], Iterator[str]]]] = [
        ("Where the time went", _time),
        ("What to do", _advice),
        ("Warnings", _warnings),
        ("Stalls", _stalls),
        ("The longest stall", _longest),
        ("In every step", _bottlenecks),
        ("Checkpoints", _checkpoints),
        ("Workers", _workers),
        ("Resources", _resources),
        ("Files", _files),
    ]
    for title, part in parts:
        lines = list(part(run, rank, style))
        if lines:
            yield ""
            yield style.paint(title, "bold")
            yield from lines


def _time(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    """Productive, phases and lost: they add up to the wall time."""
    wall = rank.wall_seconds
    if wall <= 0:
        return
    phases: dict[str, float] = {k: v for k, v in rank.counters.phase_seconds.items() if k != "train"}
    if not phases:
        for phase in rank.phases:
            end = phase.end if phase.end is not None else (run.ended or phase.start)
            phases[phase.phase] = phases.get(phase.phase, 0.0) + end - phase.start
    rows = [("productive", rank.productive_seconds, "green", "")]
    rows += [(name, value, "cyan", "phase") for name, value in _descending(phases)]
    rows += [(cause, value, "red", "lost") for cause, value in _descending(rank.lost)]
    cells = max(10, min(BAR, style.width - NAME - 33))
    for name, value, look, meaning in rows:
        if value > 0:
            bar = style.paint(style.bar(value / wall, cells), look)
            yield f"  {name:<{NAME}} {seconds(value):>10}  {percent(value / wall):>7}  {meaning:<5}  {bar}"
    states = [f"{name} {percent(value / wall)}" for name, value in _descending(rank.ledger) if value / wall >= 0.0005]
    if states:
        yield from style.wrapped(", ".join(states[:STATES_SHOWN]), "  the driving thread: ", "    ")


def _descending(values: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])


def _advice(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    """What was computed for the causes, the dearest cause first, nothing twice."""
    del run
    by_cause: dict[str, list[str]] = {}
    items: list[Warning_ | Bottleneck | Stall] = [*rank.warnings, *rank.bottlenecks, *reversed(rank.stalls)]
    for item in items:
        for advice in item.advice:
            if advice not in (known := by_cause.setdefault(item.cause, [])):
                known.append(advice)
    for cause in sorted(by_cause, key=lambda cause: -rank.lost.get(cause, 0.0)):
        for advice in by_cause[cause][:3]:
            yield from style.wrapped(f"{cause}: {advice}", "  - ", "    ")


def _warnings(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    del run
    for warning in rank.warnings[-EXITS_SHOWN:]:
        eta = f" (in {seconds(warning.eta_seconds)})" if warning.eta_seconds is not None else ""
        yield from style.wrapped(
            f"{warning.cause}{eta}: {warning.summary}", f"  {style.clock(warning.time)}  ", "            "
        )


def _stalls(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    del run
    if not rank.stalls:
        return
    shown = sorted(rank.stalls, key=lambda stall: -stall.seconds)[:STALLS_SHOWN]
    total = max(rank.totals.stalls, len(rank.stalls))
    if total > len(shown):
        yield f"  the {len(shown)} longest of {total}"
    cause = max(len("cause"), *(len(stall.cause) for stall in shown))
    yield style.paint(f"  {'when':<8}  {'seconds':>8}  {'cause':<{cause}}  {'step':>7}  what", "dim")
    for stall in sorted(shown, key=lambda stall: stall.start):
        head = f"  {style.clock(stall.start)}  {stall.seconds:8.3f}  {stall.cause:<{cause}}  {stall.first_step:>7}  "
        state = "GOES ON: " if stall.end is None else ""
        several = f" ({count(stall.steps, 'step')})" if stall.steps > 1 else ""
        yield from style.wrapped(f"{state}{stall.summary}{several}", head)


def _longest(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    """Why: chain, evidence, Python stack."""
    del run
    stall = max(rank.stalls, key=lambda stall: stall.seconds, default=None)
    if stall is None:
        return
    yield f"  {style.clock(stall.start)}, {seconds(stall.seconds)} of {stall.cause}"
    if len(stall.shares) > 1:
        shares = ", ".join(f"{cause} {seconds(value)}" for cause, value in _descending(stall.shares))
        yield from style.wrapped(shares, "  shares: ")
    for depth, link in enumerate(stall.chain):
        arrow = ("└ " if style.unicode else "`- ") if depth else ""
        yield from style.wrapped(link, f"  {'  ' * max(0, depth - 1)}{arrow}")
    yield from _evidence(stall, style)
    for number, frame in enumerate(stall.python_stack or ()):
        yield from style.wrapped(frame, "  in " if number == 0 else "     ")


def _evidence(stall: Stall, style: Style) -> Iterator[str]:
    if stall.evidence:
        yield from style.wrapped("; ".join(_told(item) for item in stall.evidence), "  evidence: ", "    ")


def _told(item: Evidence) -> str:
    parts = [item.what]
    if item.value is not None:
        parts.append(_value(item.value, item.unit))
    if item.pid is not None:
        parts.append(f"(pid {item.pid})")
    if item.path:
        parts.append(item.path)
    return " ".join(parts)


def _value(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    if unit in ("s", "seconds"):
        return seconds(value)
    if unit in ("B", "bytes"):
        return size(value)
    return f"{value:g} {unit}".rstrip()


def _bottlenecks(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    del run
    for item in sorted(rank.bottlenecks, key=lambda item: -item.seconds):
        head = f"  {percent(item.share):>7}  {seconds(item.seconds):>10}  "
        yield from style.wrapped(f"{item.cause}: {item.summary}", head)


def _checkpoints(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    del run
    if not rank.checkpoints:
        return
    total = max(rank.totals.checkpoints, len(rank.checkpoints))
    shown = rank.checkpoints[-CHECKPOINTS_SHOWN:]
    blocked = sum(saved.blocked_seconds for saved in rank.checkpoints)
    which = "" if total == len(shown) else f", the latest {len(shown)} of them"
    yield from style.wrapped(f"{count(total, 'save')}{which}; the training waited {seconds(blocked)} for them", "  ")
    for saved in shown:
        head = f"  {style.clock(saved.start)}  {seconds(saved.seconds):>9}  {size(saved.bytes):>8}  "
        yield from style.wrapped(f"{saved.path} ({_how(saved)})", head)


def _how(saved: Checkpoint) -> str:
    named = (
        ("write", saved.write_seconds),
        ("fsync", saved.fsync_seconds),
        ("rename", saved.rename_seconds),
        ("serialise", saved.serialize_seconds),
    )
    parts = [f"{name} {seconds(value)}" for name, value in named if value >= 0.0005]
    if saved.by != "driver":
        parts.append(f"by a {'helper thread' if saved.by == 'thread' else 'process'}")
    if saved.outcome != "complete":
        parts.append(f"{saved.outcome.upper()}{f' {saved.error}' if saved.error else ''}")
    return ", ".join(parts) or "complete"


def _workers(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    del run
    workers = rank.workers
    if not workers.started:
        return
    yield f"  {workers.started} started, {workers.ended} ended, {workers.live} alive"
    bad = [one for one in workers.exits if one.reason != "finished"]
    for one in bad[-EXITS_SHOWN:]:
        how = f"signal {one.signal}" if one.signal is not None else f"code {one.code}"
        sender = f", sent by pid {one.sender_pid}" if one.sender_pid else ""
        told = f"worker {one.pid} {one.reason}: {how}{sender}"
        yield from style.painted(told, "red", first=f"  {style.clock(one.time)}  ")


def _resources(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    del run
    memory, parts = rank.memory, []
    if memory.pss_peak_bytes is not None:
        limit = f" of {size(memory.limit_bytes)} ({memory.limit_scope})" if memory.limit_bytes else ""
        parts.append(f"memory {size(memory.pss_peak_bytes)} at most{limit}")
    if memory.swap_bytes:
        parts.append(f"{size(memory.swap_bytes)} swapped out")
    if memory.shm_bytes:
        parts.append(f"shared memory {size(memory.shm_bytes)}")
    if rank.fds.open_peak is not None:
        limit = f" of {rank.fds.limit}" if rank.fds.limit else ""
        parts.append(f"{rank.fds.open_peak} open files at most{limit}")
    for gpu in rank.gpus:
        busy = "" if gpu.utilization_mean is None else f" {percent(gpu.utilization_mean)} busy"
        parts.append(f"GPU {gpu.index}{busy}")
    if parts:
        yield from style.wrapped(", ".join(parts), "  ")


def _files(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    del run
    for file in sorted(rank.slow_files, key=lambda file: -file.seconds)[:FILES_SHOWN]:
        yield from style.wrapped(f"{file.path} ({file.reads} reads)", f"  {seconds(file.seconds):>9} reading  ")
    for log in sorted(rank.logs, key=lambda log: -log.seconds)[:FILES_SHOWN]:
        told = f"{log.path} ({log.kind}, {log.writes} writes, {size(log.bytes)})"
        yield from style.wrapped(told, f"  {seconds(log.seconds):>9} logging  ")
