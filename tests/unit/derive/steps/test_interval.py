"""Stretches of time can be joined before they are looked at: nothing changes but the work it takes."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.steps.baseline import TOGETHER, WINDOW, Baseline, Ordinary
from trainprobe.derive.steps.interval import MOST_FILES, Files, Interval, items_of, joined, pool_of
from trainprobe.derive.steps.ledger import WaitContext
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, cell
from trainprobe.model.event import StepFile

USED = [cell(region, leaf) for region in Region for leaf in Leaf]
LOG: Files = [(StepFile(1, 2, 40, 0, 1), FileClass.LOG, "run.log")]


def chain(
    spent: list[dict[int, int]], settings: list[WaitContext] | None = None, files: list[Files] | None = None
) -> list[Interval]:
    """Stretches that follow one another, by what each adds to the cells."""
    cells, pool, out = (0,) * CELLS, (0,) * LEAVES, []
    for number, added in enumerate(spent):
        after = tuple(ns + added.get(place, 0) for place, ns in enumerate(cells))
        worked = tuple(ns + leaf for leaf, ns in enumerate(pool))
        context = settings[number] if settings else WaitContext()
        out.append(Interval(cells, after, pool, worked, files[number] if files else (), context))
        cells, pool = after, worked
    return out


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(USED), st.integers(1, 10**12), max_size=12),
            st.builds(WaitContext, st.booleans(), st.booleans()),
        ),
        max_size=12,
    )
)
def test_joining_changes_no_sum(steps: list[tuple[dict[int, int], WaitContext]]) -> None:
    stretches = chain([spent for spent, _ in steps], [context for _, context in steps])
    apart: dict[object, int] = {}
    for stretch in stretches:
        for item, ns in stretch.items().items():
            apart[item] = apart.get(item, 0) + ns
    assert items_of(stretches) == apart
    assert pool_of(stretches) == [leaf * len(steps) for leaf in range(LEAVES)]


def test_neighbours_are_joined_where_waits_are_named_alike() -> None:
    spent = [{cell(Region.FETCH, Leaf.POLL): 5}] * 4
    assert len(joined(chain(spent))) == 1
    assert (
        len(joined(chain(spent, [WaitContext(), WaitContext(), WaitContext(inline=True), WaitContext(inline=True)])))
        == 2
    )
    first, _, third, _ = chain(spent)
    assert len(joined([first, third])) == 2


def test_files_are_carried_along_but_not_without_end() -> None:
    spent = [{cell(Region.STEP, Leaf.FILE_WRITE): 40}] * 300
    stretches = chain(spent, files=[LOG] * 300)
    assert max(len(one.files) for one in joined(stretches)) <= MOST_FILES
    assert sum(items_of(stretches).values()) == 300 * 40


def test_a_baseline_bears_a_step_that_comes_after_the_last() -> None:
    baseline = Baseline()
    for stretch in chain([{0: 5}] * (WINDOW + 1)):
        if baseline.steps == WINDOW:
            baseline.freeze()
        baseline.add(Ordinary(5, stretch, 1, 1, (5,)))
    assert baseline.ns == 5


@given(st.lists(st.tuples(st.integers(1, 10**10), st.integers(1, 32)), min_size=1, max_size=2 * WINDOW))
def test_the_baseline_is_the_median_of_the_last_steps(told: list[tuple[int, int]]) -> None:
    baseline, each = Baseline(), []
    spent = [sum(ns + place for place in range(count)) for ns, count in told]
    for stretch, (ns, count) in zip(chain([{0: all_} for all_ in spent]), told):
        lengths = [ns + place for place in range(count)]
        baseline.add(Ordinary(sum(lengths), stretch, ns % 3 * count, ns % 2 * count, lengths))
        each += [(length, ns % 3, ns % 2) for length in lengths]
    last = each[-WINDOW:]
    assert baseline.ns == median(ns for ns, _, _ in last)
    assert baseline.fetches() == median(fetches for _, fetches, _ in last)
    assert baseline.backwards() == median(backwards for _, _, backwards in last)
    reach, counts = 0, [count for _, count in told]
    while sum(counts[len(counts) - reach :]) < min(baseline.steps, sum(counts)):
        reach += 1
    assert baseline.steps == sum(counts[len(counts) - reach :])
    assert min(WINDOW, sum(counts)) <= baseline.steps < WINDOW + max(TOGETHER, *counts)
    assert sum(baseline.items().values()) == pytest.approx(sum(spent[len(spent) - reach :]) / baseline.steps)
