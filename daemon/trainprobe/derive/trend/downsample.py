"""Values in equal intervals: their spread within one run shows which difference of two runs is significant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from trainprobe.derive.average import mean, median

MOST, SHORTEST = 32, 8
"""Stretches at most, and how many steps one has at least."""
ALIKE = 0.9
"""Autocorrelation counts up to this: slow changes are the machine's, whose speed may be known."""


def medians(lengths: Sequence[float]) -> list[float]:
    """The median of each of up to MOST equal stretches; empty for fewer than SHORTEST lengths."""
    return [median(part) for part in _parts(lengths, len(lengths) // SHORTEST)]


def means(readings: Sequence[float]) -> list[float]:
    """The mean of each of up to MOST equal stretches."""
    return [mean(part) for part in _parts(readings, len(readings))]


def autocorrelation(values: Sequence[float]) -> float:
    """Of neighbours; 0 where nothing varies."""
    middle = mean(values)
    square = sum((value - middle) ** 2 for value in values)
    return sum((x - middle) * (y - middle) for x, y in pairwise(values)) / square if square else 0.0


def independent(values: Sequence[float], most_alike: float = ALIKE) -> float:
    """The effective number of independent values, at least 1; autocorrelation counts up to ``most_alike``."""
    alike = max(0.0, min(most_alike, autocorrelation(values)))
    return max(1.0, len(values) * (1 - alike) / (1 + alike))


def _parts(values: Sequence[float], number: int) -> Iterator[list[float]]:
    values, number = list(values), min(MOST, number)
    cuts = [len(values) * i // number for i in range(number + 1)] if number else []
    return (values[a:b] for a, b in pairwise(cuts))
