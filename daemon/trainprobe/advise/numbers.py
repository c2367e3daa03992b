"""The arithmetic behind the advice."""

from __future__ import annotations

from math import ceil


def workers_needed(worker_seconds_per_batch: float, step_seconds: float) -> int:
    """Workers that make batches as fast as steps use them.

    ``worker_seconds_per_batch``: busy seconds of a worker for one batch; ``step_seconds``: a step without data wait.
    """
    return max(1, ceil(worker_seconds_per_batch / max(step_seconds, 1e-6)))


def interval_for_share(seconds_each: float, every_steps: int, step_seconds: float, share: float = 0.01) -> int:
    """Steps between occurrences so that something of ``seconds_each`` takes at most ``share`` of the run."""
    needed = seconds_each * (1 - share) / share / max(step_seconds, 1e-6)
    return max(every_steps, round_up(ceil(needed)))


def round_up(steps: int) -> int:
    """The next number of steps that a person would choose: two digits, then zeros."""
    digits = max(0, len(str(steps)) - 2)
    unit: int = 10**digits
    return -(-steps // unit) * unit
