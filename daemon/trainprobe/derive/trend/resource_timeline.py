"""Readings over a rank's whole life, in a bounded number of points; their distance grows with the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from trainprobe.model.dataclass import dataclass

POINTS = 128
FINEST_NS = 5_000_000_000  # processes are read every five seconds


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Readings of an interval: the highest of each, because that one reaches limits; the mean of the GPUs' use.

    None: not measured.
    """

    at_ns: int
    pss_bytes: int | None
    swap_bytes: int | None
    workers: int
    gpu_utilization: float | None = None


@dataclass(slots=True)
class ResourceTimeline:
    """Points in time order; when there are too many, neighbours are merged."""

    points: list[TimelinePoint] = field(default_factory=list)
    width_ns: int = FINEST_NS

    def add(self, point: TimelinePoint) -> None:
        self._join(point)
        while len(self.points) > POINTS:
            self.width_ns *= 2
            before, self.points = self.points, []
            for one in before:
                self._join(one)

    def _join(self, point: TimelinePoint) -> None:
        if self.points and self.points[-1].at_ns // self.width_ns == point.at_ns // self.width_ns:
            self.points[-1] = _highest(self.points[-1], point)
        else:
            self.points.append(point)


def _highest(first: TimelinePoint, second: TimelinePoint) -> TimelinePoint:
    return replace(
        first,
        pss_bytes=_most((first.pss_bytes, second.pss_bytes)),
        swap_bytes=_most((first.swap_bytes, second.swap_bytes)),
        workers=max(first.workers, second.workers),
        gpu_utilization=_mean(first.gpu_utilization, second.gpu_utilization),
    )


def _mean(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return (first + second) / 2


def _most(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
