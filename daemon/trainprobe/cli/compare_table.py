"""The tables of ``trainprobe compare``: figures of both runs, and where a step goes."""

from __future__ import annotations

from trainprobe.advise.compared_figures import LEAST, Figure
from trainprobe.advise.comparison import Comparison, Part
from trainprobe.cli import cells
from trainprobe.cli.style import Style
from trainprobe.model.amounts import percent, seconds, size
from trainprobe.text.saying import word

NAME, VALUE = 26, 10
MANY = 3.0  # times: what changed by more is told as a factor


def part_name(part: Part, style: Style) -> str:
    if part.kind == "rest":
        return style.say("what stalled steps take besides")
    return style.say("stalls by {cause}", cause=part.name) if part.kind == "stall" else part.name


def figure_row(figure: Figure, style: Style) -> str:
    a, b = (_value(value, figure.unit) for value in (figure.a, figure.b))
    tail = "" if figure.change is None else _change(figure.change, style)
    unsure = figure.change is not None and abs(figure.change) > LEAST
    return row(style.say(figure.name), a, b, tail + _judged(figure.better, tail, style, unsure=unsure))


def _judged(better: int | None, tail: str, style: Style, *, unsure: bool = False) -> str:
    """B is better, worse, or neither for certain; nothing where that was not judged. ``unsure``: by much, but maybe by
    chance."""
    if better is None or not tail:
        return ""
    neither = word("may be chance") if unsure else word("even")
    judged, look = {1: (word("better"), "green"), -1: (word("worse"), "red"), 0: (neither, "dim")}[better]
    return " " * max(1, 10 - len(tail)) + style.paint(style.say(judged), "bold" if better else look, look)


def _change(change: float, style: Style) -> str:
    if abs(change) < 0.0005:
        return "≈" if style.unicode else "="
    return f"{100 * change:+.1f} %" if change < MANY else f"x {1 + change:.1f}"


def part_row(part: Part, even: float, style: Style, made: Comparison) -> str:
    """``even``: by what the part differs at equal speed of the processors: without a verdict where the clock says
    otherwise, or where the whole has none."""
    tail, least = signed(part.change), LEAST * (made.a_step + made.b_step) / 2
    better: int | None = None
    if max(abs(part.change), abs(even)) < least:
        better = 0
    elif made.is_significant and min(abs(part.change), abs(even)) >= least and part.change * even > 0:
        better = 1 if part.change < 0 else -1
    return row(
        part_name(part, style), step(max(part.a, 0.0)), step(max(part.b, 0.0)), tail + _judged(better, tail, style)
    )


def row(name: str, a: str, b: str, tail: str) -> str:
    return f"  {cells.fill(name, NAME)} {a:>{VALUE}} {b:>{VALUE}}   {tail}"


def step(value: float) -> str:
    """A step's seconds, fine enough that a difference of a few per cent can be seen: 6.83 ms."""
    return f"{1000 * value:#.3g} ms" if 0.001 <= value < 0.09995 else seconds(value)


def signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{step(abs(value))}"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return step(value)
    if unit == "ratio":
        return percent(value)
    if unit == "bytes":
        return size(value)
    return f"{value:.0f}" if unit == "count" else f"{value:.2f}"
