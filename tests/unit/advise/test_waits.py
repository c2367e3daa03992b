"""Waits by themselves: what is waited for more is told; what wanders with the machine, or comes in a burst, is not."""

from __future__ import annotations

import random

import pytest

from tests.unit.advise.test_comparison import a_rank, drawn
from trainprobe.advise.comparison import compare
from trainprobe.advise.waits import waits
from trainprobe.model.report import OrdinaryStep

STEP = 0.015  # seconds
PAIRS = 200


def ran(
    rng: random.Random, took: dict[str, float], calls: dict[str, float] | None = None, noise: float = 0.2
) -> OrdinaryStep:
    """A run whose stretches wait so long a step, give or take ``noise``, and write so often."""
    number = rng.randint(16, 31)
    made = OrdinaryStep(500, STEP, wait_stretches=number)
    made.waits = {key: [max(0.0, rng.gauss(1, noise)) * value for _ in range(number)] for key, value in took.items()}
    for key, value in (calls or {}).items():
        made.written_calls[key] = [value * rng.uniform(0.98, 1.02) for _ in range(number)]
        made.written_bytes[key] = [4096 * one for one in made.written_calls[key]]
    return made


def test_equal_runs_are_not_told_apart_though_their_disk_is_another_each_time(rng: random.Random) -> None:
    for _ in range(PAIRS):
        took = {"other/write": rng.uniform(0, 0.3) * STEP, "sleep/sleep": rng.uniform(0, 0.3) * STEP}
        took["data_inline/read"] = rng.uniform(0, 0.3) * STEP
        calls = {"other/write": rng.choice([0.1, 1.0, 50.0])}
        pair = []
        for _ in range(2):
            wander = {key: took[key] * (1 if key == "sleep/sleep" else rng.uniform(0.5, 2.0)) for key in took}
            pair.append(ran(rng, wander, calls, rng.uniform(0.01, 0.3)))
        assert [wait for wait in waits(pair[0], pair[1], STEP) if wait.told] == []


@pytest.mark.parametrize("call", ["write", "sleep", "network", "pipe"])
@pytest.mark.parametrize("before", [0.0, 0.02])
def test_five_per_cent_more_are_told(call: str, before: float, rng: random.Random) -> None:
    """But for one pair in thousands, whose stretches look correlated by chance: its standard error is too large."""
    key, missed = f"other/{call}", 0
    for _ in range(50):
        a = ran(rng, {key: before * STEP} if before else {}, {key: 1.0} if before and call == "write" else {})
        b = ran(rng, {key: (before + 0.05) * STEP}, {key: 3.5 if before else 1.0} if call == "write" else {})
        (more,), (less,) = waits(a, b, STEP), waits(b, a, STEP)
        missed += not (more.told and less.told)
        assert more.change == pytest.approx(0.05 * STEP, rel=0.4)
        assert less.change == pytest.approx(-more.change)
    assert missed <= 1


def test_as_many_calls_that_take_longer_are_the_disks(rng: random.Random) -> None:
    calls = {"logging/write": 2.0}
    a, b = (ran(rng, {"logging/write": part * STEP}, calls) for part in (0.05, 0.2))
    (wait,) = waits(a, b, STEP)
    assert (wait.told, wait.disk_told) == (False, True)
    assert wait.disk == pytest.approx(0.15 * STEP, abs=0.03 * STEP)


def test_more_calls_on_a_slower_disk_are_both(rng: random.Random) -> None:
    a = ran(rng, {"logging/write": 0.05 * STEP}, {"logging/write": 2.0}, 0.05)
    b = ran(rng, {"logging/write": 0.2 * STEP}, {"logging/write": 4.0}, 0.05)
    (wait,) = waits(a, b, STEP)
    assert wait.told
    assert wait.disk_told
    assert wait.change == pytest.approx(0.05 * STEP, abs=0.02 * STEP)
    assert wait.change + wait.disk == pytest.approx(wait.b - wait.a)


def test_reads_are_not_counted_and_not_claimed(rng: random.Random) -> None:
    (wait,) = waits(ran(rng, {}), ran(rng, {"data_inline/read": 0.3 * STEP}), STEP)
    assert (wait.told, wait.disk_told) == (False, True)


def test_a_burst_is_no_difference(rng: random.Random) -> None:
    b = ran(rng, {"network/network": 0.05 * STEP})
    number = b.wait_stretches
    b.waits["network/network"][: number // 2] = [0.0] * (number // 2)
    (wait,) = waits(ran(rng, {}), b, STEP)
    assert not wait.told


def test_what_others_do_meanwhile_is_slower_on_slower_processors(rng: random.Random) -> None:
    a, b = (ran(rng, {"network/network": part * STEP}, noise=0.02) for part in (0.5, 0.56))
    assert waits(a, b, STEP)[0].told
    assert not waits(a, b, STEP, pace=-0.12)[0].told


def test_a_report_of_an_older_version_says_nothing_of_waits(rng: random.Random) -> None:
    b = ran(rng, {"sleep/sleep": 0.2 * STEP})
    assert waits(OrdinaryStep(500, STEP), b, STEP) == ()


def test_a_sample_is_judged_where_samples_are(rng: random.Random) -> None:
    """Twice the batch may wait twice as long a step."""
    a, b = (ran(rng, {"sleep/sleep": part * STEP}, noise=0.05) for part in (0.2, 0.4))
    assert waits(a, b, STEP)[0].told
    assert not waits(a, b, STEP, (4.0, 8.0))[0].told


def test_it_is_told_where_the_whole_may_be_chance(rng: random.Random) -> None:
    a, b = a_rank(drawn(rng.randrange(1000))), a_rank(drawn(rng.randrange(1000)))
    step = a.ordinary.seconds or 0.0
    b.ordinary.wait_stretches, a.ordinary.wait_stretches = 31, 31
    b.ordinary.waits = {"sleep/sleep": [0.05 * step] * 31}
    made = compare(a, b)
    assert made is not None
    assert not made.is_significant
    assert made.waits_change == pytest.approx(0.05, rel=0.02)
    few = compare(a_rank(drawn(1)[:40]), b)
    assert few is not None
    assert few.waits_told == ()
