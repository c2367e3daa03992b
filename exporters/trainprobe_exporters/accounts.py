"""Counters that never decrease, and ``other``: the sum of the runs that have no series of their own.

Prometheus takes a counter that decreases for one that was reset, and counts its whole value again. A report may move
seconds from one cause to another when better evidence comes; each counter here keeps its highest value until the report
exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainprobe_exporters.catalogue import BY_NAME
from trainprobe_exporters.readings import Histogram, Reading, Value

Key = tuple[str, tuple[str, ...]]  # metric, labels beyond run and rank
WALL = ("trainprobe_run_wall_seconds_total", ())
STARTS = "trainprobe_stall_last_start_timestamp_seconds"
RESTART_SECONDS = 1.0  # a rank whose wall time falls by more is watched anew
SAME_SECONDS = 0.02  # an instant that moves by less is the same one, read from two clocks once more


class RankAccount:
    """The counters of one rank as they have been told so far."""

    def __init__(self) -> None:
        self.ended: float | None = None  # when its run ended, UNIX seconds
        self._told: dict[Key, Value] = {}
        self._starts: dict[tuple[str, ...], float] = {}

    def add_readings(self, readings: Iterable[Reading]) -> tuple[list[Reading], dict[Key, float]]:
        """The readings with no counter below its former value, and by how much each plain counter has grown."""
        readings = list(readings)
        if self._is_new(readings):
            self._told = {}
        taken, growth, missing = [], {}, dict(self._told)
        for reading in readings:
            if reading.metric.type == "gauge":
                taken.append(self._steady(reading) if reading.metric.name == STARTS else reading)
                continue
            key = (reading.metric.name, reading.labels)
            before = missing.pop(key, None)
            value = _highest(before, reading.value)
            self._told[key] = value
            taken.append(reading if value is reading.value else Reading(reading.metric, reading.labels, value))
            if not isinstance(value, Histogram):
                growth[key] = value - (before if isinstance(before, (int, float)) else 0)
        taken.extend(Reading(BY_NAME[name], labels, value) for (name, labels), value in missing.items())
        return taken, growth

    def _steady(self, reading: Reading) -> Reading:
        """Grafana draws one mark for each value that it sees: an instant told twice must be one value."""
        if isinstance(reading.value, Histogram):
            return reading
        told = self._starts.get(reading.labels, 0)
        if abs(told - reading.value) >= SAME_SECONDS:
            told = self._starts[reading.labels] = reading.value
        return reading._replace(value=told)

    def _is_new(self, readings: Iterable[Reading]) -> bool:
        before = self._told.get(WALL, 0)
        wall = next((r.value for r in readings if (r.metric.name, r.labels) == WALL), before)
        if isinstance(wall, Histogram) or isinstance(before, Histogram):
            return False
        return wall < before - RESTART_SECONDS


class Others:
    """Sums of the monotonic counters of all ranks that have no series of their own; what has been counted stays."""

    def __init__(self) -> None:
        self._sums: dict[Key, float] = {}

    def add(self, growth: Mapping[Key, float]) -> None:
        """Add a rank's growth; one that stands still (it has ended, say) leaves no trace."""
        if not any(growth.values()):
            return
        for key, amount in growth.items():
            self._sums[key] = round(self._sums.get(key, 0) + amount, 6)

    def readings(self) -> list[Reading]:
        return [Reading(BY_NAME[name], labels, value) for (name, labels), value in self._sums.items()]


def _highest(before: Value | None, now: Value) -> Value:
    """``now`` itself unless something of it fell, so that most readings stay what they are."""
    if isinstance(before, Histogram) and isinstance(now, Histogram):
        counts = tuple(map(max, now.counts, before.counts))
        return Histogram(counts, max(now.sum, before.sum))
    if isinstance(before, (int, float)) and isinstance(now, (int, float)):
        return max(now, before)
    return now
