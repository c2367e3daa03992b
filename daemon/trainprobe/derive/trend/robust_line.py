"""A line through few points: their agreement, its slope, their deviation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

from trainprobe.derive.average import median


def agreement(values: Sequence[float]) -> float:
    """Kendall's tau with their order."""
    pairs = len(values) * (len(values) - 1) // 2
    return sum((late > early) - (late < early) for early, late in combinations(values, 2)) / pairs


def grown(values: Sequence[float]) -> float:
    """From the line's begin to its end, as a part of where it begins; 0 for a line that begins below nothing."""
    steep, length = slope(values), len(values)
    start = median(values) - steep * (length - 1) / 2
    return steep * (length - 1) / start if start > 0 else 0.0


def off_line(values: Sequence[float]) -> float:
    """Sum of squares about the best line."""
    length = len(values)
    mean, middle = sum(values) / length, (length - 1) / 2
    spread = (length**3 - length) / 12
    slope = sum((i - middle) * value for i, value in enumerate(values)) / spread
    return sum((value - mean - slope * (i - middle)) ** 2 for i, value in enumerate(values))


def off_levels(values: Sequence[float]) -> float:
    """Sum of squares about the best two levels."""
    return min(_scatter(values[:split]) + _scatter(values[split:]) for split in range(1, len(values)))


def _scatter(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def slope(values: Sequence[float]) -> float:
    """Theil and Sen's: the median of the slopes of all pairs."""
    return median((values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2))


def error(values: Sequence[float], memory: float) -> float:
    """Standard error of the slope, by what the values scatter about its line; each is like the one before by their own
    correlation, at most ``memory``."""
    length, steep, middle = len(values), slope(values), median(values)
    off = [value - middle - steep * (place - (length - 1) / 2) for place, value in enumerate(values)]
    mean = sum(off) / length
    off = [one - mean for one in off]
    squares = sum(one * one for one in off)
    if not squares:
        return 0.0
    alike = min(memory, max(0.0, sum(one * other for one, other in pairwise(off)) / squares))
    return float((squares / (length - 2) / ((length**3 - length) / 12) * (1 + alike) / (1 - alike)) ** 0.5)
