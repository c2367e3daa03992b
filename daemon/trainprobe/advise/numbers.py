"""The arithmetic behind the advice."""

from __future__ import annotations

from math import ceil


def interval_for_share(seconds_each: float, every_steps: int, step_seconds: float, share: float = 0.01) -> int:
    """Steps between occurrences so that something of ``seconds_each`` takes at most ``share`` of the run."""
    needed = seconds_each * (1 - share) / share / max(step_seconds, 1e-6)
    return max(every_steps, round_up(ceil(needed)))


def round_up(steps: int) -> int:
    """The next number of steps that a person would choose: two digits, then zeros."""
    digits = max(0, len(str(steps)) - 2)
    unit: int = 10**digits
    return -(-steps // unit) * unit
