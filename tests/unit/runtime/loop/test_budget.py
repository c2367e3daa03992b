"""Over its budget the daemon leaves out one thing after the other, says so, and takes them up again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.fakes import FakeWants
from tests.unit.runtime.test_observer import World
from trainprobe.collect import cost
from trainprobe.collect.source import Sources
from trainprobe.model.moment import NS
from trainprobe.model.report import Source
from trainprobe.model.sample import CostSample
from trainprobe.runtime.loop.budget import PAUSE_NS, SHED, CostBudget, Shed
from trainprobe.runtime.schedule import DETAIL_NS, FIRST_LOOKS_APART_NS, TICK_NS


def spend(budget: CostBudget, seconds: int, share: float, begin: int = 0, spent: float = 0.0) -> list[int]:
    """The level at each sample, one in five seconds."""
    levels = []
    for at in range(0, seconds, 5):
        budget.add_cpu_seconds((begin + at) * NS, spent + at * share)
        levels.append(budget.level)
    return levels


def test_within_the_budget_nothing_is_left_out() -> None:
    assert set(spend(CostBudget(0.05), 600, 0.049)) == {0}


def test_above_it_one_thing_after_the_other_is_left_out_and_taken_up_again_at_half() -> None:
    budget = CostBudget(0.05)
    up = spend(budget, 300, 0.06)
    assert sorted(up) == up
    assert up[-1] == len(SHED)
    assert all(up.count(level) * 5 * NS >= PAUSE_NS for level in range(3))
    assert set(spend(budget, 120, 0.04, 300, 18.0)) == {3}, "it would only come back"
    assert "used 5.2% of a processor, more than its budget of 5.0%" in str(budget.reason), "when it last did"
    down = spend(budget, 300, 0.02, 420, 22.8)
    assert sorted(down, reverse=True) == down
    assert down[-1] == 0
    assert budget.reason is None


def test_without_a_limit_anything_goes() -> None:
    assert set(spend(CostBudget(0.0), 300, 3.0)) == {0}


def test_the_first_minute_does_not_count_in_parts() -> None:
    """Compiling and finding what runs already takes seconds of a processor, once."""
    budget = CostBudget(0.05)
    assert not any(budget.add_cpu_seconds(at * NS, min(at, 2.0)) for at in range(0, 300, 5))
    assert budget.level == 0


@given(st.lists(st.floats(0.0, 5.0), min_size=2, max_size=80))
def test_the_reason_names_what_is_left_out(spent: list[float]) -> None:
    budget, total = CostBudget(0.05), 0.0
    for turn, seconds in enumerate(spent):
        total += seconds
        budget.add_cpu_seconds(turn * 5 * NS, total)
        assert [str(text()) in str(budget.reason) for text in SHED.values()] == [
            level <= budget.level for level in SHED
        ]
        assert [budget.sheds(level) for level in SHED] == [level <= budget.level for level in SHED]


@pytest.fixture
def dear(monkeypatch: pytest.MonkeyPatch) -> Callable[[World, int, float], None]:
    """ReaderQueue of a daemon that uses so much of a processor."""
    spent = [0.0]
    monkeypatch.setattr(cost, "read", lambda *_, **__: CostSample(spent[0], 0, None, None))

    def turns(world: World, seconds: int, share: float) -> None:
        for _ in range(seconds):
            spent[0] += share
            world.turn()

    return turns


def budget_of(sources: Sources) -> Source | None:
    return next((Source(s.state.value, s.reason) for s in sources.states() if s.name == "budget"), None)


def test_the_observer_leaves_out_stacks_samples_and_detail_and_says_so(
    dear: Callable[[World, int, float], None],
) -> None:
    world = World(budget=CostBudget(0.05))
    dear(world, 60, 0.01)
    assert budget_of(world.sources) is None
    dear(world, 180, 0.2)
    told = budget_of(world.sources)
    assert told is not None
    assert told.state == "unavailable"
    assert "20.0% of a processor" in told.reason
    assert world.sampler.times == 4
    world.core.wanted = FakeWants(detail=True, stacks=((7, 7),))
    world.turn()
    assert world.stacks.asked == []
    assert world.observer.due_ns() - world.clock.ns == DETAIL_NS, "it may be a stall"
    for _ in range(3):
        world.turn(DETAIL_NS)
    assert world.observer.due_ns() - world.clock.ns > DETAIL_NS
    world.turn(FIRST_LOOKS_APART_NS)
    assert world.observer.due_ns() - world.clock.ns == DETAIL_NS, "another one may be"
    dear(world, 300, 0.001)
    told = budget_of(world.sources)
    assert told is not None
    assert told.state == "up"
    assert world.sampler.times == 1
    assert world.stacks.asked[-1] == (7, 7, "r")
    assert world.observer.due_ns() - world.clock.ns == DETAIL_NS


def test_reports_come_seldom_at_last(dear: Callable[[World, int, float], None]) -> None:
    world = World(budget=CostBudget(0.05))
    dear(world, 240, 0.2)
    assert world.observer.budget.sheds(Shed.DETAIL)
    before = len(world.reports)
    dear(world, 60, 0.2)
    assert len(world.reports) - before <= 60 * NS // TICK_NS // 4


def test_samples_come_when_the_loop_has_time_for_them() -> None:
    """Never at whole seconds."""
    budget, at_ns = CostBudget(0.05), 0
    for _ in range(30):
        at_ns += 5_003_000_000
        budget.add_cpu_seconds(at_ns, 0.2 * at_ns / NS)
    assert budget.level > 0
