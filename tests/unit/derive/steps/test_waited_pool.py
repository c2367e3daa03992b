from __future__ import annotations

import pytest

from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.interval import Interval
from trainprobe.derive.steps.ledger import WaitContext
from trainprobe.derive.steps.waited_pool import WaitedPool
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, cell
from trainprobe.model.moment import NS

STEP_NS = NS // 10


class Steps:
    """A training with two workers."""

    def __init__(self) -> None:
        self.found = WaitedPool()
        self.all = [0.0] * LEAVES
        self.worker_ns = 0.0
        self._cells, self._pool = [0] * CELLS, [0] * LEAVES

    def add_steps(self, steps: int, waited: float, **worked: float) -> None:
        """``waited``: part of each step; ``worked``: what the workers did in it, as a part of it, by leaf."""
        for _ in range(steps):
            before = self._cells, self._pool
            self._cells, self._pool = list(before[0]), list(before[1])
            self._cells[cell(Region.FETCH, Leaf.POLL)] += int(waited * STEP_NS)
            for name, part in worked.items():
                self._pool[Leaf[name]] += int(part * STEP_NS)
            made_of = Interval(before[0], self._cells, before[1], self._pool, (), WaitContext())
            self.found.add_step(Ordinary(STEP_NS, made_of, 1, 1, (STEP_NS,)), workers=2)
            self.all = [total + now - then for total, now, then in zip(self.all, self._pool, before[1])]
            self.worker_ns += 2 * STEP_NS

    def of_waits(self) -> tuple[list[float], float]:
        return self.found.of_all(self.all, self.worker_ns)


def test_steps_that_wait_alike_have_all_of_it() -> None:
    steps = Steps()
    steps.add_steps(25, 0.4, CPU=1.2, FILE_READ=0.3)
    pool, worker_ns = steps.of_waits()
    assert pool == pytest.approx(steps.all)
    assert worker_ns == pytest.approx(steps.worker_ns)


def test_where_no_step_waits_it_is_what_all_did() -> None:
    steps = Steps()
    steps.add_steps(25, 0.0, CPU=1.2)
    assert steps.of_waits() == (steps.all, steps.worker_ns)
    assert WaitedPool().of_all([0.0] * LEAVES, 0.0) == ([0.0] * LEAVES, 0.0)


def test_what_became_less_is_no_part_of_a_wait() -> None:
    """A pool that a recording tells in the wrong order."""
    of_workers = [3.0, *[0.0] * (LEAVES - 1)]
    assert WaitedPool([-1.0, *[0.0] * (LEAVES - 1)]).of_all(of_workers, 5.0) == (of_workers, 5.0)


def test_work_of_steps_that_wait_for_nothing_does_not_count() -> None:
    steps = Steps()
    steps.add_steps(40, 0.6, FILE_READ=1.5, CPU=0.3)
    steps.add_steps(1000, 0.0, CPU=1.5)
    pool, worker_ns = steps.of_waits()
    assert pool[Leaf.FILE_READ] == pytest.approx(steps.all[Leaf.FILE_READ])
    assert pool[Leaf.CPU] == pytest.approx(0.2 * pool[Leaf.FILE_READ])
    assert worker_ns == pytest.approx(40 * 2 * STEP_NS)
