"""A step in which a compiler runs is a phase; what only looks like one is a stall."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, played
from tests.unit.core.test_pipeline import adds_up, rank_of
from trainprobe.model.event import ProcessEvent, ProcessEventKind
from trainprobe.model.report import Rank


def slow_step(program: str, ran: float, slow: float = 1.2) -> Rank:
    """Forty steps, one that is late while a child runs ``program`` for a part of it, and forty more."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    driver.fork(3000)
    ran_it = ProcessEvent(ProcessEventKind.EXEC, driver.now, 3000, driver.pid, program, command=(program, "-q"))
    driver.events.append(ran_it)
    driver.spend(ran)
    driver.die(3000)
    driver.spend(slow - ran)
    driver.train(40)
    driver.exit()
    return rank_of(played(driver), driver)


@pytest.mark.parametrize("program", ["cc1plus", "g++", "ptxas"])
def test_a_step_in_which_a_compiler_runs_is_a_phase(program: str) -> None:
    rank = slow_step(program, 1.0)
    assert rank.stalls == []
    assert rank.counters.phase_seconds["compile"] == pytest.approx(1.2, abs=0.02)
    adds_up(rank)


@pytest.mark.parametrize(("program", "ran"), [("nvidia-smi", 1.0), ("git", 1.0), ("g++", 0.2)])
def test_another_program_or_a_short_compiler_explains_no_slow_step(program: str, ran: float) -> None:
    rank = slow_step(program, ran)
    assert rank.counters.phase_seconds["compile"] == 0.0
    assert [stall.cause for stall in rank.stalls] == ["cpu_bound"]
    assert rank.stalls[0].seconds == pytest.approx(1.2, abs=0.02)
    adds_up(rank)


def test_a_slow_first_step_is_start_up_and_no_compiling() -> None:
    driver = Driver()
    driver.begin()
    driver.spend(6.0)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.stalls == []
    assert rank.counters.phase_seconds["compile"] == 0.0
    assert rank.counters.phase_seconds["startup"] >= 6.0
    adds_up(rank)
