"""A report for a person: what matters in the first three lines, numbers first, everything else below."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.cli.sections import sections
from trainprobe.cli.style import Style, inert
from trainprobe.language.amounts import count, percent, seconds
from trainprobe.model.report import Rank, Report, Run
from trainprobe.wire import codec

LOOK = {"end": "red", "stall": "red", "bottleneck": "yellow", "none": "green"}
RANKS_SHOWN = 64
SHARE_TOLD = 60.0  # seconds of a run from which our share of it says something: before, it is our start


def text_of(report: Report, style: Style) -> str:
    """The whole report, without a newline at its end. What strangers wrote in it does nothing to a terminal."""
    report = codec.with_texts(report, inert)
    blocks = ["\n".join(_run(run, style)) for run in report.runs]
    if not report.runs:
        blocks.append("No training was seen.")
    blocks.append("\n".join(_footer(report, style)))
    return "\n\n".join(block for block in blocks if block)


def live_line(report: Report) -> str:
    """The state of the first run that goes on, in one line."""
    run = next((run for run in report.runs if run.ended is None), None)
    if run is None or not run.ranks:
        return "trainprobe: waiting for the training to begin"
    rank = worst(run)
    parts = [f"step {rank.steps.count}"]
    if rank.steps.per_second:
        parts.append(f"{rank.steps.per_second:.2f} it/s")
    if rank.counters.phase != "train":
        parts.append(rank.counters.phase)
    if rank.wall_seconds > 0:
        parts.append(f"productive {percent(rank.productive_seconds / rank.wall_seconds)}")
    cause, most = _most_lost(rank)
    if most > 0:
        parts.append(f"lost {seconds(sum(rank.lost.values()))} (most: {cause} {seconds(most)})")
    stall = rank.stalls[-1] if rank.stalls else None
    if stall is not None and stall.end is None:
        parts.append(f"STALL {seconds(stall.seconds)}: {stall.cause}")
    name = f"rank {rank.name} · " if len(run.ranks) > 1 else ""
    return inert(f"trainprobe {name}" + " · ".join(parts))


def worst(run: Run) -> Rank:
    """The rank that a reader wants to see: one that was ended, else the one that lost most."""
    return max(run.ranks, key=lambda rank: (rank.verdict.kind == "end", sum(rank.lost.values()), -rank.rank))


def _run(run: Run, style: Style) -> Iterator[str]:
    if not run.ranks:
        yield style.paint("No training step was seen.", "bold", "yellow")
        yield from style.wrapped(_identity(run, None, style))
        return
    rank = worst(run)
    yield from _verdict(rank, style)
    yield from style.wrapped(_speed(rank))
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
    lost = sum(rank.lost.values())
    if verdict.kind == "none":
        yield from style.painted(summary or "nothing stands out", "bold", look if rank.steps.count else "yellow")
        return
    if verdict.kind == "end":
        headline = f"ENDED by {verdict.cause}" if verdict.cause else "ENDED"
    else:
        headline = (
            f"{percent(_share(lost, rank))} lost: {seconds(lost)} of {seconds(rank.wall_seconds)}, "
            f"most to {verdict.cause} ({seconds(verdict.seconds)})"
        )
    yield from style.painted(headline, "bold", look)
    yield from style.wrapped(summary)


def _share(value: float, rank: Rank) -> float:
    return value / rank.wall_seconds if rank.wall_seconds > 0 else 0.0


def _speed(rank: Rank) -> str:
    steps = rank.steps
    if steps.source == "none":
        return f"no steps: {steps.reason}" if steps.reason else "no steps were seen"
    parts = [count(steps.count, "step")]
    if steps.per_second is not None:
        parts.append(f"{steps.per_second:.2f} it/s")
    if steps.median_seconds is not None:
        tail = f", p99 {seconds(steps.p99_seconds)}" if steps.p99_seconds is not None else ""
        parts.append(f"step {seconds(steps.median_seconds)}{tail}")
    if steps.variation_ratio is not None:
        parts.append(f"variation {percent(steps.variation_ratio)}")
    parts.append(f"productive {percent(_share(rank.productive_seconds, rank))}")
    if rank.bound.by not in ("unknown", ""):
        parts.append(f"{rank.bound.by}-bound" if rank.bound.by != "mixed" else "input and compute mixed")
    return " · ".join(parts)


def _identity(run: Run, rank: Rank | None, style: Style) -> str:
    parts = [run.run]
    if rank is not None:
        if rank.world_size > 1:
            parts.append(f"rank {rank.name} of {rank.world_size}")
        parts.append(f"pid {rank.pid}")
    if run.user:
        parts.append(run.user)
    parts.append(f"since {style.clock(run.started, date=True)}")
    parts.append(f"ended {style.clock(run.ended)}" if run.ended is not None else "still running")
    if rank is not None and rank.exit is not None and rank.exit.reason:
        parts.append(rank.exit.reason)
    return " · ".join(parts)


def ranks_table(run: Run, chosen: Rank, style: Style) -> Iterator[str]:
    """All ranks of a run, a line each."""
    yield style.paint(f"{count(len(run.ranks), 'rank')} (details below: rank {chosen.name})", "bold")
    yield f"  {'rank':>6}  {'steps':>8}  {'it/s':>7}  {'lost':>10}  {'share':>7}  verdict"
    for rank in run.ranks[:RANKS_SHOWN]:
        lost = sum(rank.lost.values())
        speed = "" if rank.steps.per_second is None else f"{rank.steps.per_second:.2f}"
        head = f"  {rank.name:>6}  {rank.steps.count:>8}  {speed:>7}  {seconds(lost):>10}  "
        verdict = rank.verdict.kind if rank.verdict.cause is None else f"{rank.verdict.kind}: {rank.verdict.cause}"
        yield from style.wrapped(f"{percent(_share(lost, rank)):>7}  {verdict}", head)
    if len(run.ranks) > RANKS_SHOWN:
        yield f"  … and {len(run.ranks) - RANKS_SHOWN} more"


def _most_lost(rank: Rank) -> tuple[str, float]:
    return max(rank.lost.items(), key=lambda item: item[1], default=("", 0.0))


def _footer(report: Report, style: Style) -> Iterator[str]:
    for name, source in sorted(report.sources.items()):
        if source.state != "up":
            yield from style.wrapped(
                f"{source.reason}" + (f" (to mend it: {source.remedy})" if source.remedy else ""),
                f"! {name} {source.state}: ",
                "    ",
            )
    if report.events_lost:
        yield from style.wrapped(
            f"! {count(report.events_lost, 'event')} of the kernel were lost: figures may be incomplete", rest="    "
        )
    cost = report.cost
    parts = [f"{seconds(cost.cpu_seconds)} of CPU", f"{cost.rss_bytes / 1e6:.0f} MB"]
    if cost.bpf_seconds is not None:
        parts.append(f"{seconds(cost.bpf_seconds)} in the kernel")
    longest = max((rank.wall_seconds for run in report.runs for rank in run.ranks), default=0.0)
    if cost.share_of_run is not None and longest >= SHARE_TOLD:
        parts.append(f"{percent(cost.share_of_run)} of the run")
    yield from style.painted(f"cost of watching: {', '.join(parts)}", "dim")
