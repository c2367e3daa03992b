"""Two runs side by side: what became better or worse, how sure that is, and what explains the difference.

examples:
  trainprobe compare before.json after.json          two reports of `trainprobe run -o`
  trainprobe compare train.py-3f2a train.py-77c0     two runs that the daemon knows
  trainprobe compare --batch 4,8 four.json eight.json  steps of 4 and of 8 samples: compares the time of one sample
  trainprobe compare --json a.json b.json            for scripts
  trainprobe compare main.json branch.json --max-step-time-regression 5% --max-lost 10%
                                                     a gate: one line, 1 where a limit is passed

A table of configurations is one report for each of them and one command for each pair:
  trainprobe run -o w4.json -- python train.py --workers 4
  trainprobe run -o w8.json -- python train.py --workers 8
  trainprobe compare w4.json w8.json

500 steps of each tell a difference of 5 %. What is below 3 % is called none: a machine is never the same twice. Both
runs are judged at equal speed of the processors: by the instructions of a step where they are counted, else by a fixed
piece of work that is timed all along. What a step waits for (files, sleeps, the network) is judged by itself."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from trainprobe.advise.compared_figures import LEAST
from trainprobe.advise.comparison import Comparison, compare, others, own_cpus
from trainprobe.advise.waits import WaitChange
from trainprobe.cli import FAILED, OK, Refusal, compare_gate, show
from trainprobe.cli.choosing import Chosen, choose
from trainprobe.cli.compare_table import figure_row, part_name, part_row, row, signed, step
from trainprobe.cli.style import Style, inert
from trainprobe.model.amounts import percent, size
from trainprobe.runtime.publishing import rundir
from trainprobe.text.command_line import invalid
from trainprobe.text.saying import saying, word
from trainprobe.wire import codec

MOST = 1.5  # times a difference: what parts make more of it cancels out, and their shares say nothing
CALLS = {
    "read": word("reading files"),
    "write": word("writing files"),
    "sleep": word("sleeping"),
    "network": word("the network"),
    "pipe": word("pipes"),
    "workers": word("workers that are blocked"),
}
BATCHES_DIFFER = 0.1  # of the bytes of a batch: from there on its size is another
STEPS_DIFFER = 0.2  # of a step: so much may be another batch size
WORTH = 0.01  # of a step: states and stalls that take less in both runs are not shown


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a report file, or the beginning of a run's name")
    parser.add_argument("b", metavar="B", help="the other one")
    parser.add_argument("--batch", type=batch, metavar="N[,M]", help="samples per step of A and B: compares samples/s")
    compare_gate.configure(parser)
    parser.add_argument("--rank", metavar="N", default="", help="this rank of both (default: the one that lost most)")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.add_argument("--directory", type=Path, default=rundir.DIRECTORY, help=argparse.SUPPRESS)


def batch(text: str) -> tuple[float, float]:
    """Samples per step of both runs."""
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or any(not 0 < number < 1e9 for number in numbers):
        raise invalid(saying("{text} is no number of samples per step; examples: 32, or 4,8", text=repr(text)))
    return numbers[0], numbers[-1]


def act(args: argparse.Namespace) -> int:
    pair = [choose(source, "", args.directory, args.rank) for source in (args.a, args.b)]
    if not args.json:
        pair = codec.with_texts(pair, inert)
    a, b = pair
    busy = others(a.run, a.cpus), others(b.run, b.cpus)
    used = own_cpus(a.run, a.cpus), own_cpus(b.run, b.cpus)
    own = None if used[0] is None or used[1] is None else (used[0], used[1])
    made = compare(a.rank, b.rank, args.batch, busy, own)
    if made is None:
        remedy = word("watch it for a minute of training")
        raise Refusal(FAILED, word("one of them has no ordinary step to compare"), remedy)
    limits = compare_gate.limits(args)
    style = Style() if args.json else Style.of(sys.stdout, os.environ, args.lang)
    judged = compare_gate.judged(made, b.rank, limits, style)
    if args.json:
        gate = {"gate": dataclasses.asdict(judged)} if limits.any else {}
        show(json.dumps({**as_json(made), **gate}, indent=2))
    elif limits.any:
        show(inert(judged.line))
    else:
        names = [named(one, source) for one, source in ((a, args.a), (b, args.b))]
        show("\n".join(comparison_lines(made, names, pair, style)))
    return OK if judged.kept else FAILED


def named(one: Chosen, source: str) -> str:
    of = f" rank {one.rank.name}" if len(one.run.ranks) > 1 else ""
    name = f"{one.run.key}{of}"
    return inert(f"{name} ({source})" if os.path.exists(source) else name)


def comparison_lines(made: Comparison, names: list[str], pair: list[Chosen], style: Style) -> Iterator[str]:
    for letter, name, one in zip("AB", names, pair):
        steps = style.say("{steps:# ordinary step|# ordinary steps}", steps=one.rank.ordinary.count)
        yield from style.wrapped(f"{name}: {steps}", f"{letter}  ")
    yield ""
    yield from _headline(made, style)
    if made.is_significant:
        yield from _explanation(made, style)
        yield from _waits(made, style)
    yield from _batches(made, pair, style)
    yield from _disk(made, style)
    if made.disturbed:
        a_share, b_share = (percent(share) for share in made.others)
        text = style.say(
            "Other programs used {a} of the CPUs during A and {b} during B: they slow a training too, "
            "which is counted as chance.",
            a=a_share, b=b_share,
        )  # fmt: skip
        yield from style.painted(text, "yellow")
    yield from _speed(made, style)
    yield ""
    yield style.paint(row("", "A", "B", "").rstrip(), "dim")
    for figure in made.figures:
        yield figure_row(figure, style)
    yield ""
    text = style.say("Where a step goes (stalls spread over all steps)")
    if made.paced:
        text = style.say("Where a step goes by the clock (stalls spread over all steps)")
    yield style.paint(text, "bold")
    for part, even in zip(made.parts, made.even_parts):
        if max(part.a, part.b) >= WORTH * max(made.a_step, made.b_step):
            yield part_row(part, even.change, style, made)
    whole = signed(made.b_step - made.a_step)
    yield row(style.say("together"), step(made.a_step), step(made.b_step), whole)


def _batches(made: Comparison, pair: list[Chosen], style: Style) -> Iterator[str]:
    """Steps of different batch sizes say nothing of which run is faster: samples do."""
    a, b = (one.rank.memory.shm_bytes_per_batch or 0.0 for one in pair)
    differ = a > 0 and b > 0 and abs(b / a - 1) > BATCHES_DIFFER
    if made.samples is not None or not (differ or (made.is_significant and abs(made.change) > STEPS_DIFFER)):
        return
    if differ:
        text = style.say(
            "The batches differ ({a} and {b} of shared memory each): --batch N,M compares samples per second.",
            a=size(a), b=size(b),
        )  # fmt: skip
        yield from style.painted(text, "bold", "yellow")
    else:
        yield from style.wrapped(
            style.say("Steps are compared. If the batch sizes differ, --batch N,M compares samples per second.")
        )


def _headline(made: Comparison, style: Style) -> Iterator[str]:
    if made.bounds is None:
        text = style.say("Too few ordinary steps to tell a difference: 50 of each are needed, 500 are well.")
        yield from style.painted(text, "bold", "yellow")
        return
    if not made.is_significant:
        yield from _work(made, style)
        yield from _waits(made, style)
    if made.paced:
        yield from style.wrapped(style.say("At equal speed of the processors:"))
    if not made.is_significant:
        yield from _undecided(made, style)
        return
    low, high = sorted(map(abs, made.bounds))
    values = {
        "change": percent(abs(made.change)), "low": f"{100 * low:.1f}", "high": percent(high),
        **_steps(made, made.even_steps, style),
    }  # fmt: skip
    text = style.say(
        "B is {change} faster ({low} to {high}): {b} {each} instead of {a}."
        if made.change > 0
        else "B is {change} slower ({low} to {high}): {b} {each} instead of {a}.",
        **values,
    )
    yield from style.painted(text, "bold", "green" if made.change > 0 else "red")


def _work(made: Comparison, style: Style) -> Iterator[str]:
    """Whether one computes more, by its instructions."""
    if not made.work_told or made.work is None:
        return
    values = {
        "share": percent(abs(made.work_change)), "a": f"{made.work.a / 1e6:.3g}", "b": f"{made.work.b / 1e6:.3g}",
    }  # fmt: skip
    text = style.say(
        "B computes more, {share} of a step of A: {b} million instructions a step instead of {a}."
        if made.work.more > 0
        else "B computes less, {share} of a step of A: {b} million instructions a step instead of {a}.",
        **values,
    )
    yield from style.painted(text, "bold", "red" if made.work.more > 0 else "green")


def _waits(made: Comparison, style: Style) -> Iterator[str]:
    """Which waits differ for certain: what is waited for, and in how many calls."""
    for wait in made.waits_told:
        values = {
            "change": step(abs(wait.change)), "each": _each(made, style), "what": _call(wait, style),
            "share": percent(abs(wait.change) * made.units[0] / made.a_step),
        }  # fmt: skip
        text = style.say(
            "B waits {change} longer {each}: {what}, {share} of A's."
            if wait.change > 0
            else "B waits {change} less {each}: {what}, {share} of A's.",
            **values,
        )
        yield from style.painted(text, "bold", "red" if wait.change > 0 else "green")
        if wait.a_calls is not None and wait.b_calls is not None:
            text = style.say(
                "{a} calls {each} in A, {b} in B", a=f"{wait.a_calls:.3g}", b=f"{wait.b_calls:.3g}", each=values["each"]
            )
            yield from style.wrapped(text, "  ")


def _disk(made: Comparison, style: Style) -> Iterator[str]:
    """What takes longer or shorter in calls that are as many, or are not counted."""
    for wait in made.waits:
        if not wait.disk_told:
            continue
        values = {"change": step(abs(wait.disk)), "each": _each(made, style), "what": _call(wait, style)}
        if wait.call == "read":
            text = style.say(
                "{what}: {change} longer {each} in B. The disk may have been slower, or the page cache cold."
                if wait.disk > 0
                else "{what}: {change} less {each} in B. The disk may have been faster, or the page cache warm.",
                **values,
            )
        else:
            text = style.say(
                "{what}: {change} longer {each} in B, in as many calls and bytes: the disk was slower."
                if wait.disk > 0
                else "{what}: {change} less {each} in B, in as many calls and bytes: the disk was faster.",
                **values,
            )
        yield from style.painted(text, "yellow")


def _call(wait: WaitChange, style: Style) -> str:
    """What is waited for, and the state in which it shows."""
    return f"{style.say(CALLS[wait.call])} ({wait.state})"


def _undecided(made: Comparison, style: Style) -> Iterator[str]:
    values = {"change": percent(abs(made.change)), "least": percent(made.least)}
    if made.parts_told:
        text = style.say(
            "On the whole B is {change} faster, and up to {least} may be chance."
            if made.change > 0
            else "On the whole B is {change} slower, and up to {least} may be chance.",
            **values,
        )
        yield from style.wrapped(text)
    else:
        text = style.say(
            "No difference that these runs can tell: B is {change} faster, and up to {least} may be chance."
            if made.change > 0
            else "No difference that these runs can tell: B is {change} slower, and up to {least} may be chance.",
            **values,
        )
        yield from style.painted(text, "bold")
    yield from _steady(made, style)
    if abs(made.change) > LEAST and not (made.steady_told or made.parts_told):
        text = style.say("Run both again, in turn and for more steps: what stays is theirs.")
        yield from style.wrapped(text, "  ")


def _speed(made: Comparison, style: Style) -> Iterator[str]:
    """What the processors themselves made of it."""
    if not made.paced:
        return
    if made.work:
        text = style.say(
            "The machine was slower during B: the same instructions of a step took {speed} longer."
            if made.work.slower > 0
            else "The machine was faster during B: the same instructions of a step took {speed} less time.",
            speed=percent(abs(made.work.slower)),
        )
    else:
        change = made.speeds.change if made.speeds else 0.0
        text = style.say(
            "The processors themselves were {speed} slower during B: a fixed piece of work took longer."
            if change < 0
            else "The processors themselves were {speed} faster during B: a fixed piece of work was done sooner.",
            speed=percent(abs(change)),
        )
    yield from style.painted(text, "yellow")
    values = {"change": percent(abs(made.clock_change)), **_steps(made, (made.a_step, made.b_step), style)}
    text = style.say(
        "By the clock B is {change} faster: {b} {each} instead of {a}."
        if made.clock_change > 0
        else "By the clock B is {change} slower: {b} {each} instead of {a}.",
        **values,
    )
    yield from style.painted(text, "yellow")


def _steady(made: Comparison, style: Style) -> Iterator[str]:
    """What only the quickest stretches tell."""
    if not made.steady_told or made.steady is None or made.quickest is None:
        return
    a, b = (step(one) for one in made.quickest)
    values = {"change": percent(abs(made.steady)), "a": a, "b": b}
    text = style.say(
        "Undisturbed, B's steps are {change} faster: {b} in its quickest stretch, {a} in A's."
        if made.steady > 0
        else "Undisturbed, B's steps are {change} slower: {b} in its quickest stretch, {a} in A's.",
        **values,
    )
    yield from style.painted(text, "bold", "green" if made.steady > 0 else "red")


def _steps(made: Comparison, steps: tuple[float, float], style: Style) -> dict[str, str]:
    """What a step of A takes and one of B, or a sample where samples are compared."""
    a, b = made.units
    return {"a": step(steps[0] / a), "b": step(steps[1] / b), "each": _each(made, style)}


def _each(made: Comparison, style: Style) -> str:
    return style.say("a sample") if made.samples else style.say("a step")


def _explanation(made: Comparison, style: Style) -> Iterator[str]:
    """Which parts went the way of the whole, and which the other. Parts that cancel out are no shares of it."""
    cancel = any(share > MOST for _, share in made.explained)
    for parts, amount, with_share in (
        (made.explained, word("{part}: {change} {each}"), word("{share} of it: {part}, {change} {each}")),
        (
            made.against,
            word("against it: {part}, {change} {each}"),
            word("against it: {part}, {change} {each} ({share})"),
        ),
    ):
        for part, share in parts:
            if part.kind != "rest":
                text = style.say(
                    amount if cancel else with_share,
                    part=part_name(part, style),
                    change=signed(part.change),
                    each=_each(made, style),
                    share=percent(share),
                )
                yield from style.wrapped(text, "  ")


def as_json(made: Comparison) -> dict[str, object]:
    """The same for scripts; seconds, ratios, bytes."""
    low, high = made.bounds or (None, None)
    return {
        "change": made.change,
        "low": low,
        "high": high,
        "spread": None if low is None or high is None else (high - low) / 2,
        "clock_change": made.clock_change,
        "told": made.is_significant,
        "steady_change": made.steady,
        "steady_told": made.steady_told,
        "work_told": made.work_told,
        "work_change": made.work_change,
        "waits_told": bool(made.waits_told),
        "waits_change": made.waits_change,
        "waits": [dataclasses.asdict(wait) for wait in made.waits],
        "others_share_of_cpus": list(made.others),
        "instructions": [made.work.a, made.work.b] if made.work else None,
        "slower_per_instruction": made.work.slower if made.work else None,
        "pace_change": made.speeds.change if made.speeds else None,
        "a_step_seconds": made.a_step,
        "b_step_seconds": made.b_step,
        "figures": [{**dataclasses.asdict(figure), "change": figure.change} for figure in made.figures],
        "parts": [{**dataclasses.asdict(part), "change": part.change} for part in made.parts],
    }
