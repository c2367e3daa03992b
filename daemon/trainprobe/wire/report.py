"""The report, version 1, as JSON: what ``-o`` writes, what the daemon publishes, what the exporter reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from trainprobe.model.report import Rank, Report, Run, Samples
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

VERSION = 1
LISTED = 200  # the contract: lists hold the latest 200 of each


def encode(report: Report, *, indent: int | None = None) -> str:
    """The report as JSON text: valid UTF-8, finite numbers, one line unless ``indent`` is given."""
    return codec.dumps(report, indent=indent)


def decode(text: str | bytes) -> Report:
    """The report that was written by this or a later version 1. Raises WireError with the path of what is wrong."""
    value = codec.loads(text)
    version = value.get("version") if isinstance(value, dict) else None
    if version is None:
        raise WireError("it has no version")
    if version != VERSION:
        raise WireError(f"it is of version {version}, and this program reads version {VERSION}")
    report: Report = codec.decode(Report, value)
    return report


def encode_bounded(report: Report, limit: int) -> bytes:
    """The report in at most ``limit`` bytes of JSON.

    What does not fit is left out from the far end: older entries of every list first, then the runs that ended
    longest ago. ``totals`` and the counters always tell how many there were.
    """
    keep = LISTED
    data = encode(report).encode()
    while len(data) > limit:
        if keep:
            keep //= 2
            report = shortened(report, keep)
        elif report.runs:
            report = dataclasses.replace(report, runs=_without_oldest(report.runs))
        else:
            report = Report(version=report.version, generated=report.generated)
        data = encode(report).encode()
    return data


_RUNS = b'"runs":['


def combined(texts: Sequence[bytes]) -> bytes:
    """Reports of one run each, as ``encode`` writes them, as one report with all the runs; the rest is the first's."""
    if not texts:
        return encode(Report()).encode()
    # `runs` is the last field, and no text in JSON holds an unescaped quote: the first such bytes are the key.
    head = texts[0].partition(_RUNS)[0]
    runs = [text.partition(_RUNS)[2].removesuffix(b"]}") for text in texts]
    return head + _RUNS + b",".join(run for run in runs if run) + b"]}"


def shortened(report: Report, keep: int) -> Report:
    """The same report with the latest ``keep`` entries of each list of each rank."""
    runs = [dataclasses.replace(run, ranks=[_shortened_rank(rank, keep) for rank in run.ranks]) for run in report.runs]
    return dataclasses.replace(report, runs=runs)


def _shortened_rank(rank: Rank, keep: int) -> Rank:
    def last(items: list[Any]) -> list[Any]:
        return items[-keep:] if keep else []

    return dataclasses.replace(
        rank,
        phases=last(rank.phases),
        stalls=last(rank.stalls),
        bottlenecks=rank.bottlenecks[:keep],
        warnings=last(rank.warnings),
        checkpoints=last(rank.checkpoints),
        workers=dataclasses.replace(rank.workers, exits=last(rank.workers.exits)),
        slow_files=rank.slow_files[:keep],
        logs=rank.logs[:keep],
        samples=Samples(*(last(column) for column in dataclasses.astuple(rank.samples))),
    )


def _without_oldest(runs: list[Run]) -> list[Run]:
    """All runs but the one that ended first; of those that still go on, the one that began first."""
    oldest = min(runs, key=lambda run: (run.ended is None, run.ended if run.ended is not None else run.started))
    return [run for run in runs if run is not oldest]
