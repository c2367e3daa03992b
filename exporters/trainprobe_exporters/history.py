"""The history that the daemon publishes, read for the API: rows of steps, and stalls."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from trainprobe.model.report import Report
from trainprobe.model.steprow import StepRow, stitched, thinned
from trainprobe.wire import history as wire
from trainprobe.wire.codec import WireError
from trainprobe.wire.history import RankStall, SegmentName

HISTORY_PATH = Path("/var/lib/trainprobe/published")
MAX_POINTS = 5000
MAX_STALLS = 5000  # the latest ones
_MAX_BYTES = 4 * wire.SEGMENT_LIMIT  # of one segment


class History:
    """What lies below ``directory``. Nothing there is no error: there is no history yet, or it may not be read."""

    def __init__(self, directory: Path = HISTORY_PATH) -> None:
        self._directory = directory

    def steps(self, run: str, rank: str, *, since: float = 0.0, points: int = MAX_POINTS) -> list[StepRow]:
        """Rows from ``since`` (UNIX seconds) on, at most ``points``, each as fine as that allows and is still kept.

        The latest steps are there as soon as the daemon has told them, in the finest tier.
        """
        if not (wire.fit_run(run) and wire.fit_rank(rank)):
            return []
        points = max(1, min(points, MAX_POINTS))
        folder = self._directory / wire.STEPS / run

        def lines_of(name: SegmentName) -> list[bytes]:
            lines, written = _lines(folder / str(name))
            return lines if written >= since else []

        tiers = wire.read_tiers(_names(folder), rank, lines_of, since)
        return thinned(stitched(tiers, since, points), points)

    def stalls(self, report: Report | None = None, *, since: float = 0.0) -> list[RankStall]:
        """Stalls that lasted beyond ``since`` (UNIX seconds), by their start: the published ones and the report's.

        Of the report's runs, only those stalls are open that are open in the report.
        """
        found = {told.stall.id: told for told in self._published_stalls(since)}
        if report is not None:
            runs = {run.key for run in report.runs}
            found = {
                id_: _settled(told) for id_, told in found.items() if told.stall.end is not None or told.run not in runs
            }
        found |= {told.stall.id: told for told in _reported(report)}
        lasting = [told for told in found.values() if told.stall.end is None or told.stall.end >= since]
        return sorted(lasting, key=lambda told: told.stall.start)[-MAX_STALLS:]

    def _published_stalls(self, since: float) -> Iterable[RankStall]:
        directory = self._directory / wire.STALLS
        numbers = sorted(n for name in _names(directory) if (n := wire.segment_number(name)) is not None)
        for number in numbers:
            lines, written = _lines(directory / f"{number}{wire.SUFFIX}")
            if written >= since:
                try:
                    yield from wire.read_stalls(lines)
                except WireError:
                    continue


def _settled(told: RankStall) -> RankStall:
    """A stall of a run that the daemon knows no more: if nobody saw its end, it ends as it was told last."""
    stall = told.stall
    if stall.end is not None:
        return told
    return dataclasses.replace(told, stall=dataclasses.replace(stall, end=stall.start + stall.seconds))


def _reported(report: Report | None) -> Iterable[RankStall]:
    for run in report.runs if report else ():
        for rank in run.ranks:
            for stall in rank.stalls:
                yield RankStall(run.key, rank.name, stall)


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _lines(path: Path) -> tuple[list[bytes], float]:
    """The lines of a segment, and when it was written last; none where it is gone or no file."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return [], 0.0
            return file.read(_MAX_BYTES).splitlines(keepends=True), status.st_mtime
    except OSError:
        return [], 0.0
