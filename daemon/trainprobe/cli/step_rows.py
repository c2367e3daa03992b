"""Step rows from the published history, for reports that draw them: as fine as they are still kept."""

from __future__ import annotations

from pathlib import Path

from trainprobe.cli.published import FILE_LIMIT
from trainprobe.model.report import Report
from trainprobe.model.steprow import StepRow, stitched
from trainprobe.runtime.history.files import PUBLISHED
from trainprobe.wire import history as wire
from trainprobe.wire import report_file
from trainprobe.wire.codec import WireError

FINEST = 1_000_000  # points: never coarser than what is kept
SEGMENT_BYTES = 4 * wire.SEGMENT_LIMIT

Rows = dict[tuple[str, str], list[StepRow]]


def of_report(report: Report, state: Path, since: float = 0.0) -> Rows:
    """Rows by run and rank, of those that have any that this user may read."""
    found = {
        (run.key, rank.name): of_rank(state, run.key, rank.name, since) for run in report.runs for rank in run.ranks
    }
    return {whose: rows for whose, rows in found.items() if rows}


def of_file(path: Path, report: Report, since: float = 0.0) -> Rows:
    """The same from a report file, of the runs of ``report``."""
    known = {(run.key, rank.name) for run in report.runs for rank in run.ranks}
    try:
        with path.open("rb") as file:
            every = report_file.steps_of(file.read(FILE_LIMIT))
    except (OSError, WireError):
        return {}
    found = {(one.run, one.rank): [row for row in one.rows if row.end > since] for one in every}
    return {whose: rows for whose, rows in found.items() if rows and whose in known}


def of_rank(state: Path, run: str, rank: str, since: float = 0.0) -> list[StepRow]:
    """Rows of one rank that end after ``since`` (UNIX seconds), in time order."""
    if not (wire.fit_run(run) and wire.fit_rank(rank)):
        return []
    folder = state / PUBLISHED / wire.STEPS / run
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    return stitched(wire.read_tiers(names, rank, lambda name: _lines(folder / str(name)), since), since, FINEST)


def _lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            return file.read(SEGMENT_BYTES).splitlines(keepends=True)
    except OSError:
        return []
