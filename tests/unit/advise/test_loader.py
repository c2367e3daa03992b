"""What a step takes with other workers: never longer than promised, never shorter than what it can be at most."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from trainprobe.advise.loader import USABLE, Loader, loader
from trainprobe.model.report import OrdinaryStep

FEW = Loader(workers=1, own=0.05, wait=0.05, fetches=1.0, cpu=0.1, blocked=0.0, driver_cpu=0.05, cpus=2)
REMOTE = Loader(workers=1, own=0.05, wait=0.12, fetches=1.0, cpu=0.015, blocked=0.155, driver_cpu=0.05, cpus=2)


def test_all_cpu_seconds_have_to_fit_the_cpus_that_can_be_used() -> None:
    assert FEW.step(2) == pytest.approx(0.15 / (2 * USABLE))
    assert replace(FEW, others=0.3).step(2) == pytest.approx(0.15 / (2 * USABLE - 0.3))
    assert FEW.quickest(2) == pytest.approx(0.075)


def test_workers_that_wait_for_the_network_may_be_more_than_the_cpus() -> None:
    assert REMOTE.best() == 4
    assert REMOTE.step(4) == pytest.approx(0.05, rel=0.05)
    assert REMOTE.gain(4) == pytest.approx(0.12, rel=0.05)
    assert not REMOTE.keeps_up
    assert replace(REMOTE, workers=4).keeps_up


@pytest.mark.parametrize("cpus", [256, 384, 10**15])
def test_a_host_of_many_cpus_takes_no_longer_and_gets_the_same_advice(cpus: int) -> None:
    """Where workers wait for storage, all numbers of them up to four for each CPU are looked at."""
    slow = Loader(workers=8, own=0.02, wait=0.05, fetches=1.0, cpu=0.08, blocked=0.3, driver_cpu=0.018, cpus=cpus)
    began = time.process_time()
    assert slow.best() == replace(slow, cpus=32).best() == 19
    assert time.process_time() - began < 1


def test_many_workers_beside_the_driver_are_as_slow_as_the_fewer_ones_that_are_counted() -> None:
    """Beyond 128 a normal distribution tells how many are on a CPU at once."""
    paces = [Loader(100, 0.1, 0.0, 1.0, cpu, 1.0, 0.1, cpus=64)._beside(number, 0.1) for number, cpu in
             ((128, 6.4), (129, 6.45))]  # fmt: skip
    assert paces[0] > 0.1
    assert paces[1] == pytest.approx(paces[0], rel=0.01)


def test_workers_that_want_a_cpu_at_the_same_time_take_it_from_the_driver() -> None:
    busy = replace(REMOTE, cpu=0.06, blocked=0.25, wait=0.2)
    assert busy.step(8) > 1.1 * busy.own
    assert replace(busy, cpus=16).step(8) == busy.own


def test_waits_that_are_not_for_want_of_workers_are_not_promised() -> None:
    """Two workers make a batch each 30 ms, and a step of 50 ms waits for 10 ms all the same: single late batches."""
    late = replace(FEW, workers=2, wait=0.01, cpu=0.06)
    assert late.keeps_up
    assert late.gain(4) == 0.0


def test_whatever_is_promised_is_no_more_than_can_be() -> None:
    draw = random.Random(8)
    for _ in range(500):
        own, wait = draw.uniform(0.01, 1), draw.uniform(0, 1)
        made = Loader(
            draw.randint(0, 8), own, wait, draw.choice((1.0, 0.25, 4.0)), draw.uniform(0, 1), draw.uniform(0, 1),
            draw.uniform(0, own), draw.randint(1, 16), queued=draw.uniform(0, own / 2), queueing=draw.uniform(0, 0.2),
            others=draw.uniform(0, 8),
        )  # fmt: skip
        least = max(1, made.workers)
        steps = [made.step(number) for number in range(least, least + 6)]
        assert all(made.quickest(least + n) <= step * (1 + 1e-9) for n, step in enumerate(steps))
        best = made.best()
        assert 0 <= made.gain(best) <= made.gain_at_most(best) + 1e-12
        assert made.gain(best) <= own + wait


def test_what_was_measured() -> None:
    ordinary = OrdinaryStep(
        100, 0.17, {"compute": 0.048, "runqueue": 0.002, "data_wait": 0.12}, 1.0, 0.018, 0.005, 0.05, 0.6, [], 0.0,
        0.003, 0.15,
    )  # fmt: skip
    made = loader(ordinary, 1, {"data_cpu": 1.5, "unknown": 0.5, "checkpoint": 9.0}, 2)
    assert made is not None
    assert (made.own, made.wait) == (pytest.approx(0.05), pytest.approx(0.14))
    assert (made.cpu, made.queueing, made.blocked) == (pytest.approx(0.015), 0.003, pytest.approx(0.155))
    assert made.others == pytest.approx(0.6 - 0.065 / 0.17)
    assert loader(ordinary, 1, {}, 0) is None
    assert loader(replace(ordinary, worker_cpu_seconds_per_batch=None), 1, {}, 2) is None
