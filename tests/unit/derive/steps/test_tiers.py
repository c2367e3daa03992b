"""Steps become rows of every tier, and none is lost, counted twice or held back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainprobe.derive.steps.tiers import TierRows
from trainprobe.model.steprow import TIERS, StepRow, joined, thinned

NOW = 1_763_000_000.0


def steps(lengths: list[float], start: float = NOW) -> list[StepRow]:
    rows = []
    for length in lengths:
        rows.append(StepRow(start, length, 1, length, length, {"compute": length / 2, "data_wait": length / 2}))
        start += length
    return rows


lengths = st.lists(st.floats(0.001, 400.0), min_size=1, max_size=200)


@given(lengths, st.integers(1, 50))
def test_every_tier_has_every_step_once(taken: list[float], batch: int) -> None:
    tiers = TierRows()
    rows = steps(taken)
    told: list[list[StepRow]] = [[] for _ in TIERS]
    for begin in range(0, len(rows), batch):
        for place, done in enumerate(tiers.add(rows[begin : begin + batch])):
            told[place] += done
    for done, still_open in zip(told, tiers.open()):
        every = [*done, *([still_open] if still_open else [])]
        assert sum(row.count for row in every) == len(taken)
        assert abs(sum(row.seconds for row in every) - sum(taken)) < 1e-6 * len(taken)
        assert max(row.max for row in every) == max(taken)
        assert min(row.min for row in every) == min(taken)
        assert [row.start for row in every] == sorted(row.start for row in every)


def test_steps_of_fifty_milliseconds_have_a_row_each_at_once() -> None:
    done = TierRows().add(steps([0.05] * 40))
    assert [len(rows) for rows in done] == [40, 0, 0]


def test_a_thousand_steps_a_second_make_fifty_rows() -> None:
    done = TierRows().add(steps([0.001] * 1000))
    assert 49 <= len(done[0]) <= 52
    assert sum(row.count for row in done[0]) == 1000


def test_a_clock_that_is_set_back_begins_another_row() -> None:
    tiers = TierRows()
    tiers.add(steps([1.0] * 5))
    done = tiers.add(steps([1.0] * 5, NOW - 3600))
    assert [row.count for row in done[1]] == [5]
    assert [row.count for row in tiers.open() if row] == [5, 5]


def test_a_row_goes_on_that_an_earlier_process_began() -> None:
    tiers = TierRows()
    tiers.go_on(2, steps([1.0])[0])
    tiers.add(steps([1.0], NOW + 1))
    assert tiers.open()[2] == joined([steps([1.0])[0], steps([1.0], NOW + 1)[0]])


@given(lengths, st.integers(1, 40))
def test_thinning_keeps_counts_sums_and_extremes(taken: list[float], points: int) -> None:
    rows = thinned(steps(taken), points)
    assert len(rows) <= max(points, 1)
    assert sum(row.count for row in rows) == len(taken)
    assert max(row.max for row in rows) == max(taken)
    assert abs(sum(sum(row.states.values()) for row in rows) - sum(taken)) < 1e-6 * len(taken)
