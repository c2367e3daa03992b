"""How much two equal runs differ by chance: their intervals vary, stalls happen or not, others use the host."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, sqrt
from statistics import median

from trainprobe.advise import blocked
from trainprobe.advise.speed import Speeds, computing
from trainprobe.advise.waits import waits
from trainprobe.advise.work import Work
from trainprobe.derive.trend.downsample import ALIKE, independent
from trainprobe.model.report import Rank, Stall

SURE, STALLS_SURE, SPEED_SURE = 3.0, 2.5, 2.0
"""Standard errors by which a difference must stand out: of ordinary steps, of what stalls take, of the processors'
speed."""
ALIKE_PACED = 0.5  # autocorrelation that is counted where the speed of the processors is known
NORMAL = 1.4826  # median absolute deviation to standard deviation
MEDIAN_LOSS = 1.2533  # standard error of a median over that of a mean
INTERFERENCE = 0.4
"""A step's part that is lost when all CPUs are busy with something else: shared cores, caches and memory."""
UNSEEN = 0.05  # of a step, at most: what only the slower stretches have
DISTURBED = 0.05  # of the CPUs: what others use beyond it is told


def of_time(
    a: Rank, b: Rank, steps: tuple[float, float], measured: Speeds | None, others: tuple[float, float]
) -> float:
    """What steps of B that are judged by their time may be off by against those of A, relative."""
    alike = ALIKE if measured is None else ALIKE_PACED
    spread = hypot(_spread(a, alike) / steps[0], _spread(b, alike) / steps[1])
    if measured is None:
        spread += _unseen(a, b)
    else:
        part = min(1.0, sum(computing(b).values()) / steps[1])
        spread = hypot(spread, part * SPEED_SURE * measured.error, part * measured.doubt)
    return spread + _interference(others) + blocked.doubt(a, b) / steps[0]


def of_work(a: Rank, b: Rank, step: float, counted: Work) -> float:
    """The same where what they compute is judged by its instructions: how its time wanders is of no interest then."""
    stalls = hypot(stalls_error(a), stalls_error(b))
    waited = hypot(*(SURE * wait.error for wait in waits(a.ordinary, b.ordinary, step)))
    return (hypot(SURE * counted.error, stalls, waited) + counted.doubt) / step


def _unseen(a: Rank, b: Rank) -> float:
    """The part of a difference of ordinary steps that their quickest stretches do not have, relative."""
    fastest = quickest(a, b)
    if fastest is None or not (a.ordinary.seconds and b.ordinary.seconds):
        return 0.0
    differs = b.ordinary.seconds - a.ordinary.seconds
    return min(UNSEEN, abs(differs - (fastest[1] - fastest[0])) / max(a.ordinary.seconds, b.ordinary.seconds))


def quickest(a: Rank, b: Rank) -> tuple[float, float] | None:
    both = min(a.ordinary.stretches, default=0.0), min(b.ordinary.stretches, default=0.0)
    return both if min(both) > 0 else None


def _interference(others: tuple[float, float]) -> float:
    """What other programs may have made of a difference: most where they were there in one of the runs only."""
    seen = [max(0.0, share - DISTURBED) for share in others]
    return INTERFERENCE * (abs(seen[0] - seen[1]) + max(seen) / 2)


def _spread(rank: Rank, most_alike: float) -> float:
    """Seconds by which a mean step may be off by chance."""
    ordinary = SURE * median_error(rank.ordinary.stretches, most_alike)
    return hypot(ordinary, stalls_error(rank))


def stalls_error(rank: Rank) -> float:
    """Seconds of a step by which what stalls take may be off by chance."""
    by_cause: dict[str, list[Stall]] = {}
    for stall in rank.stalls:
        by_cause.setdefault(stall.cause, []).append(stall)
    return STALLS_SURE * hypot(*map(_stall_error, by_cause.values())) / rank.ordinary.count


def _stall_error(stalls: Sequence[Stall]) -> float:
    """Of all seconds of a cause's stalls: those that come by a rhythm may be one more or less, others by their root."""
    if any(stall.period is not None for stall in stalls):
        return median(stall.seconds for stall in stalls) / STALLS_SURE
    return sqrt(sum(stall.seconds**2 for stall in stalls))


def median_error(stretches: Sequence[float], most_alike: float = ALIKE) -> float:
    """Standard error of the median of all, from the medians of stretches; neighbours that are alike count less."""
    if len(stretches) < 4:
        return max(stretches, default=0.0)
    middle = median(stretches)
    deviation = NORMAL * median(abs(value - middle) for value in stretches)
    return MEDIAN_LOSS * deviation / sqrt(independent(stretches, most_alike))
