"""Waits in which two runs differ, whatever the speed of the processors: for files, sleeps, the network, pipes.

What computes wanders with the machine, and may hide that a step waits a millisecond more than it did. So each wait is
judged by itself, by its means in equal stretches of both runs. A disk wanders too: of a wait for calls that write, only
what more of them, or more bytes, explain is the training's; the rest is told as the disk's. Reads are not counted, and
what they take depends on what the page cache held: they are told, and no difference is claimed from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot, sqrt
from statistics import mean, stdev

from trainprobe.derive.steps.ordinary_waits import MOST
from trainprobe.derive.trend.downsample import independent
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import OrdinaryStep

LEAST = 0.025  # of a step: what a wait must differ by
SURE = 5.0  # standard errors by which it must stand out
BOTH_HALVES = 0.5  # of it: what every half of one run must differ by from every half of the other
FEWEST = 8  # stretches of each
COUNTED, UNCOUNTED, BY_OTHERS = "write", "read", ("network", "pipe")


@dataclass(frozen=True, slots=True)
class WaitChange:
    """One wait in both runs, seconds a step (a sample, where these are compared) and calls where they are counted.

    ``change``: of B against A, without what is the disk's; ``disk``: that. ``error``: standard error of both together.
    ``told``: whether ``change`` is a difference; ``disk_told``: whether ``disk`` is worth saying.
    """

    state: str
    call: str  # read | write | sleep | network | pipe
    a: float
    b: float
    error: float
    change: float
    disk: float
    told: bool
    disk_told: bool
    a_calls: float | None = None
    b_calls: float | None = None


def waits(
    a: OrdinaryStep, b: OrdinaryStep, step: float, units: tuple[float, float] = (1.0, 1.0), pace: float = 0.0
) -> tuple[WaitChange, ...]:
    """All that both runs may differ by, the largest difference first.

    ``step``: seconds of a step, or of what is compared; ``units``: what the waits of both are divided by; ``pace``:
    change of the processors' speed, relative, by which what others do meanwhile may be slower too.
    """
    stretches = sorted((a.wait_stretches, b.wait_stretches))
    if not FEWEST <= stretches[0] <= stretches[1] <= MOST:
        return ()
    found = [_wait(a, b, key, step, units, pace) for key in sorted({*a.waits, *b.waits})]
    return tuple(sorted(found, key=lambda one: -abs(one.b - one.a)))


def _wait(
    a: OrdinaryStep, b: OrdinaryStep, key: str, step: float, units: tuple[float, float], pace: float
) -> WaitChange:
    state, _, call = key.partition("/")
    took = [
        [value / unit for value in run.waits.get(key) or [0.0] * run.wait_stretches] for run, unit in zip((a, b), units)
    ]
    a_wait, b_wait = (mean(values) for values in took)
    error = hypot(_error(took[0]), _error(took[1]))
    calls = [_mean(run.written_calls, key, unit) for run, unit in zip((a, b), units)]
    sizes = [_mean(run.written_bytes, key, unit) for run, unit in zip((a, b), units)]
    change = _own(call, (a_wait, b_wait), calls, sizes)
    disk = b_wait - a_wait - change if call in (COUNTED, UNCOUNTED) else 0.0
    doubt = abs(pace) * max(a_wait, b_wait) if call in BY_OTHERS else 0.0
    least = max(LEAST * step, SURE * error) + doubt
    lasts = _lasts(took, b_wait - a_wait)
    counted = (calls[0], calls[1]) if call == COUNTED and any(calls) else (None, None)
    return WaitChange(
        state, call, a_wait, b_wait, error, change, disk, lasts and abs(change) >= least, lasts and abs(disk) >= least,
        *counted,
    )  # fmt: skip


def _own(call: str, took: tuple[float, float], calls: Sequence[float], sizes: Sequence[float]) -> float:
    """What is not the disk's of a difference: of a call that writes, what more calls or more bytes explain."""
    differs = took[1] - took[0]
    if call == UNCOUNTED:
        return 0.0
    if call != COUNTED:
        return differs
    few, many = (0, 1) if differs > 0 else (1, 0)
    more = max((_more(counts[few], counts[many]) for counts in (calls, sizes)), default=0.0)
    explained = min(abs(differs), took[few] * more) if took[few] else abs(differs) * (more > 0)
    return explained if differs > 0 else -explained


def _more(few: float, many: float) -> float:
    """By what part there are more; infinite where there were none."""
    if few:
        return max(0.0, many / few - 1)
    return float("inf") if many else 0.0


def _lasts(took: Sequence[Sequence[float]], differs: float) -> bool:
    """Whether every half of one run differs by a good part of it from every half of the other: no burst does."""
    sign = 1 if differs > 0 else -1
    halves = [[sign * mean(half) for half in (one[: len(one) // 2], one[len(one) // 2 :])] for one in took]
    return min(halves[1]) - max(halves[0]) >= BOTH_HALVES * abs(differs)


def _mean(by_key: Mapping[str, Sequence[float]], key: str, unit: float) -> float:
    return mean(by_key[key]) / unit if by_key.get(key) else 0.0


def _error(values: Sequence[float]) -> float:
    """Standard error of their mean; neighbours that are alike count less."""
    return stdev(values) / sqrt(independent(values))
