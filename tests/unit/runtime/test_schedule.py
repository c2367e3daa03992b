from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.model.moment import NS
from trainprobe.runtime.schedule import ReportSchedule

MS = 1_000_000


def test_regular_ones_come_every_second() -> None:
    pace = ReportSchedule()
    made = [at for at in range(NS, 5 * NS, 250 * MS) if pace.due(at, urgent=False)]
    assert made == [NS, 2 * NS, 3 * NS, 4 * NS]


def test_dear_ones_come_less_often_and_urgent_ones_all_the_same() -> None:
    pace = ReportSchedule()
    assert pace.due(NS, urgent=False)
    pace.took(MS)
    assert pace.due_ns() == NS + 2_500_000_000
    pace.took(NS)
    assert pace.due_ns() == NS + 2_500_000_000, "one that took long is no reason"
    pace.took(NS)
    assert pace.due_ns() == 6 * NS
    assert pace.due(NS + 20 * MS, urgent=True)


@pytest.mark.parametrize(("spent_ms", "apart_ms"), [(2, 1000), (10, 2000), (500, 5000)])
def test_while_a_step_is_late_they_come_each_second_unless_they_are_dear(spent_ms: int, apart_ms: int) -> None:
    pace = ReportSchedule()
    pace.late = True
    assert pace.due(NS, urgent=False)
    pace.took(spent_ms * MS)
    assert pace.due_ns() == NS + apart_ms * MS
    pace.late = False
    assert pace.due_ns() == NS + 5000 * MS


def test_a_regular_one_asks_for_no_turn_of_its_own_and_an_urgent_one_that_waits_does() -> None:
    pace = ReportSchedule()
    assert pace.waits_ns() == 0
    for at in (1000, 1010, 1020, 1030):
        pace.due(at * MS, urgent=True)
        assert pace.waits_ns() == (1143 * MS if at == 1030 else None)


def test_while_a_step_is_late_a_regular_one_asks_for_a_turn() -> None:
    pace = ReportSchedule()
    pace.due(NS, urgent=False)
    assert pace.waits_ns() is None
    pace.late, pace.least_ns = True, 5 * NS
    pace.took(MS)
    assert pace.waits_ns() == 6 * NS


def test_dear_urgent_ones_are_spread_wider() -> None:
    """25 ms each: four a second are a tenth of a processor."""
    pace, made = ReportSchedule(), 0
    for at in range(1000, 11_000, 10):
        if pace.due(at * MS, urgent=True):
            made += 1
            pace.took(25 * MS)
    assert 35 <= made <= 45


def test_an_urgent_one_is_made_at_once() -> None:
    pace = ReportSchedule()
    assert pace.due(NS, urgent=False)
    assert pace.due(NS + 20 * MS, urgent=True)


def test_an_urgent_one_that_must_wait_is_not_forgotten() -> None:
    pace = ReportSchedule()
    for at in (1000, 1010, 1020):
        assert pace.due(at * MS, urgent=True)
    assert not pace.due(1030 * MS, urgent=True)
    assert pace.due_ns() == 1143 * MS
    assert pace.due(1143 * MS, urgent=False)


@given(st.lists(st.integers(0, 40), max_size=400))
def test_never_more_than_ten_in_any_second(gaps: list[int]) -> None:
    """However the wake-ups come."""
    pace, at, made = ReportSchedule(), NS, []
    for gap in gaps:
        at += gap * MS
        if pace.due(at, urgent=True):
            made.append(at)
    for first in made:
        assert sum(1 for other in made if first <= other < first + NS) <= 10


@given(st.lists(st.integers(0, 40), max_size=200))
def test_none_waits_longer_than_the_spread(gaps: list[int]) -> None:
    pace, at, asked = ReportSchedule(), NS, None
    for gap in gaps:
        for _ in range(gap):
            at += MS
            if asked is not None and pace.due(at, urgent=False):
                assert at - asked <= 150 * MS
                asked = None
        asked = None if pace.due(at, urgent=True) else (asked or at)
