"""A rank's readings over its whole life in a bounded number of points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.derive.trend.resource_timeline import FINEST_NS, POINTS, ResourceTimeline, TimelinePoint


def course(points: list[TimelinePoint]) -> ResourceTimeline:
    made = ResourceTimeline()
    for point in points:
        made.add(point)
    return made


def test_a_day_fits_and_the_highest_stays() -> None:
    day = [TimelinePoint(i * FINEST_NS, 1000 + i % 7, None, 2) for i in range(17_280)]
    day[9_000] = TimelinePoint(9_000 * FINEST_NS, 9999, 5, 4)
    made = course(day)
    assert POINTS // 2 <= len(made.points) <= POINTS
    assert max(point.pss_bytes or 0 for point in made.points) == 9999
    assert [point.swap_bytes for point in made.points].count(5) == 1
    assert {point.workers for point in made.points} == {2, 4}


def test_what_was_never_measured_stays_unknown() -> None:
    made = course([TimelinePoint(i * FINEST_NS, None, None, 0) for i in range(1000)])
    assert {(point.pss_bytes, point.swap_bytes) for point in made.points} == {(None, None)}


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=1500))
def test_points_are_in_order_bounded_and_begin_with_the_first(gaps: list[int]) -> None:
    at, points = 0, []
    for gap in gaps:
        at += gap * FINEST_NS // 100
        points.append(TimelinePoint(at, gap, gap, gap))
    made = course(points)
    times = [point.at_ns for point in made.points]
    assert times == sorted(set(times))
    assert len(times) <= POINTS
    assert times[0] == points[0].at_ns
    assert max(point.pss_bytes or 0 for point in made.points) == max(gaps)


def test_the_use_of_gpus_is_a_mean() -> None:
    made = course([TimelinePoint(i * FINEST_NS, 1, None, 0, used) for i, used in enumerate([1.0, 0.0, None, 0.5] * 64)])
    known = [point.gpu_utilization for point in made.points if point.gpu_utilization is not None]
    assert sum(known) / len(known) == pytest.approx(0.5)
