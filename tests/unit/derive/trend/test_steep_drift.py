"""Growth by much within 200 steps is told; noise of every kind that trainings have is not."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence

import pytest

from trainprobe.derive.trend.steep_drift import Steep

BASE = 5e7
MANY = int(os.environ.get("TRAINPROBE_SERIES") or 150)
"""Series of each kind: 10 000 of each were run for the figures in docs/causes/drift.md."""
Numbers = Sequence[float]


def told(rest: Numbers, backward: Numbers, rng: random.Random, noise: float) -> int | None:
    """After how many steps growth was told; None: never. Both in parts of an even step."""
    steep = Steep()
    for step, (one, other) in enumerate(zip(rest, backward, strict=True)):
        length = BASE * max(one + other, other + 0.05) * rng.gauss(1, noise)
        if steep.add_step(int(length), int(BASE * other)):
            return step + 1
    return None


def remembering(rng: random.Random, count: int, memory: float, spread: float) -> list[float]:
    value, fresh, out = rng.gauss(0, spread), spread * math.sqrt(1 - memory**2), []
    for _ in range(count):
        value = memory * value + rng.gauss(0, fresh)
        out.append(value)
    return out


def own(rng: random.Random, count: int) -> list[float]:
    spread = rng.uniform(0.01, 0.1)
    return [rng.gauss(0, spread) for _ in range(count)]


def correlated(rng: random.Random, count: int) -> list[float]:
    return remembering(rng, count, rng.choice((0.5, 0.8, 0.9, 0.95)), rng.uniform(0.01, 0.08))


def wandering(rng: random.Random, count: int) -> list[float]:
    return remembering(rng, count, rng.choice((0.97, 0.98, 0.99)), rng.uniform(0.01, 0.06))


def jumping(rng: random.Random, count: int) -> list[float]:
    out = [0.0] * count
    for _ in range(rng.randint(1, 4)):
        place, by = rng.randrange(10, count - 10), rng.uniform(-0.2, 0.4)
        out = [value + by * (step >= place) for step, value in enumerate(out)]
    return out


def periodic(rng: random.Random, count: int) -> list[float]:
    wide, period, phase = rng.uniform(0.03, 0.2), rng.uniform(20, 250), rng.random()
    return [wide * math.sin(2 * math.pi * (step / period + phase)) for step in range(count)]


def settling(rng: random.Random, count: int) -> list[float]:
    by, within = rng.uniform(0.05, 0.5), rng.uniform(10, 80)
    return [by * math.exp(-step / within) for step in range(count)]


def spiking(rng: random.Random, count: int) -> list[float]:
    return [abs(rng.gauss(0, 1) / max(0.05, abs(rng.gauss(0, 1)))) * 0.03 for _ in range(count)]


@pytest.mark.parametrize("kind", [own, correlated, wandering, jumping, periodic, settling, spiking])
def test_noise_of_a_kind_is_no_growth(kind: Callable[[random.Random, int], list[float]]) -> None:
    found = 0
    for seed in range(MANY):
        rng = random.Random(f"{kind.__name__}/{seed}")
        count, share = rng.randrange(180, 600), rng.uniform(0.25, 0.7)
        backward = [share * rng.gauss(1, 0.02) for _ in range(count)]
        rest = [(1 - share) * rng.gauss(1, 0.02) + more for more in kind(rng, count)]
        found += told(rest, backward, rng, rng.uniform(0.005, 0.03)) is not None
    assert found <= MANY / 1000


def test_a_machine_that_slows_down_is_no_growth() -> None:
    for seed in range(MANY):
        rng = random.Random(seed)
        count, slower = rng.randrange(200, 600), rng.uniform(0.05, 0.4)
        pace = [1 + slower * step / count for step in range(count)]
        assert told([0.6 * one for one in pace], [0.4 * one for one in pace], rng, 0.02) is None


@pytest.mark.parametrize(("growth", "noise", "least"), [(0.2, 0.01, 95), (0.2, 0.03, 60), (0.3, 0.03, 95)])
def test_growth_within_two_hundred_steps_is_told_within_them(growth: float, noise: float, least: int) -> None:
    found = []
    for seed in range(100):
        rng = random.Random(seed)
        share = rng.uniform(0.25, 0.7)
        backward = [share * rng.gauss(1, 0.02) for _ in range(200)]
        rest = [(1 - share) * rng.gauss(1, 0.02) + growth * step / 200 for step in range(200)]
        found.append(told(rest, backward, rng, noise))
    assert sum(one is not None for one in found) >= least


def test_where_the_backward_is_not_known_nothing_is_concluded() -> None:
    rng = random.Random(1)
    assert told([1 + 0.3 * step / 200 for step in range(200)], [0.0] * 200, rng, 0.005) is None
