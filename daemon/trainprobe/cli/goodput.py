"""A job's goodput in a run's text: one line, and one more where the progress that was lost cannot be known."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.cli.style import Style
from trainprobe.model.amounts import percent, seconds
from trainprobe.model.report import Run
from trainprobe.text.saying import word

SOURCES = {
    "startup": word("startup"),
    "training_prep": word("preparation"),
    "data_loading": word("data loading"),
    "checkpoint_save": word("checkpoint saves"),
    "checkpoint_restore": word("checkpoint restore"),
    "wasted_progress": word("wasted progress"),
    "recovery": word("recovery"),
    "evaluation": word("evaluation"),
    "recompilation": word("recompilation"),
    "other": word("other"),
}
LEAST = 0.005  # of the wall time: what took less is not shown
UNKNOWN = word("which checkpoint was resumed is not known, so the progress that was lost is not, either")


def account(run: Run, style: Style) -> Iterator[str]:
    """Nothing without an account, and of a first attempt that lost no progress: where its time went says it all."""
    goodput, wall = run.goodput, run.goodput.wall_seconds
    if goodput.ratio is None or (goodput.attempt == 1 and goodput.wasted_progress_seconds == 0):
        return
    spent = sorted(goodput.badput.items(), key=lambda pair: -pair[1])
    parts = style.listed(
        f"{style.say(SOURCES.get(name, name))} {seconds(value)}" for name, value in spent if value >= LEAST * wall
    )
    share = percent(goodput.ratio)
    if goodput.attempt > 1:
        line = style.say(
            "{share} of {wall} in {number} attempts", share=share, wall=seconds(wall), number=goodput.attempt
        )
    else:
        line = style.say("{share} of {wall}", share=share, wall=seconds(wall))
    yield from style.wrapped(f"{style.label(line)}{parts}" if parts else line, "  ", "    ")
    if goodput.wasted_progress_seconds is None:
        yield from style.wrapped(style.say(UNKNOWN), "  ", "    ")
