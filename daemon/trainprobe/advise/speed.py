"""What the processors' own speed makes of a difference of two runs.

A machine is never the same twice: turbo, heat, a power limit or a neighbour on the same core make all that computes
slower, for minutes and unseen by any counter. A fixed piece of work that is timed all along in both runs is slower then
by the same part, so two runs can be held against each other at equal speed. What waits (storage, network, a GPU, a
sleep) does not go faster on a faster processor and is left as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev

from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import OrdinaryStep, Rank

ON_CPU, WAIT = ("compute", "data_inline"), "data_wait"
BOUND = 0.1  # of a step: whoever waits so long for data goes as fast as it comes
FEWEST, LONGEST = 3, 5  # readings in each run: less tells no speed; one in so many is left out
RESIDUAL = 0.004
"""Standard error: what computing differs by from the fixed piece of work, relative, from one run to the next."""
UNSURE, OWN = 0.5, 1.0
"""Part of a difference of speeds that may not be the training's: a neighbour on the same core takes more from one kind
of instructions than from another. All of it where one run kept more processors busy itself: it may have slowed them."""
TURBO, NEIGHBOUR = 0.05, 2.0
"""Up to so much clock rates go up and down, and all that computes with them. Beyond it is a neighbour, who may take as
many times more from a training: one that streams through memory took 4 % from the fixed piece of work, 3 % from
products of matrices, 46 % from a small layer."""
ALIKE = 0.1  # of the host's processors: up to here two runs kept as many busy


@dataclass(frozen=True)
class Speeds:
    """Of the processors in B against A. ``change``: relative, negative: slower in B. ``error``: standard error of it.

    ``doubt``: by how much a difference of wholly computing steps may be off because of ``change``.
    """

    change: float
    error: float
    doubt: float


def speeds(a: Rank, b: Rank, own: tuple[float, float] | None) -> Speeds | None:
    """``own``: shares of the host's processors that A and B kept busy themselves. None: not measured in one of them."""
    if any(len(rank.ordinary.paces) < FEWEST or min(rank.ordinary.paces) <= 0 for rank in (a, b)):
        return None
    paces = [_undisturbed(rank.ordinary.paces) for rank in (a, b)]
    change = mean(paces[0]) / mean(paces[1]) - 1
    error = sqrt(RESIDUAL**2 + sum(_error(readings) ** 2 for readings in paces))
    alike = own is not None and abs(own[0] - own[1]) <= ALIKE
    doubt = (UNSURE if alike else OWN) * abs(change) + NEIGHBOUR * max(0.0, abs(change) - TURBO)
    return Speeds(change, error, doubt)


def _undisturbed(readings: Sequence[float]) -> list[float]:
    """Without the longest fifth: what came between, and cold caches, make a reading longer and never shorter."""
    return sorted(readings)[: len(readings) - max(1, len(readings) // LONGEST)]


def _error(readings: Sequence[float]) -> float:
    """Standard error of their mean, relative."""
    return stdev(readings) / mean(readings) / sqrt(len(readings))


def computing(rank: Rank) -> dict[str, float]:
    """Seconds of an ordinary step that take the longer, the slower the processors are, by the state in which they show.

    A wait for data is as much of that as the workers spend of a batch on a processor. Where it is a good part of the
    step, the workers set the pace: what the driver computes sooner, it waits the longer.
    """
    ordinary = rank.ordinary
    waited = ordinary.states.get(WAIT, 0.0)
    if ordinary.seconds and waited >= BOUND * ordinary.seconds:
        return {WAIT: ordinary.seconds * _on_cpu(ordinary)}
    computed = {state: ordinary.states.get(state, 0.0) for state in ON_CPU}
    return computed | {WAIT: waited * _on_cpu(ordinary)}


def _on_cpu(ordinary: OrdinaryStep) -> float:
    """The share of a batch's time that the workers spend on a processor, or waiting for one."""
    batch = batch_seconds(ordinary)
    return (ordinary.worker_cpu_seconds_per_batch or 0.0) / batch if batch else 0.0


def batch_seconds(ordinary: OrdinaryStep) -> float:
    """In which a worker makes a batch."""
    parts = (
        ordinary.worker_cpu_seconds_per_batch,
        ordinary.worker_storage_seconds_per_batch,
        ordinary.worker_memory_seconds_per_batch,
        ordinary.worker_blocked_seconds_per_batch,
    )
    return sum(part or 0.0 for part in parts)
