"""The settings that a run should have: measured now, proposed, what it gains, what memory it then takes, and why.

examples:
  trainprobe advise                        the run with the most steps of those that the daemon knows
  trainprobe advise --run train.py-3f2a
  trainprobe advise report.json            a report that `trainprobe run -o report.json -- …` wrote
  trainprobe advise --json report.json     for scripts

Everything is arithmetic from what was measured in this run; what was not measured is said. A gain is what is safe to
promise. Watch at least a minute, a save and the edge of an epoch, and a run without other work on the same machine."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from trainprobe.advise.changes import changes_of
from trainprobe.advise.facts import ProposedSetting
from trainprobe.advise.settings import Advice, advice
from trainprobe.cli import OK, cells, show, start
from trainprobe.cli.choosing import Chosen, choose
from trainprobe.cli.style import Style, inert
from trainprobe.model.amounts import percent, seconds, size
from trainprobe.model.report import Rank
from trainprobe.runtime.publishing import rundir
from trainprobe.text.saying import Saying, word
from trainprobe.wire import codec

NAME, NOW, PROPOSED, SETTING = 20, 20, 10, 34
WORTH = 0.01  # of the run: what is lost to a cause is named where no setting helps
TELLING = 1.1  # times the gain that is promised: from there on it is said how much it may be
LOOK = {word("safe"): "green", word("tight"): "yellow", word("out of memory"): "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", nargs="?", metavar="REPORT.json", help="what -o wrote (default: ask the daemon)")
    parser.add_argument("--run", metavar="ID", default="", help="this run; the beginning of its name is enough")
    parser.add_argument("--rank", metavar="N", default="", help="this rank (default: the one that lost most)")
    parser.add_argument("--json", action="store_true", help="for scripts; times in seconds, memory in bytes")
    parser.add_argument("--directory", type=Path, default=rundir.DIRECTORY, help=argparse.SUPPRESS)


def act(args: argparse.Namespace) -> int:
    chosen = choose(args.report, args.run, args.directory, args.rank)
    if not args.json:
        chosen = codec.with_texts(chosen, inert)
    made = advice(chosen.run, chosen.rank, chosen.cpus)
    if args.json:
        show(json.dumps(as_json(chosen, made), indent=2))
    else:
        show("\n".join(advice_lines(chosen, made, Style.of(sys.stdout, os.environ, args.lang))))
    return OK


def advice_lines(chosen: Chosen, made: Advice, style: Style) -> Iterator[str]:
    run, rank = chosen.run, chosen.rank
    of = style.say(" rank {rank}", rank=rank.name) if len(run.ranks) > 1 else ""
    yield style.paint(
        style.say(
            "{run}{of}: {steps:# step|# steps} in {wall}",
            run=inert(run.key), of=of, steps=made.steps, wall=seconds(made.wall),
        ),
        "bold",
    )  # fmt: skip
    if made.refused is not None:
        yield from style.wrapped(_sentence(made.refused, style))
        yield from _elsewhere(rank, made, style)
        return
    yield from style.wrapped(_headline(made, style))
    proposals = made.proposals
    if proposals:
        yield ""
        rooms = ((word("setting"), NAME), (word("now"), NOW), (word("proposed"), PROPOSED))
        head = "  ".join(cells.fill(style.say(title), room) for title, room in rooms)
        yield style.paint(f"  {head}  {style.say('gain')}", "dim")
        for setting in proposals:
            yield from _proposal(setting, made, style)
    yield from _elsewhere(rank, made, style)
    yield ""
    yield style.paint(style.say("Leave as they are") if proposals else style.say("What was looked at"), "bold")
    for setting in made.settings:
        if setting.proposed is None:
            names = style.say(setting.name), _named(setting, style)
            named = style.listed(name for name in names if name)
            name = style.say("{setting} ({now})", setting=named, now=inert(_sentence(setting.now, style)))
            yield from style.wrapped(f"{style.label(name)}{inert(_sentence(setting.reason, style))}", "  - ", "    ")
    yield ""
    yield from _memory(made, style)
    lines = [*start.account(rank, style), *start.advice(rank, style)]
    if lines:
        yield ""
        yield style.paint(style.say("The start"), "bold")
        yield from lines


def _memory(made: Advice, style: Style) -> Iterator[str]:
    """What other settings would take, and why that may be wrong."""
    yield style.paint(style.say("Memory, now and with other settings"), "bold")
    if made.memory is None:
        text = style.say("not known: its processes were not all read since its workers were started; watch it longer")
        yield from style.wrapped(text, "  - ", "    ")
        return
    for one in (made.memory.now, *made.taken):
        ahead = f", prefetch_factor={one.prefetch_factor}" if one.num_workers else ""
        setting = f"num_workers={one.num_workers}{ahead}"
        yield f"  {cells.fill(setting, SETTING)}  {size(one.bytes)}{_judged(one.verdict, style)}"
    for why in made.unsure:
        yield from style.wrapped(_sentence(why, style), "  - ", "    ")


def _headline(made: Advice, style: Style) -> str:
    if not made.proposals:
        return style.say("No setting is predicted to gain 1 % of the run.")
    gain = style.say(
        "All proposals together: {gain} of {wall} ({share})",
        gain=seconds(made.gain), wall=seconds(made.wall), share=percent(made.gain / made.wall),
    )  # fmt: skip
    speed = made.speed
    if speed is None:
        return gain
    return gain + style.say(", {now} it/s become {then}", now=f"{speed[0]:.2f}", then=f"{speed[1]:.2f}")


def _elsewhere(rank: Rank, made: Advice, style: Style) -> Iterator[str]:
    """What is lost to causes that no proposal is about, and what is to be done about each."""
    left = [
        (cause, lost) for cause, lost in rank.lost.items() if lost >= WORTH * made.wall > 0 and cause not in made.mended
    ]
    if not left:
        return
    yield ""
    yield style.paint(style.say("What none of these settings changes"), "bold")
    changes = changes_of(style.speaker.report(rank))
    for cause, lost in sorted(left, key=lambda pair: -pair[1]):
        advice = changes.get(cause, [style.say("no setting is known to help")])[0]
        what = style.label(f"{cause} {seconds(lost)} ({percent(lost / made.wall)})")
        advice_lines = f"{what}{inert(advice)}"
        yield from style.wrapped(advice_lines, "  - ", "    ")


def _proposal(setting: ProposedSetting, made: Advice, style: Style) -> Iterator[str]:
    columns = (
        (style.say(setting.name), NAME),
        (inert(_sentence(setting.now, style)), NOW),
        (setting.proposed or "", PROPOSED),
    )
    line = "  ".join(cells.fill(text, room) for text, room in columns)
    yield style.paint(f"  {line}  {seconds(setting.gain)} ({percent(setting.gain / made.wall)})", "bold")
    if setting.setting is not None:
        yield from style.painted(_named(setting, style), "bold", first="      ")
    yield from style.wrapped(inert(_sentence(setting.reason, style)), "      ")
    if setting.gain_at_most is not None and setting.gain_at_most > TELLING * setting.gain:
        text = style.say("so much is safe; at best it is {most}", most=seconds(setting.gain_at_most))
        yield from style.wrapped(text, "      ")
    if setting.memory is not None:
        text = style.say("memory then: {memory}", memory=size(setting.memory))
        yield f"      {text}{_judged(setting.verdict, style)}"
    if setting.limit is not None:
        yield from style.wrapped(inert(_sentence(setting.limit, style)), f"      {style.label(style.say('limit'))}")


def _named(setting: ProposedSetting, style: Style) -> str:
    named = setting.setting
    return "" if named is None else style.speaker.message(named, str(named))


def _judged(verdict: str, style: Style) -> str:
    return f" ({style.paint(style.say(verdict), LOOK[verdict])})" if verdict else ""


def _sentence(what: Saying, style: Style) -> str:
    return style.say(what.template, **what.values)


def as_json(chosen: Chosen, made: Advice) -> dict[str, object]:
    """The same for scripts, in English."""
    settings = [
        {**dataclasses.asdict(one), "now": str(one.now), "reason": str(one.reason),
         "limit": None if one.limit is None else str(one.limit),
         "setting": None if one.setting is None else str(one.setting)}
        for one in made.settings
    ]  # fmt: skip
    return {
        "run": chosen.run.key,
        "rank": chosen.rank.name,
        "wall_seconds": made.wall,
        "gain_seconds": made.gain,
        "refused": None if made.refused is None else str(made.refused),
        "settings": settings,
        "causes": [
            {"cause": cause, "seconds": lost, "by_settings": cause in made.mended,
             "advice": changes_of(chosen.rank).get(cause, [])}
            for cause, lost in chosen.rank.lost.items() if lost >= WORTH * made.wall
        ],
        "memory": None if made.memory is None else {
            "now": dataclasses.asdict(made.memory.now),
            "then": [dataclasses.asdict(one) for one in made.taken],
            "unsure": [str(why) for why in made.unsure],
        },
    }  # fmt: skip
