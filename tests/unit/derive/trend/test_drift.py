"""Steps that grow are told from steps that vary, jump or are clean for very long."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from trainprobe.derive.trend import drift as module
from trainprobe.derive.trend.drift import BLOCKS, LEAST, Block, Earlier, Trend, growing
from trainprobe.derive.trend.series import Grown, ThinnedSeries

BASE = 50_000_000


def fed(count: int, length: Callable[[int], float]) -> Trend:
    trend = Trend()
    for step in range(count):
        trend.add_step(int(length(step)))
    return trend


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.03, 0.05])
def test_ten_thousand_clean_steps_have_no_drift(spread: float) -> None:
    for seed in range(5):
        rng = random.Random(f"{seed}/{spread}")
        trend = Trend()
        for _ in range(10_000):
            trend.add_step(int(BASE * rng.gauss(1, spread)))
        assert trend.growth is None
        assert trend.lost_ns == 0


def test_noise_with_a_memory_is_no_drift() -> None:
    """As on a shared host: each step is half like the last one, and now and then one is far off."""
    for seed in range(5):
        rng, level = random.Random(seed), 0.0

        def length(_: int, rng: random.Random = rng) -> float:
            nonlocal level
            level = 0.5 * level + rng.gauss(0, 0.02)
            return BASE * (1 + level + (0.4 if rng.random() < 0.02 else 0))

        assert fed(10_000, length).growth is None


def test_a_level_that_jumps_is_no_drift() -> None:
    rng = random.Random(5)
    for place in range(990, 1_010):
        trend = fed(3_000, lambda step, at=place: BASE * (1.1 if step > at else 1) * rng.gauss(1, 0.01))  # type: ignore[misc]
        assert trend.growth is None


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02])
def test_five_per_cent_in_300_steps_is_told_within_them(spread: float) -> None:
    told = []
    for seed in range(10):
        rng, trend = random.Random(f"{seed}/{spread}"), Trend()
        for step in range(1_400):
            trend.add_step(int(BASE * (1 + 0.05 * max(0, step - 1_000) / 300) * rng.gauss(1, spread)))
            if trend.growth is not None:
                break
        told.append(step - 1_000)
    assert max(told) <= 340
    assert sorted(told)[len(told) // 2] <= 300


def test_the_scatter_of_steps_is_no_part_of_what_a_drift_cost() -> None:
    """Steps that scatter by a tenth are as often shorter than the level before as they are longer."""
    costs = {}
    for spread in (0.0, 0.1):
        rng, trend = random.Random(7), Trend()
        for step in range(4_000):
            trend.add_step(int(BASE * (1 + max(0, min(step - 500, 400)) / 4_000) * rng.gauss(1, spread)))
        assert trend.growth is not None
        costs[spread] = trend.lost_ns
    assert costs[0.1] == pytest.approx(costs[0.0], rel=0.1)


def test_a_drift_over_hours_is_told_with_its_size() -> None:
    """30 % in 20 000 steps: no window of 300 steps shows it."""
    rng = random.Random(3)
    trend = fed(20_000, lambda step: BASE * (1 + 0.3 * step / 20_000) * rng.gauss(1, 0.02))
    assert trend.growth is not None
    assert trend.growth.ratio == pytest.approx(0.3, abs=0.08)
    assert trend.lost_ns == pytest.approx(0.15 * 20_000 * BASE, rel=0.3)


def test_a_drift_that_is_over_is_let_go() -> None:
    rng = random.Random(4)
    trend = fed(1_500, lambda step: BASE * (1 + (step / 3_000 if step < 900 else 0)) * rng.gauss(1, 0.005))
    assert trend.growth is None
    assert trend.last is not None
    assert trend.last.ratio > 0.2


def test_a_series_says_what_grew_since_a_step() -> None:
    series = ThinnedSeries()
    for step in range(0, 1_000, 5):
        series.add(step, {"flat": 100.0, "late": 1.0 * max(0, step - 500), "noise": float(step % 7)})
    assert len(series.points) <= 64
    assert [one.name for one in series.grown(500)] == ["late"]
    assert series.grown(0)[0].after > 400
    assert ThinnedSeries().grown(0) == []


def test_growth_needs_most_points_to_agree() -> None:
    series = ThinnedSeries()
    for step, value in enumerate((10, 3, 12, 2, 11)):
        series.add(step, {"fds": float(value)})
    assert series.grown(0) == []
    series = ThinnedSeries()
    for step, value in enumerate((10, 11, 12, 13)):
        series.add(step, {"fds": float(value)})
    assert series.grown(0) == [Grown("fds", 10.0, 13.0)]


def grown_beside(others: Callable[[int], float]) -> Trend:
    """Steps of 50 ms that grow by 40 % from the 600th to the 1 200th; their surroundings are read each 100 steps."""
    rng, trend = random.Random(11), Trend()
    for step in range(2_000):
        trend.add_step(int(BASE * (1 + 0.4 * min(1, max(0, step - 600) / 600)) * rng.gauss(1, 0.01)))
        if step % 100 == 0:
            trend.surroundings(others(step) + rng.gauss(0, 0.01))
    return trend


def test_growth_on_an_even_host_is_told_with_the_next_reading_of_it() -> None:
    trend = grown_beside(lambda _: 0.3)
    assert trend.growth is not None
    assert trend.lost_ns == pytest.approx((0.2 * 600 + 0.4 * 800) * BASE, rel=0.1)


@pytest.mark.parametrize(("backward", "told"), [(0.5, True), (0.0, False)])
def test_a_run_that_ends_before_the_host_is_read_again_is_told_of_growth_at_one_pace(
    backward: float, told: bool
) -> None:
    rng, trend = random.Random(12), Trend()
    trend.surroundings(0.3)
    for step in range(400):
        trend.add_step(int(BASE * (1 + 0.4 * step / 400) * rng.gauss(1, 0.01)), int(BASE * backward))
    assert trend.growth is None
    trend.end()
    assert (trend.growth is not None) == told


def test_growth_as_others_take_processors_is_none_of_the_training() -> None:
    assert grown_beside(lambda step: 0.5 * min(1, max(0, step - 600) / 600)).growth is None


def test_others_who_take_little_more_do_not_hide_growth() -> None:
    assert grown_beside(lambda step: 0.02 + 0.06 * (step > 900)).growth is not None


def wandering(
    rng: random.Random, steps: int, creep: Callable[[int], float], spread: float, alike: float = 1.0, usual: float = 0.0
) -> Trend:
    """Steps of 50 ms, half of it the backward, on a machine whose pace wanders so much. ``creep``: seconds more in
    each, ``usual``: part by which all of it grows; ``alike``: how much of the wandering is the backward's, too."""
    trend, pace, other, memory = Trend(), 0.0, 0.0, 0.97
    fresh = spread * (1 - memory**2) ** 0.5
    for step in range(steps):
        pace = memory * pace + rng.gauss(0, fresh)
        other = memory * other + rng.gauss(0, fresh)
        apart = alike * pace + (1 - alike) * other
        grown = 1 + usual * step / steps
        backward = BASE / 2 * grown * (1 + apart) * rng.gauss(1, 0.02)
        rest = (BASE / 2 * grown + creep(step) * 1e9) * (1 + pace) * rng.gauss(1, 0.02)
        trend.add_step(int(backward + rest), int(backward))
    return trend


def test_growth_is_told_on_a_machine_whose_pace_wanders() -> None:
    """A third in 340 steps, as the backward is not touched by it."""
    told = [wandering(random.Random(seed), 340, lambda step: 50e-6 * step, 0.08) for seed in range(20)]
    found = sorted(trend.lost_ns / 1e9 for trend in told if trend.growth is not None)
    assert len(found) >= 19
    assert found[len(found) // 2] == pytest.approx(50e-6 * 340**2 / 2, rel=0.25)


@pytest.mark.parametrize("slower", [0.0, 0.5])
def test_what_a_machine_that_slows_down_takes_is_no_part_of_what_a_growth_cost(slower: float) -> None:
    """Steps that grow by half, the backward apart, on a machine that becomes slower meanwhile, or quick again after."""
    rng, trend = random.Random(6), Trend()
    for step in range(800):
        pace = 1 + slower * min(step, 800 - step) / 400
        backward = BASE / 2 * pace * rng.gauss(1, 0.01)
        rest = BASE / 2 * (pace * rng.gauss(1, 0.01) + step / 800)
        trend.add_step(int(backward + rest), int(backward))
    assert trend.growth is not None
    assert trend.lost_ns == pytest.approx(BASE / 2 * 800 / 2, rel=0.1)
    assert trend.growth.ratio == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("spread", "alike"), [(0.03, 1.0), (0.03, 0.7), (0.08, 1.0)])
def test_a_pace_that_wanders_is_no_growth(spread: float, alike: float) -> None:
    for seed in range(10):
        assert wandering(random.Random(seed), 10_000, lambda _: 0.0, spread, alike).growth is None


def test_growth_of_all_of_the_step_is_told_where_it_is_more_than_a_pace() -> None:
    """As of a sequence that becomes longer."""
    for seed in range(10):
        assert wandering(random.Random(seed), 5_000, lambda _: 0.0, 0.005, usual=0.5).growth is not None


def test_a_backward_that_shrinks_is_no_growth() -> None:
    """What it gives up is done elsewhere: the step is as long as before."""
    rng, trend = random.Random(7), Trend()
    for step in range(5_000):
        trend.add_step(int(BASE * rng.gauss(1, 0.02)), int(BASE * (0.7 - 0.4 * step / 5_000)))
    assert trend.growth is None


def test_a_backward_that_grows_alone_is_growth() -> None:
    """As of a graph that is kept from step to step."""
    rng, trend = random.Random(8), Trend()
    for step in range(1_000):
        backward = BASE * (0.5 + 0.2 * step / 1_000)
        trend.add_step(int((BASE / 2 + backward) * rng.gauss(1, 0.01)), int(backward))
    assert trend.growth is not None


@pytest.mark.parametrize(
    ("swing", "every", "found"), [(0.02, 2, True), (0.6, 2, False), (0.6, 5, False), (0.6, 10, True)]
)
def test_a_machine_whose_pace_swings_by_more_than_a_growth_hides_it_where_no_backward_is_marked(
    swing: float, every: int, found: bool
) -> None:
    """Until it has lasted: then steps are longer than any before. Single readings (one of ten) are no pace."""
    rng, trend = random.Random(9), Trend()
    for step in range(760):
        if step % 40 == 0:
            trend.add_pace(int(35_000 * (1 + swing * (step // 40 % every == 0))))
        trend.add_step(int(BASE * (1 + 0.3 * step / 760) * rng.gauss(1, 0.02)))
    assert (trend.growth is not None) == found
    for step in range(760, 3_000):
        trend.add_step(int(BASE * (1 + 0.3 * step / 760) * rng.gauss(1, 0.02)))
    assert trend.growth is not None


def test_no_growth_is_passed_over_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window whose last third is not above its first one is asked nothing dearer: it would have had no growth."""
    rng = random.Random(7)
    windows = []
    for _ in range(4000):
        count, grown, spread = rng.randint(LEAST, BLOCKS), rng.uniform(0, 0.3), rng.choice((0.001, 0.005, 0.02))
        bend = rng.choice((0.5, 1.0, 3.0))
        lengths = [BASE * (1 + grown * (i / (count - 1)) ** bend) * rng.gauss(1, spread) for i in range(count)]
        windows.append([Block(length, BASE * rng.choice((0.1, 0.4))) for length in lengths])
    found = [growing(window, Earlier()) for window in windows]
    assert 400 < sum(bool(one) for one in found) < 3600
    monkeypatch.setattr(module, "_has_risen", lambda lengths: True)
    assert found == [growing(window, Earlier()) for window in windows]
