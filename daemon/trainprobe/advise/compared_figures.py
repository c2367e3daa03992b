"""The figures of two runs side by side, each with a verdict of its own where its error is known.

Speed is judged as a whole (``trainprobe.advise.comparison``). What is lost, and how many stalls there are, differ by
chance as their stalls do; peaks of memory hardly do. What has no such measure, or is a setting, gets no verdict.
"""

from __future__ import annotations

from math import hypot, log, sqrt
from statistics import mean

from trainprobe.advise import chance
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank
from trainprobe.text.saying import word

LEAST = 0.03  # relative difference, or share of the time, below which two runs are called equal
MEMORY_LEAST = 0.1  # relative: peaks of equal runs differ by less


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both runs. ``better``: +1 B is better, -1 worse, 0 no difference that can be told; None: not
    judged."""

    name: str
    a: float | None
    b: float | None
    unit: str  # s, 1/s, ratio, bytes, count
    better: int | None = None

    @property
    def change(self) -> float | None:
        """B against A, relative; None where either was not measured or A is nothing."""
        if self.a is None or self.b is None or not self.a:
            return None
        return self.b / self.a - 1


def figures(
    a: Rank,
    b: Rank,
    steps: tuple[float, float],
    samples: tuple[float, float] | None,
    whole: int | None,
    work: tuple[float, float, int] | None,
) -> tuple[Figure, ...]:
    """``steps``: seconds each; ``whole``: the verdict on steps, or on samples where they are told; ``work``: millions
    of instructions of a step, and the verdict on them."""
    speed = None if samples else whole
    rows = [
        _speed(word("it/s"), a.steps.per_second, b.steps.per_second, speed),
        Figure(word("step in training, mean"), *steps, "s", speed),
    ]
    if samples:
        each = samples[0] / steps[0], samples[1] / steps[1]
        rows.append(Figure(word("samples/s in training"), *each, "1/s", whole))
    if work is not None:
        rows.append(Figure(word("M instructions a step"), *work[:2], "count", work[2]))
    memory = _float(a.memory.pss_peak_bytes), _float(b.memory.pss_peak_bytes)
    shared = _float(a.memory.shm_peak_bytes), _float(b.memory.shm_peak_bytes)
    rows += [
        Figure(word("step, median"), a.steps.median_seconds, b.steps.median_seconds, "s"),
        Figure(word("step, p99"), a.steps.p99_seconds, b.steps.p99_seconds, "s"),
        Figure(word("variation"), a.steps.variation_ratio, b.steps.variation_ratio, "ratio"),
        Figure(word("productive"), _share(a), _share(b), "ratio", _productive(a, b, steps)),
        Figure(word("stalls"), float(a.totals.stalls), float(b.totals.stalls), "count", _stalls(a, b)),
        Figure(word("memory, peak"), *memory, "bytes", _peak(*memory)),
        Figure(word("shared memory"), *shared, "bytes", _peak(*shared)),
        Figure(word("open files, peak"), _float(a.fds.open_peak), _float(b.fds.open_peak), "count"),
        Figure(word("loader workers"), float(a.workers.peak), float(b.workers.peak), "count"),
        Figure(word("GPU busy"), _busy(a), _busy(b), "ratio"),
    ]
    return tuple(figure for figure in rows if figure.a is not None or figure.b is not None)


def _speed(name: str, a: float | None, b: float | None, whole: int | None) -> Figure:
    """Steps per second of all the time, phases included: they have the verdict of the steps where they went its way."""
    agrees = whole is not None and a is not None and b is not None and (b - a) * whole > 0
    return Figure(name, a, b, "1/s", whole if agrees or whole == 0 else None)


def _productive(a: Rank, b: Rank, steps: tuple[float, float]) -> int | None:
    """By what stalls take of a step; a shorter run is less productive for its start-up alone."""
    shares, lost = (_share(a), _share(b)), [_lost(rank) for rank in (a, b)]
    if shares[0] is None or shares[1] is None or not (a.ordinary.count and b.ordinary.count):
        return None
    differs, error = lost[0] - lost[1], hypot(*(chance.stalls_error(rank) / step for rank, step in zip((a, b), steps)))
    better = _sign(differs, max(LEAST, error))
    return better if better * (shares[1] - shares[0]) >= 0 else None


def _stalls(a: Rank, b: Rank) -> int | None:
    """Per step, by the root of their number."""
    counts = (a.totals.stalls, b.totals.stalls)
    if not (a.ordinary.count and b.ordinary.count):
        return None
    rates = [number / rank.ordinary.count for number, rank in zip(counts, (a, b))]
    error = hypot(*(sqrt(max(number, 1)) / rank.ordinary.count for number, rank in zip(counts, (a, b))))
    better = _sign(rates[0] - rates[1], chance.STALLS_SURE * error)
    return better if better * (counts[0] - counts[1]) >= 0 else None


def _peak(a: float | None, b: float | None) -> int | None:
    return _sign(log(a / b), MEMORY_LEAST) if a and b and min(a, b) > 0 else None


def _sign(value: float, least: float) -> int:
    return 0 if abs(value) <= least else 1 if value > 0 else -1


def _lost(rank: Rank) -> float:
    """Share of the time in training."""
    lost = sum(rank.counters.stall_seconds.values())
    trained = rank.ordinary.count * (rank.ordinary.seconds or 0.0) + lost
    return lost / trained if trained else 0.0


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _share(rank: Rank) -> float | None:
    return rank.productive_seconds / rank.wall_seconds if rank.wall_seconds > 0 else None


def _busy(rank: Rank) -> float | None:
    told = [gpu.utilization_mean for gpu in rank.gpus if gpu.utilization_mean is not None]
    return mean(told) if told else None
