"""What steps beside which another thread saved wait at locks, beyond the others."""

from __future__ import annotations

import pytest

from trainprobe.derive.files.beside_saves import StepsBesideSaves
from trainprobe.derive.files.save import Save
from trainprobe.model.cause import State
from trainprobe.model.cells import Leaf, Region

LOCK, CPU = (State.LOCK, Region.STEP, Leaf.LOCK), (State.COMPUTE, Region.STEP, Leaf.CPU)


def save(start: int, end: int | None) -> Save:
    return Save(key=(1, 1, start), path="/a.pt", start_ns=start, tid=7, end_ns=end)


def test_it_is_what_they_have_beyond_the_mean_of_the_others() -> None:
    steps = StepsBesideSaves()
    one, two = save(0, 5_000), save(9_000, 9_900)
    steps.add_steps([one], 10, {LOCK: 300, CPU: 900})
    steps.add_steps([one, two], 10, {LOCK: 300})
    found = steps.beyond({LOCK: 1_400.0, CPU: 9_000.0}, 100)
    assert found is not None
    assert found.items == {LOCK: pytest.approx(600 - 20 * 800 / 80)}
    assert found.saves == [two, one]


@pytest.mark.parametrize(
    ("count", "locked"), [pytest.param(17, 600.0, id="few others"), pytest.param(30, 890.0, id="they wait as long")]
)
def test_none_where_the_others_do_not_show_it(count: int, locked: float) -> None:
    steps = StepsBesideSaves()
    steps.add_steps([save(0, 5_000)], 10, {LOCK: 300})
    assert steps.beyond({LOCK: locked}, count) is None
    assert StepsBesideSaves().beyond({LOCK: locked}, count) is None


def test_they_wait_no_longer_than_the_saves_took() -> None:
    steps = StepsBesideSaves()
    for place in range(100):
        steps.add_steps([save(1_000 * place, 1_000 * place + 4)], 10, {LOCK: 300})
    steps.add_steps([save(200_000, None)], 10, {LOCK: 300})
    found = steps.beyond({LOCK: 101 * 300.0}, 2_000)
    assert found is not None
    assert sum(found.items.values()) == pytest.approx(100 * 4)
