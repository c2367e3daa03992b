"""What a step computes, by its instructions: told however the machine wanders, and nothing of equal runs."""

from __future__ import annotations

import random

import pytest

from tests.unit.advise.test_comparison import a_rank
from trainprobe.advise.comparison import Comparison, compare
from trainprobe.advise.work import KIND, UNEVEN, WANDER, work
from trainprobe.model.report import Gpu, Rank

PAIRS = 300
STEP, INSTRUCTIONS, STEPS = 0.015, 2.2e8, 500


def ran(rng: random.Random, more: float = 0.0, slower: float | None = None) -> Rank:
    """A training that computes by ``more`` more, on a machine that is slower by a drawn part, and changes with time."""
    slower = rng.uniform(1.0, 1.1) if slower is None else slower
    level, lengths = slower, []
    for _ in range(STEPS):
        level += 0.1 * (slower - level) + rng.gauss(0, 0.005)
        lengths.append(STEP * (1 + more) * level * rng.uniform(0.98, 1.02))
    mean = sum(lengths) / STEPS
    wait, queue = rng.uniform(0.0003, 0.0006), rng.uniform(0, 0.0002)
    rank = a_rank([length + wait + queue for length in lengths])
    rank.ordinary.states = {"compute": mean, "data_wait": wait, "runqueue": queue}
    rank.ordinary.paces = [26e-6 * (1 + rng.uniform(0, 1) * (slower - 1)) * rng.uniform(0.995, 1.005) for _ in range(5)]
    windows = rng.randint(2, 5)
    rank.ordinary.instructions = [INSTRUCTIONS * (1 + more) * rng.uniform(0.993, 1.007) for _ in range(windows)]
    return rank


def compared(a: Rank, b: Rank) -> Comparison:
    made = compare(a, b)
    assert made is not None
    return made


def test_equal_runs_are_not_told_apart_on_a_machine_that_wanders(rng: random.Random) -> None:
    for _ in range(PAIRS):
        made = compared(ran(rng), ran(rng))
        assert made.work is not None
        assert (made.is_significant, made.parts_told, made.steady_told) == (False, False, False), made


def test_five_per_cent_more_are_told_on_a_machine_that_wanders(rng: random.Random) -> None:
    for _ in range(PAIRS):
        made = compared(ran(rng), ran(rng, 0.06))
        assert made.work_told, made.work
        assert made.work_change == pytest.approx(0.06, abs=0.02)
        assert made.change == pytest.approx(1 / 1.06 - 1, abs=max(made.spread or 0.0, 0.03))
        assert not (made.is_significant and made.change > 0)


def test_a_window_in_which_it_warmed_up_is_left_out(rng: random.Random) -> None:
    a, b = ran(rng), ran(rng)
    b.ordinary.instructions = [1.3 * INSTRUCTIONS, *b.ordinary.instructions]
    made = compared(a, b)
    assert made.work is not None
    assert not made.parts_told


def test_what_the_same_instructions_took_longer_is_the_machines(rng: random.Random) -> None:
    made = compared(ran(rng, slower=1.0), ran(rng, slower=1.12))
    assert made.work is not None
    assert made.work.slower == pytest.approx(0.12, abs=0.03)
    assert sum(made.slowed[1].values()) == pytest.approx(0.12 * STEP, abs=0.03 * STEP)
    assert not made.is_significant


def test_a_wait_that_is_longer_is_still_told_on_the_whole(rng: random.Random) -> None:
    a, b = ran(rng, slower=1.0), ran(rng, slower=1.0)
    for rank, took in ((a, 0.0), (b, 0.1 * STEP)):
        rank.ordinary.wait_stretches, rank.ordinary.waits = 20, {"sleep/sleep": [took] * 20} if took else {}
        rank.ordinary.states["sleep"] = took
        rank.ordinary.seconds = (rank.ordinary.seconds or 0.0) + took
        rank.wall_seconds += took * STEPS
    made = compared(a, b)
    assert made.work is not None
    assert made.is_significant
    assert made.explained[0][0].name == "sleep"


def spinning(rank: Rank) -> None:
    rank.ordinary.instructions = [INSTRUCTIONS, (1 + UNEVEN) * 1.01 * INSTRUCTIONS]


def gpu(rank: Rank) -> None:
    rank.gpus = [Gpu("GPU-1", 0)]


def starved(rank: Rank) -> None:
    rank.ordinary.states["data_wait"] = 0.2 * STEP


def not_counted(rank: Rank) -> None:
    rank.ordinary.instructions = []


def other_program(rank: Rank) -> None:
    rank.ordinary.instructions = [(1 + KIND) * 1.05 * INSTRUCTIONS] * 3


def other_speed(rank: Rank) -> None:
    rank.ordinary.states["compute"] *= (1 + WANDER) * 1.05


@pytest.mark.parametrize("unlike", [spinning, gpu, starved, not_counted, other_program, other_speed])
def test_what_cannot_be_compared_is_judged_by_time(unlike: object, rng: random.Random) -> None:
    a, b = ran(rng, slower=1.0), ran(rng, slower=1.0)
    assert work(a, b) is not None
    assert callable(unlike)
    unlike(b)
    assert work(a, b) is None
    assert compared(a, b).work is None
