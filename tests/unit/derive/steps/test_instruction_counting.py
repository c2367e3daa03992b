"""When instructions are counted, and what a step takes: seldom, early, and only of ordinary steps."""

from __future__ import annotations

import random

import pytest

from trainprobe.derive.steps.instruction_counting import LEAST_STEPS, SELDOM, SWITCH_NS, Counting
from trainprobe.model.moment import NS
from trainprobe.model.sample import CountSample

A_STEP = 2e8  # instructions


def counted(
    rng: random.Random, seconds: float, look: float, stalls: frozenset[int] = frozenset()
) -> tuple[Counting, float]:
    """A training of even steps that is looked at so often, and the share of its time in which it was counted."""
    counting, now, open_ns, since = Counting(), 0, 0, None
    begin, step, number = 0, 0.0, 0
    while now < seconds * NS:
        now += int(look * NS * rng.uniform(0.95, 1.05))
        while begin <= now:
            length = int(NS * 0.02 * rng.uniform(0.8, 1.2))
            if begin + length > now:
                break
            if counting.active:
                counting.step(begin, begin + length, 0 if number in stalls else 1)
            begin, step, number = begin + length, step + A_STEP, number + 1
        if since is not None:
            counting.add_sample(CountSample(7, 7, since[0], now, int(executed(begin, step, now) - since[1])))
        on = counting.wanted(now)
        if on and since is None:
            since = (now, executed(begin, step, now))
        elif not on and since is not None:
            open_ns += now - since[0]
            since = None
    return counting, open_ns / now


def executed(begin: int, step: float, now: int) -> float:
    """Until now; within a step as time goes by."""
    return step + A_STEP * min(1.0, (now - begin) / (0.02 * NS))


def test_a_short_training_is_counted_a_few_times(rng: random.Random) -> None:
    counting, _ = counted(rng, 10.0, 1.0)
    assert len(counting.per_step) >= 3
    assert list(counting.per_step) == pytest.approx([A_STEP] * len(counting.per_step), rel=0.01)


@pytest.mark.parametrize("look", [1.0, 10.0])
def test_a_long_one_seldom(look: float, rng: random.Random) -> None:
    counting, share = counted(rng, 3600.0 * look, look)
    assert len(counting.per_step) >= 8
    assert share < 1.3 / SELDOM
    assert list(counting.per_step) == pytest.approx([A_STEP] * len(counting.per_step), rel=0.01)


def test_what_it_costs_is_bounded_where_a_thread_is_switched_often(rng: random.Random) -> None:
    """15 us for each of thousands of switches a second are per cent while it is open."""
    a_second, counting, now, open_ns = rng.randint(2000, 10_000), Counting(), NS, 0
    while now < 100_000 * NS:
        began = now
        now += 10 * NS if not counting.on else NS
        if counting.wanted(now):
            counting.step(now, now + NS, LEAST_STEPS)
            counting.add_sample(CountSample(7, 7, now, now + NS, 10**9, a_second))
            open_ns += NS
        assert now > began
    assert 0 < open_ns * a_second * SWITCH_NS / 1e9 < 0.0001 * now


def test_a_window_with_a_step_that_is_not_ordinary_says_nothing(rng: random.Random) -> None:
    all_, _ = counted(rng, 10.0, 1.0)
    some, _ = counted(rng, 10.0, 1.0, frozenset(range(100)))
    assert 0 < len(some.per_step) < len(all_.per_step)


def test_steps_that_are_long_are_given_up(rng: random.Random) -> None:
    counting = Counting()
    assert counting.wanted(NS)
    counting.add_sample(CountSample(7, 7, NS, 20 * NS, 10**9))
    assert not counting.wanted(20 * NS)
    counting.step(0, 21 * NS, 1)
    assert not counting.active
    assert not counting.per_step
    assert LEAST_STEPS > 1
