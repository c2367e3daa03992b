"""When a growing amount reaches its limit: a robust slope, and nothing where growth recurs or comes to rest.

A series keeps points of 1 s for a minute, of 8 s for eight, of 64 s for an hour, of 512 s for nine. The longest
interval of steady growth up to now is the ramp. It must exceed everything seen before it (a saw-tooth returns to where
it was), cover a good part of the way to the limit, and not come to rest below it."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from itertools import combinations

from trainprobe.derive.average import median
from trainprobe.model.dataclass import dataclass

POINT_SECONDS = (1.0, 8.0, 64.0, 512.0)
KEPT = 64
LEAST_POINTS = 9
LONG_SECONDS, SHORT_SECONDS = 8.0, 4.5  # the least length of a ramp; the short one where it cannot be a start-up
ENDS = 0.1  # of a ramp's growth at its begin and at its end, where it may pause
PARTS = (1.0, 0.75, 0.5, 0.36, 0.25, 0.18, 0.125)  # of a level's points: stretches that may be the ramp
GROUPS = 24  # points of a stretch are put together to so many before slopes of all pairs are taken
NEAR_SECONDS = 120.0
HORIZON_SECONDS = 1800.0
COVERED_NEAR = 0.35  # of the way from where the ramp began to the limit, when the limit is near in time
COVERED_FAR = 0.6
RISING = 0.85  # of all pairs of points, the later one is higher
EVEN = (0.5, 1.7)  # growth of the last third of a ramp to that of the one before it
RESTING = 0.95  # below, it slows down: where would it come to rest?
CAUTION = 0.1  # taken from that ratio before this is asked
STRAIGHT = 0.1  # of its growth: mean deviation of a ramp from its line, at most
STRAIGHT_MOST = 0.3  # the same for the point with the largest deviation
BENT = 1.6  # deviation of a ramp from its line to that of its later half from its own: above, the growth began inside


@dataclass(frozen=True, slots=True)
class Forecast:
    """A limit that will be reached. ``eta_seconds`` from the last point; ``slope`` per second; ``ramp_seconds`` of
    growth."""

    eta_seconds: float
    slope: float
    ramp_seconds: float


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """A span of the series: when it ended, its mean and its highest value."""

    at: float
    mean: float
    high: float


@dataclass(slots=True)
class _Level:
    seconds: float
    points: deque[SeriesPoint] = field(default_factory=lambda: deque(maxlen=KEPT))
    began: float = 0.0
    values: int = 0
    total: float = 0.0
    high: float = 0.0

    def add(self, at: float, value: float) -> None:
        if not self.values:
            self.began = at
        self.values += 1
        self.total += value
        self.high = value if self.values == 1 else max(self.high, value)
        if at - self.began >= self.seconds * 0.9 or self.seconds <= POINT_SECONDS[0]:
            self.points.append(SeriesPoint(at, self.total / self.values, self.high))
            self.values, self.total = 0, 0.0


@dataclass(slots=True)
class GrowthSeries:
    """Values over time, finer the later. Seconds of any clock that only goes forward."""

    levels: list[_Level] = field(default_factory=lambda: [_Level(seconds) for seconds in POINT_SECONDS])

    def add(self, at: float, value: float) -> None:
        """Adds a value; one that is not later than the last is ignored."""
        finest = self.levels[0].points
        if finest and at <= finest[-1].at:
            return
        for level in self.levels:
            level.add(at, value)

    @property
    def last(self) -> SeriesPoint | None:
        return self.levels[0].points[-1] if self.levels[0].points else None

    @property
    def seconds(self) -> float:
        """The time from the finest level's first point to the last point."""
        points = self.levels[0].points
        return points[-1].at - points[0].at if points else 0.0

    def slope(self, seconds: float) -> float | None:
        """Growth per second over the last ``seconds``, or as far back as is known; None: too little is known."""
        best: list[SeriesPoint] = []
        for level in self.levels:
            points = [p for p in level.points if p.at >= level.points[-1].at - seconds]
            if len(points) >= 3 and (not best or points[0].at < best[0].at - level.seconds):
                best = points
        return _line(_grouped(best))[0].slope if best else None

    def _before(self, at: float) -> float | None:
        """The highest value before a time, as far back as the series goes."""
        highs = [p.high for level in self.levels for p in level.points if p.at < at]
        return max(highs, default=None)


def forecast(series: GrowthSeries, limit: float, started: float | None = None) -> Forecast | None:
    """When the limit is reached at the current growth; None: not foreseeable. ``started``: when the training began to
    step: growth since then may be reported sooner, where it was read often enough."""
    last = series.last
    if last is None or limit <= 0 or last.high < COVERED_NEAR * limit or last.high >= limit:
        return None
    for level in reversed(series.levels):
        points = list(level.points)
        if points and points[-1].at < last.at:
            points.append(last)
        high = max([p.high for p in points[-3:]], default=0.0)
        for part in PARTS:
            begin = len(points) - int(part * len(points))
            if len(points) - begin < LEAST_POINTS:
                break
            # From a higher base less is covered: most are out before all earlier points are looked through.
            start = median([p.mean for p in points[begin : begin + 3]])
            if _covered(start, high, limit) < COVERED_NEAR:
                continue
            running = started is not None and points[begin].at >= started
            least_seconds = SHORT_SECONDS if running else LONG_SECONDS
            if _rise_seconds(points[begin:], start, high) < least_seconds:
                continue
            found = _ramp(series, points[begin:], start, high, limit)
            if found is not None:
                return found
    return None


def _ramp(
    series: GrowthSeries, points: Sequence[SeriesPoint], start: float, high: float, limit: float
) -> Forecast | None:
    earlier = series._before(points[0].at)
    covered = _covered(start if earlier is None else max(start, earlier), high, limit)
    if covered < COVERED_NEAR:
        return None
    grouped = _grouped(points)
    if not _goes_on(grouped, limit):  # asked first: a line takes ten times as long
        return None
    line, rising = _line(grouped)
    if line.slope <= 0 or rising < RISING or not line.fits(grouped):
        return None
    latest = grouped[len(grouped) // 2 :]
    recent, _ = _line(latest)
    if recent.slope > 0 and recent.spread * BENT < line.spread:
        line = recent
    above = max(0.0, *(p.high - line.at(p.at) for p in latest))
    slope, now = line.slope, points[-1].at
    eta = (limit - max(high, line.at(now) + min(above, line.spread))) / slope
    eta = max(0.0, eta)
    if eta > HORIZON_SECONDS or (eta > NEAR_SECONDS and covered < COVERED_FAR):
        return None
    return Forecast(eta, slope, points[-1].at - points[0].at)


def _covered(base: float, high: float, limit: float) -> float:
    return (high - base) / (limit - base) if base < limit else 0.0


def _rise_seconds(points: Sequence[SeriesPoint], start: float, high: float) -> float:
    """How long it took, without the rest before and after it."""
    low, top = start + ENDS * (high - start), high - ENDS * (high - start)
    began = next((p.at for p in reversed(points) if p.mean <= low), points[0].at)
    ended = next((p.at for p in points if p.mean >= top), points[-1].at)
    return (ended - began) / (1 - 2 * ENDS)


def _goes_on(points: Sequence[SeriesPoint], limit: float) -> bool:
    """Whether the growth is even, and does not come to rest below the limit."""
    third = len(points) // 3
    parts = [points[:third], points[third : 2 * third], points[2 * third :]]
    levels = [_mean([p.mean for p in part]) for part in parts]
    times = [_mean([p.at for p in part]) for part in parts]
    first, second = ((b - a) / max(t - s, 1e-9) for a, b, s, t in zip(levels, levels[1:], times, times[1:]))
    if first <= 0 or not EVEN[0] <= second / first <= EVEN[1]:
        return False
    ratio = second / first
    if ratio >= RESTING:
        return True
    ratio -= CAUTION
    return levels[2] + (levels[2] - levels[1]) * ratio / (1 - ratio) >= limit


def _grouped(points: Sequence[SeriesPoint]) -> Sequence[SeriesPoint]:
    size = -(-len(points) // GROUPS)
    if size == 1:
        return points
    times, means, highs = [p.at for p in points], [p.mean for p in points], [p.high for p in points]
    ends = range(len(points) % size or size, len(points) + 1, size)
    groups = [slice(max(0, end - size), end) for end in ends]
    return [SeriesPoint(_mean(times[one]), _mean(means[one]), max(highs[one])) for one in groups]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True, slots=True)
class _Line:
    slope: float
    offset: float
    growth: float  # over the points that it was drawn through
    spread: float  # of the points' means around it

    def at(self, at: float) -> float:
        return self.offset + self.slope * at

    def fits(self, points: Sequence[SeriesPoint]) -> bool:
        strays = [abs(p.mean - (self.offset + self.slope * p.at)) for p in points]
        return sum(strays) <= STRAIGHT * self.growth * len(strays) and max(strays) <= STRAIGHT_MOST * self.growth


def _line(points: Sequence[SeriesPoint]) -> tuple[_Line, float]:
    """Through the points by the median of the slopes of all pairs (Theil and Sen), and the part of pairs that rise."""
    places = [(p.at, p.mean) for p in points]
    slopes = sorted([(later - mean) / (then - at) for (at, mean), (then, later) in combinations(places, 2)])
    slope = median(slopes)
    offset = median([mean - slope * at for at, mean in places])
    spread = max([abs(mean - offset - slope * at) for at, mean in places])
    rising = (len(slopes) - bisect_right(slopes, 0.0)) / len(slopes)
    return _Line(slope, offset, slope * (points[-1].at - points[0].at), spread), rising
