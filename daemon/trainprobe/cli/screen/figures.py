"""Small pictures and figures of one rank, each a line or less."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from trainprobe.cli import cells
from trainprobe.cli.screen.history import Key, Minute, RankHistory
from trainprobe.cli.sections import descending
from trainprobe.cli.style import GLUE, Style, inert
from trainprobe.model.amounts import percent, seconds, size
from trainprobe.model.cause import Phase
from trainprobe.model.report import GpuState, Rank, Run, Stall, has_ended

PHASES = frozenset(phase.value for phase in Phase)
LEAST = 0.005  # of a minute: what is less is not told
ALARM = 1.0  # seconds
SPARKS, ASCII_SPARKS = "▁▂▃▄▅▆▇█", "_.-=+*#"
BLOCKS, ASCII_BLOCKS = ("█", "░"), ("#", ".")  # productive, phases
LOST_BLOCKS, ASCII_LOST_BLOCKS = ("▓", "▒"), ("!", "+")
LOST_LOOKS = ("red", "magenta", "yellow", "blue")
PATH = re.compile(r"/\S+")
RUNS_OUT = {
    "memory": ("oom_kill", "memory_pressure", "swap", "gpu_memory"),
    "files": ("fd_exhaustion",),
    "shm": ("shm_exhaustion",),
}


def sparkline(values: Sequence[float | None], style: Style) -> str:
    """One character for each value, by its height against the largest; a space where nothing was seen."""
    marks = SPARKS if style.unicode else ASCII_SPARKS
    most = max((value for value in values if value is not None), default=0.0)
    if most <= 0:
        return "".join(" " if value is None else marks[0] for value in values)
    last = len(marks) - 1
    return "".join(" " if value is None else marks[round(value / most * last)] for value in values)


def columns(values: Sequence[float | None], rows: int, style: Style) -> list[str]:
    """The same as columns of so many lines, the highest first."""
    marks = f" {SPARKS if style.unicode else ASCII_BLOCKS[0]}"
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    heights = [0.0 if value is None else value / most * rows for value in values]
    last = len(marks) - 1
    return [
        "".join(marks[round(min(1.0, max(0.0, height - row)) * last)] for height in heights)
        for row in reversed(range(rows))
    ]


def minute_bar(minute: Minute, timeline: Sequence[str], style: Style) -> str:
    """Productive, phases and each cause as one bar, in the order of time: a block for each part of the timeline."""
    productive, phase = BLOCKS if style.unicode else ASCII_BLOCKS
    looks = {name: (block, look) for name, _, block, look in _causes(minute, style)}
    looks |= dict.fromkeys(minute.phases, (phase, "cyan"))
    parts = groupby(looks.get(name, (productive, "green")) for name in timeline)
    return "".join(style.paint(block * len(list(alike)), look) for (block, look), alike in parts)


def _causes(minute: Minute, style: Style) -> list[tuple[str, float, str, str]]:
    """What is lost to each cause, most first, with its block and colour in the bar."""
    blocks = LOST_BLOCKS if style.unicode else ASCII_LOST_BLOCKS
    shown = [(name, share) for name, share in descending(minute.lost) if share >= LEAST]
    return [
        (name, share, blocks[at % len(blocks)], LOST_LOOKS[at % len(LOST_LOOKS)])
        for at, (name, share) in enumerate(shown)
    ]  # fmt: skip


def minute_told(minute: Minute, style: Style) -> list[str]:
    """The same in words, what is lost first, each cause behind its block of the bar."""
    causes = _causes(minute, style)
    parts = [f"{block}{GLUE}{name} {percent(share)}" for name, share, block, _ in causes]
    parts.append(f"{style.say('productive')} {percent(minute.productive)}")
    parts += [f"{style.say(name)} {percent(share)}" for name, share in descending(minute.phases) if share >= LEAST]
    lines = [line.replace(GLUE, " ") for line in labelled("", style.listed(parts), style)]
    for name, _, block, look in causes:  # not before the lines are made: colours take no room
        lines = [line.replace(f"{block} {name}", f"{style.paint(block, look)} {name}") for line in lines]
    return lines


def shortened(text: str, room: int) -> str:
    """Paths longer than ``room`` as their last parts: no line breaks them."""
    return PATH.sub(lambda found: _tail(found[0], room) if cells.width(found[0]) > room else found[0], text)


def _tail(path: str, room: int) -> str:
    kept = ""
    for part in reversed(path.split("/")):
        if cells.width(part) + cells.width(kept) + 2 > room:
            break
        kept = f"/{part}{kept}"
    return f"…{kept}" if kept else cells.cut(path, room)


def states_told(minute: Minute, style: Style) -> str:
    return style.listed(f"{name} {percent(share)}" for name, share in descending(minute.states) if share >= LEAST)


def speed(rank: Rank, key: Key, history: RankHistory) -> float | None:
    """Steps per second now; those of the whole run until there is a now. None: no step was seen."""
    now = history.speed(key)
    return rank.steps.per_second if now is None else now


def open_stall(rank: Rank) -> Stall | None:
    stall = rank.stalls[-1] if rank.stalls else None
    return stall if stall is not None and stall.end is None else None


def alarms(rank: Rank) -> bool:
    """Whether a stall goes on that is worth red: shorter ones end before anybody has read of them."""
    stall = open_stall(rank)
    return stall is not None and stall.seconds > ALARM


def state(run: Run, rank: Rank, style: Style) -> str:
    """What the rank does now, in a few words; the first word is the most important."""
    if run.ended is not None or has_ended(rank):
        ended = style.say("ended")
        if rank.verdict.kind == "end" and rank.verdict.cause:
            return f"{ended}: {rank.verdict.cause}"
        reason = rank.exit.reason if rank.exit is not None else ""
        return f"{ended}: {inert(reason)}" if reason else ended
    stall = open_stall(rank)
    if stall is not None:
        return style.say("STALL {duration} {cause}", duration=seconds(stall.seconds), cause=stall.cause)
    phase = rank.counters.phase
    if phase != "train":
        return style.say(phase)
    return style.say("no steps seen") if not rank.steps.count else style.say("runs")


def python_line(stall: Stall) -> str | None:
    return inert(stall.python_stack[-1]) if stall.python_stack else None


def workers(rank: Rank, style: Style) -> str:
    """Loader workers alive, and how others ended."""
    told = rank.workers
    if not told.started:
        return style.say("no loader workers (num_workers=0)")
    bad = sum(number for reason, number in rank.counters.worker_exits.items() if reason != "finished")
    text = style.say("{live} alive, {started} started so far", live=told.live, started=told.started)
    return text + (style.say(", {bad} DIED", bad=bad) if bad else "")


def headroom(run: Run, rank: Rank, now: float, style: Style) -> list[str]:
    """Memory, shared memory and open files: used, limit, and at ``now`` the time left where it is in sight."""
    told = (("memory", _memory(run, rank, style)), ("shm", _shared(rank, style)), ("files", _files(rank, style)))
    return [text + _left(rank, what, now, style) for what, text in told if text]


def gpus(rank: Rank, now: Mapping[str, GpuState], style: Style) -> str:
    """Each GPU of the rank, as far as it was measured; ``now``: by uuid, of a run that goes on."""
    parts = []
    for gpu in rank.gpus:
        busy = "" if gpu.utilization_mean is None else style.say(" {busy} busy", busy=percent(gpu.utilization_mean))
        idle = "" if gpu.idle_seconds is None else style.say(", idle for {idle}", idle=seconds(gpu.idle_seconds))
        state = _gpu_now(now[gpu.uuid], style) if gpu.uuid in now else ""
        parts.append(f"GPU {gpu.index}{busy}{idle}{state}")
    return " · ".join(parts)


def _gpu_now(state: GpuState, style: Style) -> str:
    if state.state != "up":
        return style.paint(style.say(", DOES NOT ANSWER"), "bold", "red")
    text = "" if state.utilization is None else style.say(", now {busy}", busy=percent(state.utilization))
    if state.memory_used_bytes is not None and state.memory_total_bytes is not None:
        used, total = size(state.memory_used_bytes), size(state.memory_total_bytes)
        text += style.say(", memory {used} of {total}", used=used, total=total)
    return text


def time_left(rank: Rank, what: str, now: float) -> float | None:
    """Seconds from ``now`` until something runs out, as the latest warning foresaw it."""
    ends = [w.time + w.eta_seconds for w in rank.warnings if w.cause in RUNS_OUT[what] and w.eta_seconds is not None]
    return max(0.0, ends[-1] - now) if ends else None


def _memory(run: Run, rank: Rank, style: Style) -> str:
    used, limit, scope = run.memory.get("used_bytes"), run.memory.get("limit_bytes"), run.memory.get("scope")
    own = rank.memory.pss_bytes
    if not isinstance(used, int) or not isinstance(limit, int) or limit <= 0:
        return style.say("memory {own}", own=size(own)) if own is not None else ""
    text = style.say(
        "memory {used} of {limit} ({scope})", used=size(used), limit=size(limit), scope=style.say(str(scope))
    )
    if own is not None:
        text += style.say(", {own} of it this rank's", own=size(own))
    return text


def _shared(rank: Rank, style: Style) -> str:
    if not rank.memory.shm_bytes:
        return ""
    return style.say("shared memory {used}", used=size(rank.memory.shm_bytes))


def _files(rank: Rank, style: Style) -> str:
    used, limit = rank.counters.open_fds, rank.counters.max_fds
    if used is None:
        return ""
    if limit is None:
        return style.say("open files {used}", used=used)
    return style.say("open files {used} of {limit}", used=used, limit=limit)


def _left(rank: Rank, what: str, now: float, style: Style) -> str:
    left = time_left(rank, what, now)
    return "" if left is None else style.paint(style.say(" FULL IN {left}", left=seconds(left)), "bold", "red")


def labelled(label: str, text: str, style: Style) -> list[str]:
    return style.wrapped(text, " " + cells.fill(style.say(label), 13))
