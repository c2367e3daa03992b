"""The middle of some values.

As in the module statistics, which brings fractions, decimal and random along: 0.8 MB of the daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import fsum


def median(values: Iterable[float]) -> float:
    """Raises ValueError where there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no median of nothing")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def mean(values: Collection[float]) -> float:
    """Raises ZeroDivisionError where there is none."""
    return fsum(values) / len(values)
