"""``trainprobe compare`` as a gate: limits that B must keep, one line, and an exit code."""

from __future__ import annotations

import argparse
import re

from trainprobe.advise.comparison import Comparison
from trainprobe.cli.style import Style
from trainprobe.model.amounts import percent
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank
from trainprobe.text.command_line import invalid
from trainprobe.text.saying import saying

_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Relative; None: not limited."""

    step_time: float | None = None  # by which B's steps may be longer than A's
    lost: float | None = None  # share of B's wall time

    @property
    def any(self) -> bool:
        return self.step_time is not None or self.lost is not None


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether B keeps the limits, and the line that says so."""

    kept: bool
    line: str


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("as a gate: one line, and exit code 1 where a limit is passed")
    group.add_argument(
        "--max-step-time-regression", type=share, metavar="5%", help="B's steps may be longer than A's by so much"
    )
    group.add_argument("--max-lost", type=share, metavar="10%", help="so much of B's time may be lost")


def limits(args: argparse.Namespace) -> GateLimits:
    return GateLimits(args.max_step_time_regression, args.max_lost)


def share(text: str) -> float:
    """5% as 0.05."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise invalid(saying("{text} is no percentage; example: 5%", text=repr(text)))
    return float(found[1]) / 100


def judged(made: Comparison, b: Rank, limits: GateLimits, style: Style) -> Judged:
    """A regression counts where it is more than chance: the limit has to be passed, and a difference to be told."""
    passed, parts = [], []
    if limits.step_time is not None:
        if made.bounds is None:
            return Judged(False, style.say("FAIL: too few ordinary steps to compare step times: 50 of each are needed"))
        longer = 1 / (1 + made.change) - 1
        text = style.say(
            "step time {change}, speed {speed} (limit +{limit})",
            change=_signed(longer), speed=_signed(made.change), limit=percent(limits.step_time),
        )  # fmt: skip
        parts.append(text)
        if longer > limits.step_time:
            if made.is_significant:
                passed.append(text)
            else:
                parts[-1] += style.say(", up to {least} may be chance", least=percent(made.least))
    if limits.lost is not None:
        lost = sum(b.lost.values()) / b.wall_seconds if b.wall_seconds > 0 else 0.0
        text = style.say("lost {lost} of B's time (limit {limit})", lost=percent(lost), limit=percent(limits.lost))
        if b.lost:
            text += style.say(", most to {cause}", cause=max(b.lost, key=lambda one: b.lost[one]))
        parts.append(text)
        if lost > limits.lost:
            passed.append(text)
    told = style.say("; ").join(passed or parts)
    return Judged(not passed, style.say("FAIL: {told}" if passed else "OK: {told}", told=told))


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '-'}{percent(abs(change))}"
