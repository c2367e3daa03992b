"""A rank never makes more than MAX_SERIES_PER_RANK series: who gives way, in which order.

The order is fixed, so that the same report always keeps the same series: first zeros of ``stalls_total`` (a cause
that never stalled: the zero says nothing that its absence does not), then other zeros that may, then figures that may,
the lower in the catalogue the earlier. What alerts and annotations need never gives way.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe_exporters.catalogue import MAX_SERIES_PER_RANK, METRICS, DropPolicy
from trainprobe_exporters.readings import Reading

_POSITION = {metric.name: index for index, metric in enumerate(METRICS)}


def within_budget(readings: Sequence[Reading]) -> tuple[list[Reading], list[Reading]]:
    """What stays, in its order, and what was left out although it says something."""
    excess = sum(r.metric.series for r in readings) - MAX_SERIES_PER_RANK
    if excess <= 0:
        return list(readings), []
    may_go = [i for i, r in enumerate(readings) if r.metric.gives_way is not DropPolicy.NEVER]
    out: set[int] = set()
    for index in sorted(may_go, key=lambda i: _earliest_first(readings[i])):
        if excess <= 0:
            break
        out.add(index)
        excess -= readings[index].metric.series
    kept = [r for i, r in enumerate(readings) if i not in out]
    return kept, [r for i, r in enumerate(readings) if i in out and not _says_nothing(r)]


def _says_nothing(reading: Reading) -> bool:
    return reading.metric.gives_way is DropPolicy.ZEROS_FIRST and reading.value == 0


def _earliest_first(reading: Reading) -> tuple[bool, bool, int, tuple[str, ...]]:
    return not _says_nothing(reading), reading.value != 0, -_POSITION[reading.metric.name], reading.labels
