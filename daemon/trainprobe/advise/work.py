"""What a step computes in two runs, by the instructions of the driver's thread: their number is no machine's doing.

Where both runs are the same program on the same kind of processors, a step that computes 5 % more executes 5 % more
instructions, and what the same instructions take longer is the machine's: its clock, caches, memory, a neighbour. That
holds no more where the programs differ by much (another precision, another kernel, more threads), nor where a thread
spins: on a GPU, or for threads that have no processor of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, log1p, sqrt
from statistics import mean, median

from trainprobe.advise.speed import BOUND, ON_CPU, WAIT
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import OrdinaryStep, Rank

FEWEST, FIFTH = 2, 5  # windows of each; of three and more the highest fifth, one at least, is left out: warming up
UNEVEN = 0.04  # range of a run's windows, relative, beyond which something spins
RESIDUAL = 0.003  # standard error of a run's figure, at least: ends of windows
KIND = 0.15  # relative difference of instructions, beyond which it is another program
WANDER = 0.25  # by what the same instructions may take longer or shorter, and it is still the machine
UNLIKE = 0.35  # part of a difference of instructions that may not be one of time: theirs may be quicker ones
ELSEWHERE = 0.025  # of a step: what waits for data and locks differ by from one equal run to the next
RUNQUEUE, GPU = "runqueue", "gpu_wait"


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions of a step, in user space. ``slower``: what the same of them took longer in B, relative.

    ``slowed``: seconds that this makes of a step of B, by state. ``more``: seconds that a step of A would take longer
    for as many instructions as in B, ``error``: standard error of it. ``doubt``: seconds that the whole step may be off
    besides.
    """

    a: float
    b: float
    more: float
    slower: float
    slowed: dict[str, float]
    error: float
    doubt: float


def work(a: Rank, b: Rank) -> Work | None:
    """None: not counted in one of them, or their numbers cannot be compared."""
    first, second = a.ordinary, b.ordinary
    if not all(_usable(rank) for rank in (a, b)):
        return None
    windows = [_undisturbed(one) for one in (first, second)]
    counts = [median(one) for one in windows]
    more = counts[1] / counts[0] - 1
    computed = [_computed(one) for one in (first, second)]
    even = computed[0] * (1 + more)
    slower = computed[1] / even - 1
    if max(abs(log1p(more)) / log1p(KIND), abs(log1p(slower)) / log1p(WANDER)) >= 1:  # alike from either side
        return None
    took = [second.states.get(state, 0.0) for state in ON_CPU]
    slowed = {state: (computed[1] - even) * own / sum(took) for state, own in zip(ON_CPU, took)}
    error = hypot(*map(_error, windows)) * computed[0]
    doubt = UNLIKE * abs(more) * computed[0] + _elsewhere(first, second)
    return Work(counts[0], counts[1], more * computed[0], slower, slowed, error, doubt)


def _undisturbed(ordinary: OrdinaryStep) -> list[float]:
    """What spins or warms up executes more, and never less."""
    counts = sorted(ordinary.instructions)
    return counts if len(counts) <= FEWEST else counts[: len(counts) - max(1, len(counts) // FIFTH)]


def _usable(rank: Rank) -> bool:
    ordinary = rank.ordinary
    counts, step = _undisturbed(ordinary), ordinary.seconds or 0.0
    if len(counts) < FEWEST or min(counts) <= 0 or max(counts) > (1 + UNEVEN) * min(counts):
        return False
    spins = bool(rank.gpus) or ordinary.states.get(GPU, 0.0) > 0
    return not spins and ordinary.states.get(WAIT, 0.0) < BOUND * step and _computed(ordinary) > 0


def _computed(ordinary: OrdinaryStep) -> float:
    """Seconds of a step in which its thread was on a processor."""
    waited = sum(_mean(took) for key, took in ordinary.waits.items() if key.partition("/")[0] in ON_CPU)
    return sum(ordinary.states.get(state, 0.0) for state in ON_CPU) - waited


def _elsewhere(a: OrdinaryStep, b: OrdinaryStep) -> float:
    """Seconds of a step by which a machine may make two equal runs differ beside computing: other programs wait their
    turn, workers are later, locks are held longer."""
    queued = abs(b.states.get(RUNQUEUE, 0.0) - a.states.get(RUNQUEUE, 0.0))
    rest = [
        (one.seconds or 0.0)
        - _computed(one)
        - one.states.get(RUNQUEUE, 0.0)
        - sum(_mean(took) for took in one.waits.values())
        for one in (a, b)
    ]
    return queued + min(abs(rest[1] - rest[0]), ELSEWHERE * (a.seconds or 0.0))


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else 0.0


def _error(counts: Sequence[float]) -> float:
    """Standard error of their median, relative."""
    return hypot(RESIDUAL, (max(counts) - min(counts)) / median(counts) / 2 / sqrt(len(counts)))
