"""The time to the first step, in a run's text and in what ``advise`` says."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.advise import startup
from trainprobe.cli.style import Style, inert
from trainprobe.model.amounts import seconds
from trainprobe.model.report import Rank
from trainprobe.text.saying import Saying

LEAST = 0.01  # of the time to the first step: what took less is not shown
RESTORES_SHOWN = 5


def account(rank: Rank, style: Style) -> Iterator[str]:
    whole = startup.total(rank.startup)
    if not whole:
        return
    spent = [(word, getattr(rank.startup, name) or 0.0) for name, word in startup.PARTS]
    shown = sorted(((word, value) for word, value in spent if value >= LEAST * whole), key=lambda part: -part[1])
    parts = style.listed(f"{style.say(word)} {seconds(value)}" for word, value in shown)
    yield from style.wrapped(
        style.say("{whole} to the first step: {parts}", whole=seconds(whole), parts=parts), "  ", "    "
    )
    rest = rank.counters.phase_seconds.get("startup", 0.0) - whole
    if rest >= LEAST * whole:
        told = style.say(
            "the other {rest} of the startup: first steps, until it is known what is ordinary", rest=seconds(rest)
        )
        yield from style.wrapped(told, "  ", "    ")
    for one in sorted(rank.restores, key=lambda one: -(one.seconds or 0.0))[:RESTORES_SHOWN]:
        yield from style.wrapped(_sentence(startup.restored(one), style), "  ", "    ")


def advice(rank: Rank, style: Style) -> Iterator[str]:
    for what, remedy in startup.proposals(rank):
        yield from style.wrapped(f"{style.label(_sentence(what, style))}{_sentence(remedy, style)}", "  - ", "    ")


def _sentence(what: Saying, style: Style) -> str:
    values = {name: style.say(str(value)) if name == "part" else value for name, value in what.values.items()}
    return inert(style.say(what.template, **values))
