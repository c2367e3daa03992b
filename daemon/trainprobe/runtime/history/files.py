"""What of the history lies open for others: segments and runs for the group, one file for each owner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from trainprobe.model.report import Report
from trainprobe.model.steprow import TIERS
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.owner_reports import OwnerReports
from trainprobe.store.segments import Segments
from trainprobe.wire import history as wire
from trainprobe.wire import report as wire_report
from trainprobe.wire.bounded import BoundedReport

PUBLISHED = "published"
RUN_LIMIT = 1 << 20  # bytes of one run's file
USER_LIMIT = 1 << 20


class HistoryFiles:
    """Writes below the state directory. Every method raises OSError."""

    def __init__(self, directory: Path, gid: int) -> None:
        self.directory = directory
        self._published = directory / PUBLISHED
        self.owners = OwnerReports(directory)
        self._gid = gid
        self._segments = Segments(self._published, gid, wire.SEGMENT_LIMIT)

    def open(self) -> None:
        rundir.make_directory(self.directory)
        for directory in (self._published, self._published / wire.RUNS):
            rundir.make_directory(directory, mode=0o750)
        self.owners.open()

    def append(self, lines: Iterable[tuple[str, str, str]], number: int) -> None:
        """(stem, kind, text) to the segments."""
        texts: dict[tuple[str, str], list[str]] = {}
        for stem, kind, text in lines:
            texts.setdefault((stem, kind), []).append(text)
        for (stem, kind), parts in texts.items():
            self._segments.append(stem, "".join(parts), header=wire.header(kind), number=number)

    def publish(self, runs: Mapping[str, Report]) -> None:
        for run, report in runs.items():
            data = BoundedReport(report).encode(RUN_LIMIT)
            rundir.write(str(self._run_file(run)), data, mode=0o640, gid=self._gid)

    def publish_to(self, uid: int, runs: Iterable[str]) -> None:
        """The owner's file: his runs, the latest first, as many as fit."""
        texts, size = [], 0
        for run in runs:
            try:
                text = self._run_file(run).read_bytes()
            except FileNotFoundError:
                continue
            size += len(text)
            if size > USER_LIMIT:
                break
            texts.append(text)
        self.owners.write(uid, wire_report.combined(texts))

    def forget_run(self, run: str) -> int:
        """The bytes that it took."""
        size = self.size_of(run)
        self._run_file(run).unlink(missing_ok=True)
        self._segments.forget_folder(f"{wire.STEPS}/{run}")
        return size

    def size_of(self, run: str) -> int:
        """The bytes of a run, without its stalls'."""
        size = self._segments.size(f"{wire.STEPS}/{run}")
        with suppress(FileNotFoundError):
            size += self._run_file(run).lstat().st_blocks * 512
        return size

    def runs(self) -> set[str]:
        files = {path.stem for path in (self._published / wire.RUNS).glob("*.json")}
        return files | set(self._segments.folders(wire.STEPS))

    def forget_steps(self, run: str, now: float) -> None:
        """Segments of the tiers that are kept for a while only."""
        for tier in TIERS:
            if tier.keep is not None:
                self._segments.forget(f"{wire.STEPS}/{run}", now - tier.keep, infix=f"_{tier.name}_")

    def shorten_steps(self, run: str) -> int:
        """All segments but the current ones of a run that goes on; the bytes that they took."""
        before = self.size_of(run)
        self._segments.forget(f"{wire.STEPS}/{run}", math.inf)
        return before - self.size_of(run)

    def forget_stalls(self, before: float) -> None:
        self._segments.forget(wire.STALLS, before)

    def shorten_stalls(self, most: float) -> int:
        """The oldest go; the bytes that they took."""
        return self._segments.shorten(wire.STALLS, most)

    @property
    def bytes(self) -> int:
        return self._segments.bytes

    def _run_file(self, run: str) -> Path:
        return self._published / wire.RUNS / f"{run}.json"
