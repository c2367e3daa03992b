"""When late steps are a new ordinary step."""

from __future__ import annotations

from tests.builders.driver import ns
from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.changed_work import LATEST, STEPS, ChangedWork, OrdinarySums, without_waits
from trainprobe.derive.steps.interval import Interval
from trainprobe.derive.steps.ledger import WaitContext
from trainprobe.model.cause import State
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, cell


def step(seconds: float) -> Ordinary:
    return Ordinary(ns(seconds), Interval((), (), (), (), (), WaitContext()), 1, 1, (ns(seconds),))


def test_late_steps_that_are_alike_are_learnt_from_once_there_are_enough() -> None:
    changed = ChangedWork()
    told = [len(changed.add_late(step(0.3))) for _ in range(STEPS)]
    assert told == [0] * (STEPS - 1) + [STEPS]
    assert not changed.add_late(step(0.3)), "what was learnt counts once"


def test_ordinary_steps_between_them_push_them_out() -> None:
    changed = ChangedWork()
    for _ in range(20 * LATEST):
        assert not changed.add_late(step(0.3))
        changed.add_ordinary()


def test_late_steps_of_all_lengths_are_no_new_ordinary_one() -> None:
    changed = ChangedWork()
    for place in range(10 * LATEST):
        assert not changed.add_late(step(0.1 * 2 ** (place % 5)))


def test_a_step_without_its_waits_has_its_own_work_and_the_usual_pool() -> None:
    before, after, pool = [5] * CELLS, [5] * CELLS, [7] * LEAVES
    after[cell(Region.FETCH, Leaf.POLL)] += ns(0.3)
    after[cell(Region.STEP, Leaf.CPU)] += ns(0.1)
    made_of = Interval(before, after, pool, [ns(1.0)] * LEAVES, (), WaitContext(workers=True))
    whole = Ordinary(ns(0.4), made_of, 1, 1, (ns(0.4),))
    usual = [float(ns(0.02))] * LEAVES
    own = without_waits(whole, {(State.DATA_WAIT, Region.FETCH, Leaf.POLL): ns(0.25) + 0.5}, usual)
    assert (own.ns, own.lengths) == (ns(0.15), (ns(0.15),))
    assert own.made_of.items() == {
        (State.DATA_WAIT, Region.FETCH, Leaf.POLL): ns(0.05),
        (State.COMPUTE, Region.STEP, Leaf.CPU): ns(0.1),
    }
    assert own.made_of.pool() == [ns(0.02)] * LEAVES
    assert whole.made_of.cells_after is after
    assert after[cell(Region.FETCH, Leaf.POLL)] == 5 + ns(0.3)


def test_sums_between_changes_are_those_of_enough_steps() -> None:
    item = (State.DATA_WAIT, Region.FETCH, Leaf.POLL)
    changed, now = ChangedWork(), OrdinarySums({item: 50.0}, 500.0, 50)
    assert list(changed.between(now)) == []
    changed.sums.append(OrdinarySums({}, 100.0, 10))
    changed.sums.append(OrdinarySums({}, 140.0, 14))
    assert list(changed.between(now)) == [OrdinarySums({}, 100.0, 10), OrdinarySums({item: 50.0}, 360.0, 36)]
