"""One run out of a report: a file that `-o` wrote, or a run of the daemon by the beginning of its name."""

from __future__ import annotations

import os
from pathlib import Path

from trainprobe.cli import FAILED, Refusal, published
from trainprobe.cli.text import worst
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank, Run
from trainprobe.text.saying import saying, word


@dataclass(frozen=True, slots=True)
class Chosen:
    run: Run
    rank: Rank
    cpus: int  # of the host


def choose(source: str | None, name: str, directory: Path, rank: str = "") -> Chosen:
    """``source``: a report file, or the beginning of a run's name; None: what the daemon knows.

    Of several runs the one whose name begins with ``name``; without a name the one that trained most steps.
    Raises Refusal.
    """
    file = Path(source) if source and (os.path.exists(source) or source.endswith(".json")) else None
    try:
        report = published.of_file(file) if file is not None else published.read(directory)
    except Refusal as refusal:
        if source and file is None:
            told = saying(refusal.reason) if isinstance(refusal.reason, str) else refusal.reason
            values = {"source": f"{source!r}", "reason": told}
            reason = saying("there is no file {source}, and of runs: {reason}", **values)
            raise Refusal(refusal.code, reason, refusal.remedy) from None
        raise
    if source and file is None:
        name = source
    runs = [run for run in report.runs if run.key.startswith(name) and run.ranks]
    if not runs:
        known = ", ".join(run.key for run in report.runs) or saying("none")
        asked = saying("no run {name}", name=repr(name)) if name else saying("no run with a training")
        place = file or saying("what the daemon knows")
        reason = saying("{asked} in {place}; known there: {known}", asked=asked, place=place, known=known)
        remedy = "" if report.runs else word("watch one: trainprobe run -o REPORT.json -- COMMAND")
        raise Refusal(FAILED, reason, remedy)
    run = max(runs, key=lambda one: max(each.steps.count for each in one.ranks))
    chosen = next((each for each in run.ranks if each.name == rank), None) if rank else worst(run)
    if chosen is None:
        names = ", ".join(each.name for each in run.ranks)
        values = {"rank": f"{rank!r}", "run": run.key, "names": names}
        raise Refusal(FAILED, saying("no rank {rank} in {run}; there are: {names}", **values))
    return Chosen(run, chosen, report.host.cpus)
