"""A report for a person: what matters in the first three lines, numbers first, everything else below."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.cli import cells
from trainprobe.cli.sections import sections
from trainprobe.cli.style import Style, inert
from trainprobe.model.amounts import percent, seconds
from trainprobe.model.report import Rank, Report, Run, has_ended, scheduled_as
from trainprobe.text.saying import word
from trainprobe.wire import codec

LOOK = {"end": "red", "stall": "red", "bottleneck": "yellow", "none": "green"}
RANKS_SHOWN = 64
BOUND = {"input": word("input-bound"), "compute": word("compute-bound"), "mixed": word("input and compute mixed")}
MOST_LOST = word("{share} lost: {lost} of {wall}, most to {cause} ({most})")
LARGEST_LOST = word("{share} lost: {lost} of {wall}, the largest part to {cause} ({most})")
ALL_LOST = word("{share} lost: {lost} of {wall}, all to {cause}")
PART_LOST = word("{share} lost: {lost} of {wall}, {others_most} of it to {others}, {most} to {cause}")
WORTH_A_LINE = 0.02  # of the run: what a run that did not end by itself lost beside that
SHARE_AFTER = 20.0  # seconds behind the start: of less, the looks that follow it make no rate
LIVE_WIDTH = 79  # columns of the line that `run` shows


def text_of(report: Report, style: Style) -> str:
    """The whole report, without a newline at its end. What strangers wrote in it does nothing to a terminal."""
    report = style.speaker.report(codec.with_texts(report, inert))
    blocks = ["\n".join(_run(run, style)) for run in report.runs]
    if not report.runs:
        blocks.append(style.say("No training was seen."))
    blocks.append("\n".join(_footer(report, style)))
    return "\n\n".join(block for block in blocks if block)


def live_line(report: Report, style: Style) -> str:
    """The state of the first run that goes on, in one line."""
    run = next((run for run in report.runs if run.ended is None), None)
    if run is None or not run.ranks:
        return style.say("trainprobe: waiting for the training to begin")
    rank, parts = worst(run), []
    stall = rank.stalls[-1] if rank.stalls else None
    if stall is not None and stall.end is None:
        parts.append(style.say("STALL {lasted}: {cause}", lasted=seconds(stall.seconds), cause=stall.cause))
    cause, most = _most_lost(rank)
    if most > 0:
        parts.append(style.say("lost {lost}, most to {cause}", lost=seconds(sum(rank.lost.values())), cause=cause))
    if rank.counters.phase != "train":
        parts.append(style.say(rank.counters.phase))
    parts.append(style.say("step {number}", number=rank.steps.count))
    if rank.steps.per_second:
        parts.append(f"{rank.steps.per_second:.2f} it/s")
    if rank.wall_seconds > 0:
        share = percent(rank.productive_seconds / rank.wall_seconds)
        parts.append(style.say("productive {share}", share=share))
    name = f"rank {rank.name} · " if len(run.ranks) > 1 else ""
    line = f"trainprobe {name}{parts[0]}"
    for part in parts[1:]:  # the last ones are left out where there is no room
        if cells.width(line) + cells.width(part) + 3 <= LIVE_WIDTH:
            line += f" · {part}"
    return inert(line)


def worst(run: Run) -> Rank:
    """The rank that a reader wants to see: one that was ended, else the one that lost most."""
    return max(run.ranks, key=lambda rank: (rank.verdict.kind == "end", sum(rank.lost.values()), -rank.rank))


def _run(run: Run, style: Style) -> Iterator[str]:
    if not run.ranks:
        yield style.paint(style.say("No training step was seen."), "bold", "yellow")
        yield from style.wrapped(_identity(run, None, style))
        return
    rank = worst(run)
    yield from _verdict(rank, style)
    yield from style.wrapped(_speed(rank, style))
    yield from style.painted(_identity(run, rank, style), "dim")
    if len(run.ranks) > 1:
        yield ""
        yield from ranks_table(run, rank, style)
    yield from sections(run, rank, style)


def _verdict(rank: Rank, style: Style) -> Iterator[str]:
    """The first lines: how much is lost and to what, then the sentence that says why."""
    verdict = rank.verdict
    look = LOOK.get(verdict.kind, "yellow")
    summary = verdict.summary
    if verdict.kind == "none":
        yield from style.painted(
            summary or style.say("nothing stands out"), "bold", look if rank.steps.count else "yellow"
        )
        return
    if verdict.kind == "end":
        ended = style.say("ENDED by {cause}", cause=style.cause(verdict.cause)) if verdict.cause else style.say("ENDED")
        yield from style.painted(ended, "bold", look)
        yield from style.wrapped(summary)
        if _share(sum(rank.lost.values()), rank) >= WORTH_A_LINE:
            yield from style.wrapped(_lost(rank, style))
        return
    yield from style.painted(_lost(rank, style), "bold", look)
    yield from style.wrapped(summary)


def _lost(rank: Rank, style: Style) -> str:
    """How much is lost, and most of it to what."""
    lost, cause = sum(rank.lost.values()), rank.verdict.cause
    (most, ns), own = _most_lost(rank), cause if cause in rank.lost else None
    of_it = rank.lost.get(own or most, rank.verdict.seconds)
    all_, mine = seconds(lost), seconds(of_it)
    made = MOST_LOST if of_it > lost / 2 else LARGEST_LOST
    return style.say(
        PART_LOST if own not in (most, None) else ALL_LOST if mine == all_ else made,
        share=percent(_share(lost, rank)), lost=all_, wall=seconds(rank.wall_seconds),
        cause=style.cause(own or most or cause or ""), most=mine,
        others=style.cause(most), others_most=seconds(ns),
    )  # fmt: skip


def _share(value: float, rank: Rank) -> float:
    return value / rank.wall_seconds if rank.wall_seconds > 0 else 0.0


def _speed(rank: Rank, style: Style) -> str:
    steps = rank.steps
    if steps.source == "none" and not steps.reason:
        return style.say("no steps were seen")
    if steps.source == "none" or (steps.source == "rhythm" and not steps.count):
        return style.say("no steps: {reason}", reason=steps.reason)
    parts = [style.counted(steps.count, "{number} step", "{number} steps")]
    if steps.source == "gpu":
        parts.append(style.say("by its calls of CUDA"))
    if steps.source == "rhythm":
        parts.append(style.say("by the rhythm of its calls"))
    if steps.per_second is not None:
        parts.append(f"{steps.per_second:.2f} it/s")
    if steps.median_seconds is not None:
        tail = style.say(", p99 {p99}", p99=seconds(steps.p99_seconds)) if steps.p99_seconds is not None else ""
        parts.append(style.say("median step {median}", median=seconds(steps.median_seconds)) + tail)
    if steps.variation_ratio is not None:
        parts.append(style.say("variation {ratio}", ratio=percent(steps.variation_ratio)))
    parts.append(style.say("productive {share}", share=percent(_share(rank.productive_seconds, rank))))
    if rank.bound.by not in ("unknown", ""):
        bound = style.say(BOUND.get(rank.bound.by, f"{rank.bound.by}-bound"))
        parts.append(style.say("ordinary steps: {bound}", bound=bound))
    return " · ".join(parts)


def _identity(run: Run, rank: Rank | None, style: Style) -> str:
    parts = [run.run]
    if run.attempt > 1:
        parts.append(style.say("attempt {number}", number=run.attempt))
    if rank is not None:
        if rank.world_size > 1:
            parts.append(style.say("rank {rank} of {world}", rank=rank.name, world=rank.world_size))
        parts.append(f"pid {rank.pid}")
        if rank.framework.name:
            parts.append(str(rank.framework))
    parts += filter(None, (run.user, scheduled_as(run)))
    parts.append(style.say("since {start}", start=style.clock(run.started, date=True)))
    over = rank is not None and has_ended(rank)
    if run.ended is not None:
        parts.append(style.say("ended {end}", end=style.clock(run.ended)))
    elif not over:
        parts.append(style.say("still running"))
    elif not all(has_ended(one) for one in run.ranks):
        parts.append(style.say("other ranks still running"))
    if over and rank is not None and rank.exit is not None and rank.exit.reason:
        parts.append(rank.exit.reason)
    return " · ".join(parts)


def ranks_table(run: Run, chosen: Rank, style: Style) -> Iterator[str]:
    number = max(run.totals.ranks, len(run.ranks))
    title = style.say(
        "{ranks} (details below: rank {rank})",
        ranks=style.counted(number, "{number} rank", "{number} ranks"),
        rank=chosen.name,
    )
    yield style.paint(title, "bold")
    names = ((word("rank"), 6), (word("steps"), 8), (word("it/s"), 7), (word("lost"), 10), (word("share"), 7))
    columns = "  ".join(cells.fill_left(style.say(name), room) for name, room in names)
    yield f"  {columns}  {style.say('verdict')}"
    for rank in run.ranks[:RANKS_SHOWN]:
        lost = sum(rank.lost.values())
        speed = "" if rank.steps.per_second is None else f"{rank.steps.per_second:.2f}"
        head = f"  {rank.name:>6}  {rank.steps.count:>8}  {speed:>7}  {seconds(lost):>10}  "
        verdict = rank.verdict.kind if rank.verdict.cause is None else f"{rank.verdict.kind}: {rank.verdict.cause}"
        yield from style.wrapped(f"{percent(_share(lost, rank)):>7}  {verdict}", head)
    shown = min(len(run.ranks), RANKS_SHOWN)
    if number > shown:
        yield style.say("  … and {number} more", number=number - shown)


def _most_lost(rank: Rank) -> tuple[str, float]:
    return max(rank.lost.items(), key=lambda item: item[1], default=("", 0.0))


def _footer(report: Report, style: Style) -> Iterator[str]:
    for name, source in sorted(report.sources.items()):
        if source.state != "up":
            yield from style.wrapped(
                source.reason + (style.say(" (to mend it: {remedy})", remedy=source.remedy) if source.remedy else ""),
                style.say("! {source} {state}: ", source=name, state=style.say(source.state)),
                "    ",
            )
    if report.events_lost:
        yield from style.wrapped(
            style.say(
                "! {events} of the kernel were lost: figures may be incomplete",
                events=style.counted(report.events_lost, "{number} event", "{number} events"),
            ),
            rest="    ",
        )
    cost = report.cost
    parts = [style.say("{spent} of CPU", spent=seconds(cost.cpu_seconds))]
    if cost.start_seconds is not None and cost.stacks_seconds:
        start, stacks = seconds(cost.start_seconds), seconds(cost.stacks_seconds)
        parts[0] += style.say(" ({start} of it to start, {stacks} to read stacks)", start=start, stacks=stacks)
    elif cost.start_seconds is not None:
        parts[0] += style.say(" ({spent} of it to start)", spent=seconds(cost.start_seconds))
    if cost.bpf_seconds is not None:
        parts.append(style.say("{spent} in the kernel", spent=seconds(cost.bpf_seconds)))
    after = cost.cpu_seconds - (cost.start_seconds or 0.0)
    if cost.share_of_run is not None and after >= SHARE_AFTER * cost.share_of_run:
        parts.append(style.say("{share} of one CPU after the start", share=percent(cost.share_of_run)))
    parts.append(f"{cost.rss_bytes / 1e6:.0f} MB")
    yield from style.painted(style.say("cost of watching: {cost}", cost=style.listed(parts)), "dim")
