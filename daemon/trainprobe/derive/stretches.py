"""Steps in equal stretches: how far one and the same run's medians lie apart tells what a difference is worth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

MOST, SHORTEST = 32, 8
"""Stretches at most, and how many steps one has at least."""


def medians(lengths: Sequence[float]) -> list[float]:
    """The median of each of up to MOST equal stretches; empty for fewer than SHORTEST lengths."""
    number = min(MOST, len(lengths) // SHORTEST)
    cuts = [len(lengths) * i // number for i in range(number + 1)] if number else []
    return [median(lengths[a:b]) for a, b in pairwise(cuts)]
