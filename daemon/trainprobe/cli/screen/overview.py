"""The first screen: all runs, and below them the one that is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.cli import cells
from trainprobe.cli.screen import figures
from trainprobe.cli.screen.history import RankHistory
from trainprobe.cli.sections import sections
from trainprobe.cli.style import Style, inert
from trainprobe.cli.text import ranks_table, worst
from trainprobe.model.amounts import percent, seconds, size
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank, Report, Run, scheduled_as
from trainprobe.text.saying import word
from trainprobe.wire import codec

LEAST_ROWS = 3
SPARKS = 8
WIDE = 66  # columns from which speed is drawn, not only told, and the report stands below
OLD = 15.0  # seconds: a daemon that nobody follows publishes every ten
LABEL = 15  # columns beside the text of a line
MOSTLY = 55.0  # seconds that are called a minute
HEAD = 3  # lines above the list
LEAST_GRAPH, MOST_GRAPH = 6, 24  # lines of a graph, its title among them


@dataclass(slots=True)
class Choice:
    run: str = ""
    by_loss: bool = False  # the runs that lose most first; else the newest first
    top: int = 0  # the first row of the list that is shown
    rows: list[str] = field(default_factory=list)  # runs in the order of the list


def ordered(report: Report, choice: Choice) -> list[Run]:
    """Runs that go on before those that ended; within, the newest or the worst first."""

    def rank(run: Run) -> tuple[object, ...]:
        lost = max(map(_share, run.ranks), default=0.0) if choice.by_loss else 0.0
        return (run.ended is not None, -_stalled(run) if choice.by_loss else 0, -lost, -run.started, run.key)

    return sorted(report.runs, key=rank)


def silence(age: float, style: Style) -> str:
    """What is to be said of a report that is ``age`` seconds old."""
    return style.say("nothing new for {age}: is the daemon alive?", age=seconds(age)) if age > OLD else ""


def lines(
    report: Report, history: RankHistory, choice: Choice, style: Style, height: int, trouble: str = ""
) -> list[str]:
    """The screen, at most ``height`` lines. ``trouble``: why there is no newer report."""
    runs = ordered(report, choice)
    choice.rows = [run.key for run in runs]
    if choice.run not in choice.rows:
        choice.run = choice.rows[0] if runs else ""
    head = _head(report, runs, style, trouble)
    foot = style.paint(cells.fitting([*map(style.say, KEYS)], style.width), "dim")
    if not runs:
        waiting = style.wrapped(style.say("No training is seen yet. It appears here as soon as one runs."), "  ")
        return [*head, "", *waiting, *[""] * max(0, height - len(head) - len(waiting) - 2), foot][:height]
    chosen = next(run for run in runs if run.key == choice.run)
    room = max(LEAST_ROWS, height - HEAD - 2)
    panel = _panel(chosen, history, style)
    wanted = min(len(runs), max(LEAST_ROWS, room // 3, room - len(panel)))
    panel = panel[: max(0, room - wanted)]
    shown = min(len(runs), room - len(panel))
    names = _name_room(runs, style)
    rows = _rows(runs, history, choice, style, shown, names)
    if chosen.ranks and style.width >= WIDE and (left := room - shown - len(panel)) > 0:
        more = further(chosen, worst(chosen), style)[:left]
        panel += more[:-2] if more[-2:-1] == [""] else more  # no title without a line below it
        if (left := room - shown - len(panel)) >= LEAST_GRAPH and chosen.ended is None:
            panel += _graph(chosen, history, style, min(MOST_GRAPH, left))
    empty = max(0, height - len(head) - 1 - len(rows) - len(panel) - 1)
    return [*head, _columns(history, runs, names, style), *rows, *panel, *[""] * empty, foot][:height]


KEYS = (word("↑↓ choose"), word("Enter details"), word("q quit"), word("h help"), word("s sort by loss"))


def _head(report: Report, runs: Sequence[Run], style: Style, trouble: str) -> list[str]:
    live = [run for run in runs if run.ended is None]
    stalled = [run for run in live if _stalled(run)]
    host = report.host
    parts = ["trainprobe", inert(host.name) or "?"]
    parts.append(style.say("{live} running, {ended} ended", live=len(live), ended=len(runs) - len(live)))
    if host.swap_used_bytes is not None and host.swap_size_bytes:
        parts.append(
            style.say("swap {used} of {size}", used=size(host.swap_used_bytes), size=size(host.swap_size_bytes))
        )
    parts.append(style.clock(report.generated))
    first = style.paint(cells.cut(" · ".join(parts), style.width), "bold")
    if trouble:
        return [first, style.paint(cells.cut(trouble, style.width), "bold", "red")]
    if stalled:
        names = ", ".join(inert(run.key) for run in stalled)
        text = style.say("STALLED now: {names}", names=names)
        if len(stalled) > 1:
            text = style.say("STALLED now, {number} runs: {names}", number=len(stalled), names=names)
        return [first, style.paint(cells.cut(text, style.width), "bold", "red")]
    bad = [f"{inert(name)}: {inert(s.reason)}" for name, s in sorted(report.sources.items()) if s.state != "up"]
    return [first, style.paint(cells.cut("! " + "; ".join(bad), style.width), "yellow") if bad else ""]


def _columns(history: RankHistory, runs: Sequence[Run], names: int, style: Style) -> str:
    text = "  " + cells.fill(style.say("RUN"), names)
    if style.width >= WIDE:
        text += " " + cells.fill_left(style.say("STEPS"), 7)
    text += " " + cells.fill_left(style.say("IT/S"), 6) + " "
    if style.width >= WIDE:
        text += cells.fill(style.say("MINUTE"), SPARKS + 1)
    live = [(run, worst(run)) for run in runs if run.ranks and run.ended is None]
    minute = any(history.minute((run.key, rank.name), figures.PHASES) for run, rank in live)
    text += cells.fill_left(style.say("LOST 1m") if minute else style.say("LOST"), 7) + f"  {style.say('NOW')}"
    return style.paint(cells.pad(text, style.width), "reverse" if style.colour else "bold")


def _name_room(runs: Sequence[Run], style: Style) -> int:
    """Columns for the runs' names: what the other columns leave, and what says how a run stalls."""
    others, state = (36, 25) if style.width >= WIDE else (19, 14)
    states = [cells.width(figures.state(run, worst(run), style)) for run in runs if run.ranks]
    longest = max((cells.width(inert(run.key)) for run in runs), default=0)
    return min(max(longest, 10), max(12, style.width - others - min(max(states, default=0), state)))


def _name(key: str, room: int) -> str:
    """Cut where runs are alike: what tells them apart stands behind the last dash."""
    head, dash, tail = inert(key).rpartition("-")
    left = room - cells.width(dash + tail)
    return cells.pad(cells.cut(head, left) + dash + tail if left > 1 else inert(key), room)


def _rows(runs: Sequence[Run], history: RankHistory, choice: Choice, style: Style, shown: int, names: int) -> list[str]:
    at = choice.rows.index(choice.run)
    choice.top = max(0, min(choice.top, at, len(runs) - shown))
    choice.top = max(choice.top, at - shown + 1)
    shown_runs = runs[choice.top : choice.top + shown]
    return [_row(run, history, style, run.key == choice.run, _name(run.key, names)) for run in shown_runs]


def _row(run: Run, history: RankHistory, style: Style, chosen: bool, name: str) -> str:
    mark = "> " if chosen else "  "
    if not run.ranks:
        return style.paint(cells.cut(f"{mark}{name}  {style.say('starts')}", style.width), "bold" if chosen else "dim")
    rank = worst(run)
    key = (run.key, rank.name)
    told = figures.speed(rank, key, history) if run.ended is None else rank.steps.per_second
    speed = "" if told is None else f"{told:.2f}"
    sparks = figures.sparkline(history.speeds(key, SPARKS), style) if run.ended is None else " " * SPARKS
    lost = _minute_lost(run, rank, history)
    several = style.say(" ({ranks} ranks)", ranks=len(run.ranks)) if len(run.ranks) > 1 else ""
    wide = (f" {rank.steps.count:>7}", f"{sparks} ") if style.width >= WIDE else ("", "")
    left = f"{mark}{name}{wide[0]} {speed:>6} {wide[1]}{percent(min(lost, 1.0)):>7}  "
    right = cells.cut(figures.state(run, rank, style) + several, max(0, style.width - cells.width(left)))
    look = "dim" if run.ended is not None else ""
    if figures.alarms(rank) and run.ended is None:
        right = style.paint(right, "bold", "red")
    left = style.paint(left, *(look_ for look_ in ("bold" if chosen else "", look) if look_))
    return left + right


def _minute_lost(run: Run, rank: Rank, history: RankHistory) -> float:
    """The share lost in the last minute; of an ended run, in all its time."""
    minute = history.minute((run.key, rank.name), figures.PHASES) if run.ended is None else None
    return sum(minute.lost.values()) if minute is not None else _share(rank)


def _panel(run: Run, history: RankHistory, style: Style) -> list[str]:
    """The chosen run: what matters first, because what does not fit is left out."""
    title = " " + " · ".join(inert(part) for part in (run.key, run.user, scheduled_as(run)) if part)
    if not run.ranks:
        return [_rule(title, style)]
    rank = worst(run)
    title += f" · pid {rank.pid}"
    if rank.world_size > 1:
        title += style.say(" · rank {rank} of {world}", rank=rank.name, world=rank.world_size)
    return [_rule(title, style), *body(run, rank, history, style)]


def body(run: Run, rank: Rank, history: RankHistory, style: Style) -> list[str]:
    """The state of one rank in about ten lines."""
    out = _stall(rank, style)
    if not out:
        out += figures.labelled("verdict", inert(rank.verdict.summary) or style.say("none yet"), style)
    minute = history.minute((run.key, rank.name), figures.PHASES)
    if minute is not None and run.ended is None:
        told = _speeds(rank, run, history, style)
        room = max(10, style.width - LABEL - cells.width(told) - 1)
        out += [
            " " + cells.fill(_since(minute.seconds, style), 13)
            + figures.minute_bar(minute, history.timeline((run.key, rank.name), style.width - 15), style)
        ]  # fmt: skip
        out += figures.minute_told(minute, style)
        out += figures.labelled("the thread", figures.states_told(minute, style), style)
        sparks = figures.sparkline(history.speeds((run.key, rank.name), room), style)
        out += figures.labelled("it/s", f"{sparks} {told}", style)
    out += figures.labelled("workers", figures.workers(rank, style), style)
    for number, part in enumerate(figures.headroom(run, rank, history.now, style)):
        if number and cells.width(out[-1]) + cells.width(part) + 3 <= style.width:
            out[-1] += f" · {part}"
        else:
            out += figures.labelled("" if number else "headroom", part, style)
    now = history.gpus if run.ended is None else {}
    if gpus := figures.gpus(rank, now, style):
        out += figures.labelled("GPU", gpus, style)
    return out


def _graph(run: Run, history: RankHistory, style: Style, height: int) -> list[str]:
    """Steps per second over the last minute, ``height`` lines with the title."""
    rank = worst(run)
    values = history.speeds((run.key, rank.name), style.width - LABEL)
    most = max((value for value in values if value is not None), default=0.0)
    if most <= 0:
        return []
    rows = figures.columns(values, height - 2, style)
    labels = [f"{most:.2f}", *[""] * (len(rows) - 2), "0"]
    title = style.paint(style.say("it/s in the last minute"), "bold")
    return ["", title, *(f" {cells.fill_left(label, 12)} {row}" for label, row in zip(labels, rows))]


def _since(passed: float, style: Style) -> str:
    return style.say("last minute") if passed > MOSTLY else style.say("last {passed} s", passed=round(passed))


def further(run: Run, rank: Rank, style: Style) -> list[str]:
    """What the report says besides: all ranks, and the sections of one."""
    said = codec.with_texts(run, inert)
    same = next(one for one in said.ranks if one.name == inert(rank.name))
    ranks = ["", *ranks_table(said, same, style)] if len(run.ranks) > 1 else []
    return [*ranks, *sections(said, same, style)]


def _stall(rank: Rank, style: Style) -> list[str]:
    stall = figures.open_stall(rank)
    if stall is None:
        return []
    out = [
        style.paint(line, "bold", "red") if figures.alarms(rank) else style.paint(line, "bold")
        for line in figures.labelled(
            "STALL",
            style.say(
                "for {duration}, {cause}: {summary}",
                duration=seconds(stall.seconds), cause=stall.cause,
                summary=figures.shortened(inert(stall.summary), style.width - LABEL),
            ),
            style,
        )
    ]  # fmt: skip
    if stall.chain:
        arrow = " ← " if style.unicode else " <- "
        out += figures.labelled(
            "", arrow.join(figures.shortened(inert(link), style.width - LABEL) for link in stall.chain), style
        )
    if line := figures.python_line(stall):
        out += figures.labelled("in Python", line, style)
    if stall.advice:
        out += figures.labelled("to do", inert(stall.advice[0]), style)
    return out


def _speeds(rank: Rank, run: Run, history: RankHistory, style: Style) -> str:
    now = figures.speed(rank, (run.key, rank.name), history)
    if now is None:
        return style.say("no steps yet")
    text = style.say("{now} now", now=f"{now:.2f}")
    if rank.steps.per_second is not None:
        text += style.say(", {all} in all", all=f"{rank.steps.per_second:.2f}")
    return text


def _rule(title: str, style: Style) -> str:
    shown = cells.cut(title, style.width - 6) + " "
    line = "─" if style.unicode else "-"
    return style.paint(line * 2 + shown + line * max(0, style.width - 2 - cells.width(shown)), "dim")


def _stalled(run: Run) -> int:
    return int(run.ended is None and any(map(figures.alarms, run.ranks)))


def _share(rank: Rank) -> float:
    return sum(rank.lost.values()) / rank.wall_seconds if rank.wall_seconds > 0 else 0.0
