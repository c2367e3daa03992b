"""Workers that set the pace of two runs and are blocked most of the time: in sleeps, on the network.

What they are blocked for is no machine's doing: of seven equal trainings it differed by 0.5 % at most. The little that
such a worker computes is: whoever wakes for a moment finds cold caches, and took up to twice as long from one of them
to the next, which made 3 % of a step.
"""

from __future__ import annotations

from trainprobe.advise.speed import BOUND, WAIT, batch_seconds
from trainprobe.advise.waits import LEAST, WaitChange
from trainprobe.model.report import Rank

CALL = "workers"
MOSTLY = 0.85  # of a batch's time


def blocked(a: Rank, b: Rank, step: float, error: float, unit: float = 1.0) -> WaitChange | None:
    """What they are blocked for, per step; ``step``: seconds of one, ``error``: what it may be off by chance. All is
    divided by ``unit``, samples of a step where these are compared.

    None: in one of them workers do not set the pace, are not blocked most of the time, or are more than in the other.
    """
    if _workers(a) != _workers(b) or not all(_mostly(rank) for rank in (a, b)):
        return None
    took = [(rank.ordinary.worker_blocked_seconds_per_batch or 0.0) * _batches(rank) for rank in (a, b)]
    change = took[1] - took[0]
    told = abs(change) >= max(LEAST * step, error)
    return WaitChange(
        WAIT, CALL, took[0] / unit, took[1] / unit, error / unit, change / unit, disk=0.0, told=told, disk_told=False
    )


def doubt(a: Rank, b: Rank) -> float:
    """Seconds of a step by which they may differ because of the little that such workers compute."""
    if not all(_mostly(rank) for rank in (a, b)):
        return 0.0
    took = [(rank.ordinary.worker_cpu_seconds_per_batch or 0.0) * _batches(rank) for rank in (a, b)]
    return abs(took[1] - took[0])


def _mostly(rank: Rank) -> bool:
    """Whether its workers set the pace, and are blocked most of the time."""
    ordinary = rank.ordinary
    waits = ordinary.states.get(WAIT, 0.0) >= BOUND * (ordinary.seconds or 0.0)
    batch, waited = batch_seconds(ordinary), ordinary.worker_blocked_seconds_per_batch or 0.0
    return waits and _workers(rank) > 0 and batch > 0 and waited >= MOSTLY * batch


def _batches(rank: Rank) -> float:
    """That each worker makes during a step."""
    return (rank.ordinary.fetches or 0.0) / _workers(rank)


def _workers(rank: Rank) -> int:
    """Of the training's own loader, as far as known: an evaluation's may live beside them."""
    return rank.ordinary.workers or rank.workers.peak
