"""One run out of a report: a file that `-o` wrote, or a run of the daemon by the beginning of its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainprobe.cli import FAILED, published
from trainprobe.cli.published import Refusal
from trainprobe.cli.text import worst
from trainprobe.model.report import Rank, Report, Run
from trainprobe.text.saying import saying, word


@dataclass(frozen=True, slots=True)
class Chosen:
    report: Report
    run: Run
    rank: Rank


def choose(source: str | None, name: str, directory: Path, rank: str = "") -> Chosen | Refusal:
    """``source``: a report file, or the beginning of a run's name; None: what the daemon knows.

    Of several runs the one whose name begins with ``name``; without a name the one that trained most steps.
    """
    file = Path(source) if source and (Path(source).exists() or source.endswith(".json")) else None
    report = published.of_file(file) if file is not None else published.read(directory)
    if isinstance(report, Refusal):
        if source and file is None:
            return Refusal(
                report.code,
                saying("there is no file {source}, and of runs: {reason}", source=f"{source!r}", reason=report.reason),
                report.remedy,
            )
        return report
    if source and file is None:
        name = source
    runs = [run for run in report.runs if run.key.startswith(name) and run.ranks]
    if not runs:
        known = ", ".join(run.key for run in report.runs) or "none"
        asked = saying("no run {name}", name=repr(name)) if name else saying("no run with a training")
        remedy = "" if report.runs else word("watch one: trainprobe run -o REPORT.json -- COMMAND")
        return Refusal(
            FAILED,
            saying(
                "{asked} in {place}; known there: {known}",
                asked=asked,
                place=file or saying("what the daemon knows"),
                known=known,
            ),
            remedy,
        )
    run = max(runs, key=lambda one: max(each.steps.count for each in one.ranks))
    chosen = next((each for each in run.ranks if each.name == rank), None) if rank else worst(run)
    if chosen is None:
        names = ", ".join(each.name for each in run.ranks)
        return Refusal(
            FAILED, saying("no rank {rank} in {run}; there are: {names}", rank=f"{rank!r}", run=run.key, names=names)
        )
    return Chosen(report, run, chosen)
