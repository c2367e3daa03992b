"""Report -> annotations as Grafana takes them: one region for each stall that has ended, exact to the millisecond."""

from __future__ import annotations

import html
from collections.abc import Iterator

from trainprobe.model.amounts import seconds
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Report, Run, Stall
from trainprobe_exporters.labels import label_value

MARK = "trainprobe"
"""The tag that all of them have: Grafana draws them by it."""
_MAX_TAG = 100  # characters; Grafana's own bound
_MAX_TEXT = 1000


@dataclass(frozen=True)
class Annotation:
    """A region. ``key`` is the stall's own name, which stays when its end or its cause is judged anew."""

    key: str
    time: int  # UNIX milliseconds
    time_end: int
    text: str
    tags: tuple[str, ...]

    @property
    def identity(self) -> frozenset[str]:
        """The tags that do not change: those of the run and the rank, and the mark."""
        return frozenset(self.tags[:3])


def annotations_of(report: Report, *, minimum_seconds: float, details: bool) -> Iterator[Annotation]:
    """Those of all stalls in the report that have ended and took at least ``minimum_seconds``.

    ``details``: with the stall's sentence, which may name files, instead of cause and seconds alone.
    """
    for run in report.runs:
        for rank in run.ranks:
            for stall in rank.stalls:
                if stall.end is not None and stall.seconds >= minimum_seconds:
                    yield _annotation(report, run, rank.name, stall, stall.end, details)


def _annotation(report: Report, run: Run, rank: str, stall: Stall, end: float, details: bool) -> Annotation:
    start = round(stall.start * 1000)
    told = f"{stall.cause} {seconds(stall.seconds)}"
    if details and stall.summary:
        told = f"{told}: {stall.summary}"
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in told[:_MAX_TEXT])
    text = html.escape(printable)  # Grafana shows it as HTML
    tags = (MARK, _tag(f"run:{run.run}"), _tag(f"rank:{rank}"), _tag(f"cause:{stall.cause}"))
    host = (_tag(f"host:{report.host.name}"),) if report.host.name else ()
    return Annotation(f"{run.key}/{rank}/{stall.id}", start, max(start, round(end * 1000)), text, tags + host)


def _tag(text: str) -> str:
    value = label_value(text).replace(",", ";")  # Grafana's own form of a list of tags splits at commas
    return value if len(value) <= _MAX_TAG else value[: _MAX_TAG - 17] + "…" + value[-16:]
