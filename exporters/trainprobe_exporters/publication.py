"""What can be had over HTTP: the metrics as of the latest snapshot, and whether all is well."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Report
from trainprobe_exporters.catalogue import BY_NAME, PREFIX
from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import SeriesTable
from trainprobe_exporters.host_readings import DAEMON
from trainprobe_exporters.readings import Reading, scalar
from trainprobe_exporters.source import SnapshotReader, SnapshotState

ESSENTIAL_SOURCE = "bpf"
KEPT_NS = NS  # a text is made anew for a new report, or when it is older than this
GZIP_LEVEL = 1  # 1 MB of metrics: 1.4 ms and 6 % of the size; level 6 takes three times as long for 4 %


@dataclass(frozen=True)
class Health:
    """Whether what is told can be relied upon."""

    degraded: tuple[str, ...]  # why not; empty: ready
    missing: tuple[str, ...] = ()  # sources that this host does not have, which is no failure


def _clocks() -> Moment:
    return Moment(time.monotonic_ns(), time.time_ns())


class Publication:
    """The latest snapshot as text and health; each answer looks at the snapshot first."""

    def __init__(
        self, source: SnapshotReader, series: SeriesTable, version: str, clock: Callable[[], Moment] = _clocks
    ) -> None:
        self.source = source
        self.series = series
        self.further: Callable[[], Iterable[Reading]] = tuple  # what other parts of the exporter tell of themselves
        self._version = version
        self._clock = clock
        self._texts: dict[tuple[Format, bool], bytes] = {}
        self._texts_made_ns = 0
        self._problem = ""
        self._untold = ""

    def metrics(self, form: Format, *, compressed: bool) -> bytes:
        at = self._clock()
        look = self._read_snapshot(at)
        if at.monotonic_ns - self._texts_made_ns >= KEPT_NS:
            self._texts.clear()
        if not self._texts:
            self._texts_made_ns = at.monotonic_ns
        if (form, False) not in self._texts:
            families = self.series.families(look.now, fresh=not look.problem, own=self._own(look))
            self._texts[form, False] = exposition(families, form)
        if compressed and (form, True) not in self._texts:
            self._texts[form, True] = gzip.compress(self._texts[form, False], GZIP_LEVEL, mtime=0)
        return self._texts[form, compressed]

    def report(self) -> Report | None:
        """The latest report that could be read, however old it is."""
        return self._read_snapshot(self._clock()).report

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC of this host, in seconds."""
        return self._clock().monotonic_ns / NS

    def health(self) -> Health:
        return _health(self._read_snapshot(self._clock()))

    def _read_snapshot(self, at: Moment) -> SnapshotState:
        look = self.source.read(at)
        if look.is_new and look.report is not None:
            self._untold = self._fold(look.report)
        look = replace(look, problem=look.problem or self._untold)
        if look.is_new or look.problem != self._problem:
            self._texts.clear()
        self._problem = look.problem
        return look

    def _fold(self, report: Report) -> str:
        """Take it, or say why it cannot be told: one odd report must not end all metrics."""
        try:
            self.series.fold(report)
        except Exception as error:
            self.source.errors += 1
            return f"the report cannot be told: {type(error).__name__}: {str(error)[:200]}"
        return ""

    def _own(self, look: SnapshotState) -> list[Reading]:
        labels = (DAEMON,)
        return [
            Reading(BY_NAME[PREFIX + "source_up"], labels, int(look.report is not None and not look.problem)),
            Reading(BY_NAME[PREFIX + "ready"], (), int(not _health(look).degraded)),
            Reading(BY_NAME[PREFIX + "source_errors_total"], labels, self.source.errors),
            *scalar(BY_NAME[PREFIX + "source_duration_seconds"], labels, self.source.read_seconds),
            Reading(BY_NAME[PREFIX + "build_info"], (self._version,), 1),
            *self.further(),
        ]


def _health(look: SnapshotState) -> Health:
    """A source that failed degrades, and so does eBPF's absence; what a host does not have (a GPU, say) does not."""
    if look.report is None or look.problem:
        return Health((f"{DAEMON}: {look.problem or 'no report yet'}",))
    failed: list[str] = []
    missing: list[str] = []
    for name, source in look.report.sources.items():
        if source.state != "up":
            remedy = f" ({source.remedy})" if source.remedy else ""
            is_failure = source.state == "error" or name == ESSENTIAL_SOURCE
            (failed if is_failure else missing).append(f"{name}: {source.reason}{remedy}")
    return Health(tuple(failed), tuple(missing))
