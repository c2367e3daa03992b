"""Medians and means are those of the standard library."""

from __future__ import annotations

import random
import statistics

import pytest

from trainprobe.derive.average import mean, median


@pytest.mark.parametrize("number", [1, 2, 3, 10, 101])
def test_as_statistics_has_them(number: int) -> None:
    source = random.Random(number)
    values = [source.uniform(-1e9, 1e9) for _ in range(number)]
    assert median(values) == statistics.median(values)
    assert mean(values) == statistics.fmean(values)


def test_of_an_iterator_and_of_whole_numbers() -> None:
    assert median(iter([3, 1, 2])) == 2
    assert median([1, 2]) == 1.5


def test_of_nothing_there_is_none() -> None:
    with pytest.raises(ValueError, match="nothing"):
        median([])
