"""Finds what recurs every N steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from trainprobe.derive.average import median

TOLERANCE = 0.1  # of the median distance


def recurrence(positions: Sequence[int], least: int = 2) -> int | None:
    """The distance at which ascending ``positions`` recur, or None.

    At least three occurrences, at least ``least`` apart, and at least 70 % of the distances within ``TOLERANCE`` (or
    one) of their median.
    """
    if len(positions) < 3:
        return None
    gaps = [b - a for a, b in itertools.pairwise(positions)]
    middle = median(gaps)
    if middle < least:
        return None
    near = sum(1 for gap in gaps if abs(gap - middle) <= max(1.0, TOLERANCE * middle))
    return round(middle) if near >= 0.7 * len(gaps) else None
