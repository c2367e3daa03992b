"""The parts of a run's text below its first lines; each is left out when it has nothing to say."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from trainprobe.advise.changes import changes_of
from trainprobe.causes.advice import SHARE
from trainprobe.causes.registry import DECLARED
from trainprobe.cli import cells, goodput, start
from trainprobe.cli.style import Style
from trainprobe.derive.python.stacks import of_worker
from trainprobe.model.amounts import percent, seconds, size
from trainprobe.model.message import Message
from trainprobe.model.report import STALL, Checkpoint, Evidence, Rank, Run, SlowFile, Stall
from trainprobe.text.saying import word

OF_DRIVER, OF_WORKER = word("stack of the training thread"), word("stack of a worker")
STALLS_SHOWN = 10
CHECKPOINTS_SHOWN = 5
EXITS_SHOWN = 10
FILES_SHOWN = 5
LOOKS = 3  # that met a wait for a file, or seconds of it, before it is told
FILES_WORTH = 0.001  # of the run: files that took less time are not told
STATES_SHOWN = 6
ROUNDED = 0.0005  # of the whole: less is 0.0 %
LEAST = 0.0005  # seconds: less was given back by a GPU that worked on, or was nothing
NAME, BAR = 16, 40


def sections(run: Run, rank: Rank, style: Style) -> Iterator[str]:
    """All parts that have something to say, each behind an empty line and a title."""
    parts: list[tuple[str, Callable[[Rank, Style], Iterator[str]]]] = [
        (word("Where the time went"), partial(_time, run)),
        (word("Goodput"), partial(_goodput, run)),
        (word("The start"), start.account),
        (word("What to do"), _advice),
        (word("Warnings"), _warnings),
        (word("Stalls"), _stalls),
        (word("The longest stall"), _longest),
        (word("In every step") if rank.steps.count else word("All the time"), _bottlenecks),
        (word("Checkpoints"), _checkpoints),
        (word("Workers"), _workers),
        (word("Resources"), _resources),
        (word("Files"), _files),
    ]
    for title, part in parts:
        lines = list(part(rank, style))
        if lines:
            yield ""
            yield style.paint(style.say(title), "bold")
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
    rows = [(word("productive"), rank.productive_seconds, "green", "")]
    rows += [(name, value, "cyan", word("phase")) for name, value in descending(phases)]
    rows += [(cause, value, "red", word("lost")) for cause, value in descending(rank.lost)]
    room = max(10, min(BAR, style.width - NAME - 33))
    for name, value, look, meaning in rows:
        if value >= LEAST:
            bar = style.paint(style.bar(value / wall, room), look)
            label = cells.fill(style.say(name) if meaning != "lost" else name, NAME)
            said = cells.fill(style.say(meaning) if meaning else "", 5)
            yield f"  {label} {seconds(value):>10}  {percent(value / wall):>7}  {said}  {bar}"
    states = [
        f"{style.state(name)} {percent(value / wall)}"
        for name, value in descending(rank.ledger)
        if value / wall >= ROUNDED
    ]
    if states:
        yield from style.wrapped(
            style.listed(states[:STATES_SHOWN]),
            f"  {style.label(style.say('the training thread in all'))}",
            "    ",
        )
    yield from _shutdown(rank, style)


def _goodput(run: Run, _rank: Rank, style: Style) -> Iterator[str]:
    return goodput.account(run, style)


def _shutdown(rank: Rank, style: Style) -> Iterator[str]:
    """What was in the time after the training's code was left."""
    spans = [span.states for span in rank.phases if span.phase == "shutdown" and span.states]
    parts = (
        [f"{style.state(name)} {seconds(value)}" for name, value in descending(spans[-1]) if value >= 0.01]
        if spans
        else []
    )
    if parts:
        yield from style.wrapped(
            style.listed(parts[:STATES_SHOWN]), f"  {style.label(style.say('the shutdown'))}", "    "
        )


def descending(values: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])


def _advice(rank: Rank, style: Style) -> Iterator[str]:
    """What was computed for the causes, the dearest cause first, nothing twice; of what hardly costs anything none."""
    warned = {warning.cause for warning in rank.warnings}
    worth = {cause for cause, lost in rank.lost.items() if lost >= SHARE * rank.wall_seconds}
    dropped = rank.lost.keys() - worth - warned - {rank.verdict.cause}
    by_cause = {cause: advice for cause, advice in changes_of(rank).items() if cause not in dropped}
    # What the first lines name comes first, what other programs made last.
    first = rank.verdict.cause
    others = {key for key, spec in DECLARED.items() if spec.of_others}
    for cause in sorted(by_cause, key=lambda cause: (cause != first, cause in others, -rank.lost.get(cause, 0.0))):
        for advice in by_cause[cause][:3]:
            yield from style.wrapped(f"{style.label(cause)}{advice}", "  - ", "    ")


def _warnings(rank: Rank, style: Style) -> Iterator[str]:
    for warning in rank.warnings[-EXITS_SHOWN:]:
        eta = style.say(" (in {left})", left=seconds(warning.eta_seconds)) if warning.eta_seconds is not None else ""
        yield from style.wrapped(
            f"{style.label(f'{warning.cause}{eta}')}{warning.summary}",
            f"  {style.clock(warning.time)}  ",
            "            ",
        )


def _stalls(rank: Rank, style: Style) -> Iterator[str]:
    if not rank.stalls:
        return
    shown = sorted(rank.stalls, key=lambda stall: -stall.seconds)[:STALLS_SHOWN]
    total = max(rank.totals.stalls, len(rank.stalls))
    if total > len(shown):
        yield style.say("  the {shown} longest of {total}", shown=len(shown), total=total)
    cause = max(len("cause"), *(len(stall.cause) for stall in shown))
    columns = (
        cells.fill(style.say("when"), 8), cells.fill_left(style.say("lasted"), 10),
        cells.fill(style.say("cause"), cause), cells.fill_left(style.say("step"), 7), style.say("what"),
    )  # fmt: skip
    yield style.paint("  " + "  ".join(columns), "dim")
    rhythms: set[str] = set()
    for stall in sorted(shown, key=lambda stall: stall.start):
        step = stall.first_step if stall.steps else "-"
        head = f"  {style.clock(stall.start)}  {seconds(stall.seconds):>10}  {stall.cause:<{cause}}  {step:>7}  "
        state = style.say("GOES ON: ") if stall.end is None else ""
        told = _part(stall, "longest") is not None
        several = (
            f" ({style.counted(stall.steps, '{number} step', '{number} steps')})"
            if stall.steps > 1 and not told
            else ""
        )
        yield from style.wrapped(f"{state}{_once(stall, rhythms, style)}{several}", head)


def _once(stall: Stall, told: set[str], style: Style) -> str:
    """Its summary; the rhythm of a cause is told by the first of its stalls only."""
    if stall.message is None or _part(stall, "rhythm") is None:
        return stall.summary
    if stall.cause not in told:
        told.add(stall.cause)
        return stall.summary
    return style.speaker.message(Message(STALL.id, {**stall.message.params, "rhythm": None}), stall.summary)


def _part(stall: Stall, name: str) -> object:
    """A part of its summary; None: it has none."""
    return stall.message.params.get(name) if stall.message is not None and stall.message.id == STALL.id else None


def _longest(rank: Rank, style: Style) -> Iterator[str]:
    """Why: chain, evidence, Python stack."""
    stall = max(rank.stalls, key=lambda stall: stall.seconds, default=None)
    if stall is None:
        return
    yield style.say(
        "  {when}, {lasted} of {cause}",
        when=style.clock(stall.start),
        lasted=seconds(stall.seconds),
        cause=style.cause(stall.cause),
    )
    shares = [(cause, value) for cause, value in descending(stall.shares) if value >= ROUNDED * stall.seconds]
    if len(shares) > 1:
        listed = style.listed(f"{style.cause(cause)} {seconds(value)}" for cause, value in shares)
        yield from style.wrapped(listed, f"  {style.label(style.say('shares'))}")
    for depth, link in enumerate(stall.chain):
        arrow = ("└ " if style.unicode else "`- ") if depth else ""
        yield from style.wrapped(link, f"  {'  ' * max(0, depth - 1)}{arrow}")
    yield from _evidence(stall, style)
    if stall.python_stack:
        whose = style.say(OF_WORKER if of_worker(stall.python_stack) else OF_DRIVER)
        yield f"  {style.label(whose).rstrip()}"
    for number, frame in enumerate(stall.python_stack or ()):
        yield from style.wrapped(frame, "  in " if number == 0 else "     ")


def _evidence(stall: Stall, style: Style) -> Iterator[str]:
    if stall.evidence:
        yield from style.wrapped(
            style.say("; ").join(_evidence_parts(stall.evidence, style)),
            f"  {style.label(style.say('evidence'))}",
            "    ",
        )


def _evidence_parts(seen: Sequence[Evidence], style: Style) -> Iterator[str]:
    """What is of one process and one file stands together."""
    for (pid, path), items in groupby(seen, key=lambda item: (item.pid, item.path)):
        what = style.listed(_what(item) for item in items)
        yield " ".join([what, *([f"(pid {pid})"] if pid is not None else []), *([path] if path else [])])


def _what(item: Evidence) -> str:
    return item.what if item.value is None else f"{item.what} {_value(item.value, item.unit)}"


def _value(value: float | str, unit: str) -> str:
    if isinstance(value, str):
        return value
    if unit in ("s", "seconds"):
        return seconds(value)
    if unit in ("B", "bytes"):
        return size(value)
    if unit == "ratio":
        return percent(value)
    return f"{value:g} {unit}".rstrip()


def _bottlenecks(rank: Rank, style: Style) -> Iterator[str]:
    if rank.bottlenecks and rank.steps.count:
        columns = cells.fill_left(style.say("of a step"), 9), cells.fill_left(style.say("in all"), 10)
        yield style.paint("  ".join(columns), "dim")
    for item in sorted(rank.bottlenecks, key=lambda item: -item.seconds):
        head = f"  {percent(item.share):>7}  {seconds(item.seconds):>10}  "
        yield from style.wrapped(f"{style.label(item.cause)}{item.summary}", head)


def _checkpoints(rank: Rank, style: Style) -> Iterator[str]:
    if not rank.checkpoints:
        return
    files = max(rank.totals.checkpoints, len(rank.checkpoints))
    lost = rank.lost.get("checkpoint", 0.0)  # also to saves of others that it waits for
    blocked = max(lost, sum(saved.blocked_seconds for saved in rank.checkpoints))
    if len(rank.checkpoints) < files:
        by = rank.counters.checkpoint_seconds.items()
        blocked = max(blocked, sum(spent for key, spent in by if key.endswith("/true")))
    saves = _saves(rank.checkpoints)
    total = max(rank.totals.saves, len(saves))
    counted = style.counted(total, "{number} save", "{number} saves")
    if total < files:
        counted += style.say(", {files} files in all", files=files)
    shown = saves[-CHECKPOINTS_SHOWN:]
    which = "" if total == len(shown) else style.say(", the latest {shown} of them", shown=len(shown))
    waited = style.say("; the training waited {blocked} for them", blocked=seconds(blocked))
    yield from style.wrapped(counted + which + waited, "  ")
    for save in shown:
        yield from _save(save, style)


def _saves(files: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
    """The files of each save whose files the list has, by their begin; one whose save is not known is one by itself."""
    by_number: dict[int, list[Checkpoint]] = {}
    for place, file in enumerate(sorted(files, key=lambda file: file.start)):
        by_number.setdefault(file.save or -1 - place, []).append(file)
    saves = list(by_number.values())
    cut = len(saves) > 1 and saves[0][0].save > 1  # the list may have lost files of the first one
    return saves[1:] if cut else saves


def _save(save: Sequence[Checkpoint], style: Style) -> Iterator[str]:
    lasted = save[0].seconds if len(save) == 1 else max(file.start + file.seconds for file in save) - save[0].start
    head = f"  {style.clock(save[0].start)}  {seconds(lasted):>9}  {size(sum(file.bytes for file in save)):>8}  "
    yield from style.wrapped(f"{_place(save, style)} ({_how(save, style)})", head)


def _place(save: Sequence[Checkpoint], style: Style) -> str:
    """Its largest file, and how many more; of files below several directories the one that holds them."""
    largest = max(save, key=lambda file: file.bytes).path
    if len(save) == 1:
        return largest
    folders = {file.path.rpartition("/")[0] for file in save}
    shared = os.path.commonpath(folders) if all(folder.startswith("/") for folder in folders) else ""
    if shared.strip("/") and largest.rpartition("/")[0] != shared:
        return style.say("{path}: {files} files", path=shared, files=len(save))
    return f"{largest}{style.say(' and {number} more', number=len(save) - 1)}"


def _how(save: Sequence[Checkpoint], style: Style) -> str:
    named = (
        ("write", sum(file.write_seconds for file in save)),
        ("fsync", sum(file.fsync_seconds for file in save)),
        ("rename", sum(file.rename_seconds for file in save)),
        (style.say("serialise"), sum(file.serialize_seconds for file in save)),
    )
    parts = [f"{name} {seconds(value)}" for name, value in named if value >= 0.0005]
    by = max(save, key=lambda file: file.bytes).by
    if by != "driver":
        parts.append(style.say("by a helper thread" if by == "thread" else "by a process"))
    bad = (file for file in save if file.outcome != "complete")
    parts += [f"{style.say(file.outcome).upper()}{f' {file.error}' if file.error else ''}" for file in bad]
    return style.listed(dict.fromkeys(parts)) or style.say("complete")


def _workers(rank: Rank, style: Style) -> Iterator[str]:
    workers = rank.workers
    if not workers.started:
        return
    yield style.say(
        "  {started} started, {ended} ended, {live} alive",
        started=workers.started,
        ended=workers.ended,
        live=workers.live,
    )
    bad = [one for one in workers.exits if one.reason != "finished"]
    for one in bad[-EXITS_SHOWN:]:
        how = style.say("code {code}", code=one.code)
        if one.signal is not None:
            how = style.say("signal {signal}", signal=one.signal)
        sender = style.say(", sent by pid {pid}", pid=one.sender_pid) if one.sender_pid else ""
        told = f"{style.label(f'worker {one.pid} {style.say(one.reason)}')}{how}{sender}"
        yield from style.painted(told, "red", first=f"  {style.clock(one.time)}  ")


def _resources(rank: Rank, style: Style) -> Iterator[str]:
    memory, parts = rank.memory, []
    if memory.pss_peak_bytes is not None:
        limit = ""
        if memory.limit_bytes:
            # Pages of files that another cgroup has read do not count in this one's limit.
            within = memory.pss_peak_bytes <= memory.limit_bytes
            told = word(" of {limit} ({scope})") if within else word(" with mapped files; limit {limit} ({scope})")
            scope = style.say(memory.limit_scope or word("host"))
            limit = style.say(told, limit=size(memory.limit_bytes), scope=scope)
        parts.append(style.say("memory {peak} at most", peak=size(memory.pss_peak_bytes)) + limit)
    if memory.swap_bytes:
        parts.append(style.say("{swapped} swapped out", swapped=size(memory.swap_bytes)))
    if memory.shm_bytes:
        parts.append(style.say("shared memory {used}", used=size(memory.shm_bytes)))
    if rank.fds.open_peak is not None:
        limit = style.say(" of {limit}", limit=rank.fds.limit) if rank.fds.limit else ""
        parts.append(style.say("{peak} open files at most", peak=rank.fds.open_peak) + limit)
    for gpu in rank.gpus:
        busy = "" if gpu.utilization_mean is None else style.say(" {busy} busy", busy=percent(gpu.utilization_mean))
        parts.append(f"GPU {gpu.index}{busy}")
    if parts:
        yield from style.wrapped(style.listed(parts), "  ")


def _surely(file: SlowFile) -> bool:
    """Its seconds are estimated from looks a second or two apart: one that met a wait says nothing of its length."""
    return file.reads >= LOOKS or file.seconds > LOOKS


def _files(rank: Rank, style: Style) -> Iterator[str]:
    least = FILES_WORTH * rank.wall_seconds
    slow = [file for file in rank.slow_files if file.seconds >= least and _surely(file)]
    for file in sorted(slow, key=lambda file: -file.seconds)[:FILES_SHOWN]:
        head = style.say("  {spent} reading  ", spent=f"{seconds(file.seconds):>9}")
        yield from style.wrapped(style.say("{path} ({reads:# read|# reads})", path=file.path, reads=file.reads), head)
    logs = [log for log in rank.logs if log.seconds >= least]
    for log in sorted(logs, key=lambda log: -log.seconds)[:FILES_SHOWN]:
        told = style.say(
            "{path} ({kind}, {writes:# write|# writes}, {size})",
            path=log.path, kind=log.kind, writes=log.writes, size=size(log.bytes),
        )  # fmt: skip
        yield from style.wrapped(told, style.say("  {spent} logging  ", spent=f"{seconds(log.seconds):>9}"))
