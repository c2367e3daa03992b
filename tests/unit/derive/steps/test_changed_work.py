"""When late steps are a new ordinary step."""

from __future__ import annotations

from tests.builders.driver import ns
from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.changed_work import LATEST, STEPS, ChangedWork
from trainprobe.derive.steps.interval import Interval
from trainprobe.derive.steps.ledger import WaitContext


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
