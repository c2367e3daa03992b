"""What the soak's judge sees: growth under sawteeth and outliers, files that stay open, losses without a word."""

from __future__ import annotations

import random

from benchmarks.soak.judge import Sample, Training, judge, rise

WARM_UP = 1 / 3


def samples(
    *, slope: float = 0.0, files: float = 0.0, hours: float = 2.0, start: float = 30e6, seed: int = 1
) -> list[Sample]:
    """A sample each 36 s: noise, a sawtooth, now and then a peak, and ``slope`` MB/h, ``files`` per hour."""
    chance = random.Random(seed)
    found = []
    for at in range(int(hours * 100)):
        hour = at / 100
        settling = 8e6 * min(hour / WARM_UP, 1)
        noise = chance.uniform(0, 2e5) + at % 10 * 3e4 + (5e6 if chance.random() < 0.05 else 0)
        resident = int(start + settling + noise + slope * 1e6 * hour)
        opened = 20 + int(files * hour) + chance.choice((0, 0, 3))
        found.append(Sample(hour, {"daemon": resident}, {"daemon": opened}, 0))
    return found


def test_what_settles_and_swings_does_not_grow() -> None:
    for seed in range(5):
        verdict = judge(samples(seed=seed), [], WARM_UP)
        assert verdict.wrong == []
        assert abs(verdict.slopes["daemon"]) < 0.3


def test_growth_is_seen_through_the_noise() -> None:
    verdict = judge(samples(slope=1.5), [], WARM_UP)
    assert abs(verdict.slopes["daemon"] - 1.5) < 0.3
    assert [text.split(" by ")[0] for text in verdict.wrong] == ["daemon grows"]


def test_files_that_stay_open_are_seen() -> None:
    (wrong,) = judge(samples(files=3), [], WARM_UP).wrong
    assert "files open" in wrong


def test_too_few_samples_are_no_proof() -> None:
    (wrong,) = judge(samples(hours=0.37), [], WARM_UP).wrong
    assert "samples" in wrong


def test_a_training_of_which_less_was_told_needs_a_reported_loss() -> None:
    def training(**changes: int | None) -> Training:
        told = {"steps": 300, "saved": 2, "told_steps": 300, "told_saved": 2, "losses": 0, **changes}
        return Training(name="t", **told)  # type: ignore[arg-type]

    def wrong(*trainings: Training) -> list[str]:
        return judge(samples(), trainings, WARM_UP).wrong

    assert wrong(training(), training(told_steps=290, losses=4)) == []
    assert len(wrong(training(told_steps=299), training(told_saved=1), training(told_steps=None))) == 3


def test_the_rise_of_a_line_with_one_wild_point() -> None:
    assert rise([(0, 1), (1, 3), (2, 900), (3, 7), (4, 9)]) == 2
    assert rise([(1, 1)]) == 0
