"""Rows of even steps as one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from trainprobe.model.cells import CELLS, Leaf, Region, RowKind, cell
from trainprobe.model.event import Event, MarkRow, ProcessEvent, ProcessEventKind, StepFile
from trainprobe.model.moment import NS
from trainprobe.runtime.sampling.joined_rows import SPAN_NS, STEPS, joined

DEATH = ProcessEvent(ProcessEventKind.EXIT, 0, 99, 1, "")
BOTH = (7, 8)


WAIT, REST = cell(Region.FETCH, Leaf.POLL), cell(Region.STEP, Leaf.CPU)


def rows(
    count: int, *, tid: int = 7, steps: int = 20, ns: int = 50_000_000, at_ns: int = NS, waits: Sequence[float] = (0.1,)
) -> list[Event]:
    """So many, each of so many steps of so many ns, with a fetch and a backward each; ``waits``: the parts of them, in
    turn, in which batches are waited for."""
    out: list[Event] = []
    cells = [0] * CELLS
    for number in range(count):
        at_ns += steps * ns
        done = (number + 1) * steps
        waited = int(waits[number % len(waits)] * steps * ns)
        cells[WAIT] += waited
        cells[REST] += steps * ns - waited
        out.append(
            MarkRow(
                RowKind.OPTIMIZER, at_ns, tid, tid, "", Region.STEP, 1, done, done, 0, done, 0, tuple(cells), (), (),
                lengths=(ns,) * steps,
            )
        )  # fmt: skip
    return out


def told(events: list[Event]) -> list[MarkRow]:
    return [event for event in events if isinstance(event, MarkRow)]


def test_rows_of_five_seconds_become_one_but_the_first() -> None:
    """Of the first nobody knows how many fetches it has."""
    before = rows(11)
    after = told(joined(before, BOTH))
    assert [len(row.lengths) for row in after] == [20, 100, 100]
    assert [row.at_ns for row in after] == [before[at].at_ns for at in (0, 5, 10)]
    assert [row.cells for row in after] == [told(before)[at].cells for at in (0, 5, 10)]
    assert all(row.at_ns - sum(row.lengths) == earlier.at_ns for earlier, row in pairwise(after))


def test_no_row_is_longer_than_may_be() -> None:
    quick = told(joined(rows(60, steps=31, ns=1_000_000), BOTH))
    assert max(len(row.lengths) for row in quick) == STEPS // 31 * 31
    slow = told(joined(rows(40, steps=1, ns=900_000_000), BOTH))
    assert max(sum(row.lengths) for row in slow) == SPAN_NS // 900_000_000 * 900_000_000
    assert sum(len(row.lengths) for row in quick) == 60 * 31


@pytest.mark.parametrize(
    "change",
    [
        lambda row: replace(row, fetches=row.fetches + 1),
        lambda row: replace(row, backwards=row.backwards + 3),
        lambda row: replace(row, lengths=()),
        lambda row: replace(row, name="SGD"),
        lambda row: replace(row, opened_ns=2),
        lambda row: replace(row, kind=RowKind.BACKWARD),
        lambda row: replace(row, at_ns=row.at_ns + 1),
        lambda row: replace(row, files=(StepFile(1, 2, 3, 4, 5, 6),)),
    ],
    ids=["more fetches", "more backwards", "one step", "another mark", "another ledger", "another kind",
         "a row was lost before it", "it wrote"],
)  # fmt: skip
def test_what_is_not_alike_stays_by_itself(change) -> None:  # type: ignore[no-untyped-def]
    events = rows(6)
    events[3] = odd = change(events[3])
    assert odd in joined(events, BOTH)


@pytest.mark.parametrize("counted", [True, False], ids=["by backwards", "by calls of which nothing else is known"])
def test_the_row_after_one_that_was_lost_stays_by_itself(counted: bool) -> None:
    """Its first step seems to be as long as all that is missing."""
    every = [one if counted else replace(one, fetches=0, backwards=0) for one in told(rows(9))]
    lost = random.randrange(1, 8)
    assert every[lost + 1] in joined([*every[:lost], *every[lost + 1 :]], BOTH)


def test_rows_that_wait_more_for_batches_stay_by_themselves() -> None:
    """What the workers did then is told from what they do while nobody waits."""
    cold = told(rows(30, waits=(0.3, *[0.02] * 5)))
    after = told(joined(cold, BOTH))
    assert all(row in after for row in cold[6::6])
    assert sum(len(row.lengths) for row in after) == 600
    assert len(told(joined(rows(31, waits=(0.3, 0.31)), BOTH))) == 7, "all wait alike"


def test_what_else_happens_stays_where_it_was() -> None:
    some = rows(9)
    place = random.randrange(2, 8)
    after = joined([*some[:place], DEATH, *some[place:]], BOTH)
    where = after.index(DEATH)
    assert max(told(after[:where]), key=lambda row: row.at_ns).at_ns == some[place - 1].at_ns
    assert min(told(after[where:]), key=lambda row: row.at_ns).at_ns == some[place].at_ns


def test_rows_of_several_threads_stay_in_time_order() -> None:
    both = sorted([*rows(9), *rows(7, tid=8, steps=8, ns=170_000_000)], key=lambda row: row.at_ns)
    after = told(joined(both, BOTH))
    assert [row.at_ns for row in after] == sorted(row.at_ns for row in after)
    for tid, steps in ((7, 180), (8, 56)):
        assert sum(len(row.lengths) for row in after if row.tid == tid) == steps


def test_rows_of_a_thread_whose_steps_are_compared_with_others_stay() -> None:
    both = sorted([*rows(9), *rows(7, tid=8, steps=8, ns=170_000_000)], key=lambda row: row.at_ns)
    after = told(joined(both, [7]))
    assert [row for row in after if row.tid == 8] == [row for row in both if isinstance(row, MarkRow) and row.tid == 8]
    assert len([row for row in after if row.tid == 7]) == 3
    assert [row.at_ns for row in after] == sorted(row.at_ns for row in after)
