"""Two runs side by side: differences that are there are told, those of chance are not, and the parts add up."""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.replay.replay import FOLDER, replay
from trainprobe.advise.chance import median_error
from trainprobe.advise.compared_figures import LEAST
from trainprobe.advise.comparison import compare, others, step_seconds
from trainprobe.advise.speed import computing
from trainprobe.derive.trend.downsample import autocorrelation, medians
from trainprobe.model.report import Counters, OrdinaryStep, Period, Rank, Run, Stall, Steps, Totals

PAIRS, STEPS = 20, 500
ALIKE = 0.5, 0.5  # of the CPUs: what both runs keep busy themselves


@cache
def real_steps(name: str = "clean") -> tuple[float, ...]:
    """Lengths of the ordinary steps of a real training, in their order."""
    pipeline, _ = replay(FOLDER / f"{name}.jsonl.gz")
    ranks = [rank for run in pipeline.runs.values() for rank in run.ranks.shown()]
    return tuple(max((rank.ordinary.lengths for rank in ranks), key=len))


def drawn(seed: int, factor: float = 1.0, blocks: int = 10) -> list[float]:
    """500 steps from a real training: in blocks, so that neighbours stay as alike as they are."""
    rng, lengths = random.Random(seed), real_steps()
    out: list[float] = []
    while len(out) < STEPS:
        start = rng.randrange(len(lengths) - blocks)
        out += lengths[start : start + blocks]
    return [factor * value for value in out[:STEPS]]


def a_rank(lengths: list[float], stalls: list[Stall] | None = None, states: dict[str, float] | None = None) -> Rank:
    count, told = len(lengths), stalls or []
    seconds = sum(lengths) / count
    rank = Rank(0, 1, 7, steps=Steps(count, "autograd", "", sorted(lengths)[count // 2], max(lengths)))
    lost = sum(stall.seconds for stall in told)
    rank.wall_seconds = sum(lengths) + lost + seconds * sum(stall.steps for stall in told) + 5.0
    rank.productive_seconds = sum(lengths)
    rank.ordinary = OrdinaryStep(count, seconds, states or {"compute": seconds}, 1.0, stretches=medians(lengths))
    by_cause: dict[str, float] = {}
    for stall in told:
        by_cause[stall.cause] = by_cause.get(stall.cause, 0.0) + stall.seconds
    rank.stalls, rank.totals = told, Totals(stalls=len(told))
    rank.counters = Counters(phase_seconds={"startup": 5.0}, stall_seconds=by_cause)
    return rank


def stalls(cause: str, *seconds: float, period: int | None = None) -> list[Stall]:
    rhythm = Period(period, 1.0) if period else None
    return [Stall(f"s{n}", 0.0, 1.0, s, cause, {cause: s}, n, 1, rhythm) for n, s in enumerate(seconds)]


def test_no_difference_between_equal_runs() -> None:
    for pair in range(PAIRS):
        made = compare(a_rank(drawn(2 * pair)), a_rank(drawn(2 * pair + 1)))
        assert made is not None
        assert not made.is_significant, (pair, made.change, made.spread)


@pytest.mark.parametrize("factor", [1.05, 1 / 1.05, 1.10, 0.8])
def test_a_difference_of_five_per_cent_is_told_with_500_steps_each(factor: float) -> None:
    for pair in range(PAIRS):
        made = compare(a_rank(drawn(2 * pair)), a_rank(drawn(2 * pair + 1, factor)))
        assert made is not None
        assert made.is_significant, (pair, made.change, made.spread)
        assert (made.change < 0) == (factor > 1)
        assert made.change == pytest.approx(1 / factor - 1, abs=made.spread)


def test_the_parts_add_up_to_the_whole() -> None:
    a = a_rank(drawn(1), stalls("checkpoint", 2.0, 2.1), {"compute": 0.040, "data_wait": 0.005})
    b = a_rank(drawn(2, 1.2), stalls("data_cpu", 1.0), {"compute": 0.041, "data_wait": 0.013})
    made = compare(a, b)
    assert made is not None
    assert sum(part.a for part in made.parts) == pytest.approx(made.a_step)
    assert sum(part.b for part in made.parts) == pytest.approx(made.b_step)
    shares = sum(part.change for part in made.parts) / (made.b_step - made.a_step)
    assert shares == pytest.approx(1.0)


def test_it_says_what_explains_the_difference() -> None:
    a = a_rank(drawn(1), None, {"compute": 0.040, "data_wait": 0.005})
    slower = drawn(2, 1.25)
    mean = sum(slower) / len(slower)
    made = compare(a, a_rank(slower, None, {"compute": 0.040, "data_wait": mean - 0.040}))
    assert made is not None
    part, share = made.explained[0]
    assert (part.kind, part.name) == ("state", "data_wait")
    assert share == pytest.approx(1.0, abs=0.05)


def test_stalls_by_a_rhythm_are_a_difference() -> None:
    made = compare(a_rank(drawn(1)), a_rank(drawn(2), stalls("checkpoint", *[2.0] * 5, period=100)))
    assert made is not None
    assert made.is_significant
    assert (made.explained[0][0].kind, made.explained[0][0].name) == ("stall", "checkpoint")


def test_one_stall_that_came_once_is_none() -> None:
    made = compare(a_rank(drawn(1)), a_rank(drawn(2), stalls("network", 2.0)))
    assert made is not None
    assert abs(made.change) > LEAST
    assert not made.is_significant


def test_samples_a_second_where_the_batch_is_known() -> None:
    """Twice the batch in 1.6 times the time is faster, though a step is slower."""
    a, b = a_rank(drawn(1)), a_rank(drawn(2, 1.6))
    steps = compare(a, b)
    samples = compare(a, b, (4.0, 8.0))
    assert steps is not None
    assert samples is not None
    assert steps.is_significant
    assert steps.change < 0
    assert samples.is_significant
    assert samples.change == pytest.approx(0.25, abs=0.03)
    assert [(figure.name, figure.better) for figure in samples.figures[:2]] == [
        ("step in training, mean", None), ("samples/s in training", 1),
    ]  # fmt: skip


def test_too_few_steps_tell_nothing() -> None:
    made = compare(a_rank(drawn(1)[:40]), a_rank(drawn(2, 2.0)))
    assert made is not None
    assert made.spread is None
    assert not made.is_significant
    assert compare(Rank(0, 1, 7), a_rank(drawn(1))) is None


def disturbed(lengths: list[float], seed: int, share: float) -> list[float]:
    """The same steps, so many of them in blocks that another program slowed down by a sixth to a half."""
    rng, out = random.Random(seed), list(lengths)
    for start in range(0, len(out), 40):
        if rng.random() < share:
            factor = rng.uniform(1.15, 1.5)
            out[start : start + 40] = [factor * value for value in out[start : start + 40]]
    return out


def test_what_only_slow_stretches_have_is_no_difference() -> None:
    """Ten per cent of the mean come from a part of the steps, and the quickest are alike: the machine may be at it."""
    for pair in range(PAIRS):
        b = disturbed(drawn(2 * pair + 1), pair, 0.3)
        made = compare(a_rank(drawn(2 * pair)), a_rank(b), None, (0.05, 0.1))
        assert made is not None
        assert not (made.is_significant and abs(made.change) < 0.08), (pair, made.change, made.spread)
        assert not made.steady_told, (pair, made.steady)


def test_the_quickest_stretches_tell_what_other_programs_hide() -> None:
    for pair in range(PAIRS):
        a = a_rank(disturbed(drawn(2 * pair), pair, 0.5))
        b = a_rank(disturbed(drawn(2 * pair + 1, 1.08), pair + 100, 0.3))
        made = compare(a, b, None, (0.2, 0.2))
        assert made is not None
        assert made.is_significant or made.steady_told, (pair, made.change, made.spread, made.steady)
        assert made.steady is not None
        assert made.steady == pytest.approx(1 / 1.08 - 1, abs=0.03)
        assert not (made.is_significant and made.change > 0)
    busier = compare(a, b, None, (0.3, 0.3))
    assert busier is not None
    assert not busier.steady_told, "so busy that no stretch is left alone"


def test_other_programs_make_a_difference_less_sure() -> None:
    """Half of the CPUs busy with something else: 10 % may be theirs, 40 % are not."""
    a, b, slow = a_rank(drawn(1)), a_rank(drawn(2, 1.1)), a_rank(drawn(2, 1.6))
    quiet, disturbed, clear = compare(a, b), compare(a, b, None, (0.0, 0.5)), compare(a, slow, None, (0.0, 0.5))
    assert quiet is not None
    assert disturbed is not None
    assert clear is not None
    assert (quiet.is_significant, quiet.disturbed) == (True, False)
    assert (disturbed.is_significant, disturbed.disturbed) == (False, True)
    assert clear.is_significant


def test_what_others_used_is_what_the_run_did_not() -> None:
    rank = a_rank(drawn(1))
    rank.ordinary.seconds, rank.ordinary.driver_cpu_seconds = 0.1, 0.1
    rank.ordinary.fetches, rank.ordinary.worker_cpu_seconds_per_batch = 1.0, 0.05
    run = Run("train.py-1", [], "ann", "/", 0.0, None, {}, [rank])
    rank.ordinary.busy_cpus = 3.5
    assert others(run, 4) == pytest.approx((3.5 - 1.5) / 4)
    rank.ordinary.busy_cpus = 1.4
    assert others(run, 4) == 0.0
    rank.ordinary.busy_cpus = None
    assert others(run, 4) == 0.0


def test_phases_do_not_count() -> None:
    rank = a_rank(drawn(1))
    before = step_seconds(rank)
    rank.wall_seconds += 100.0
    rank.counters.phase_seconds["evaluation"] = 100.0
    assert step_seconds(rank) == pytest.approx(before)


def test_a_drifting_run_has_more_spread_than_a_shuffled_one() -> None:
    rng = random.Random(5)
    drifting = [0.05 * (1 + n / 2000) for n in range(500)]
    shuffled = drifting[:]
    rng.shuffle(shuffled)
    assert autocorrelation(medians(drifting)) > 0.8
    assert median_error(medians(drifting)) > 2 * median_error(medians(shuffled))
    assert median_error([]) == 0.0


def paced(rank: Rank, speed: float, seed: int) -> Rank:
    """As on processors on which a fixed piece of work takes ``speed`` times as long; five readings of it."""
    rng = random.Random(seed)
    rank.ordinary.paces = [28e-6 * speed * rng.gauss(1, 0.005) for _ in range(5)]
    return rank


@pytest.mark.parametrize("slower", [1.08, 1.04, 0.92])
def test_what_the_processors_themselves_were_slower_or_faster_is_not_the_trainings(slower: float) -> None:
    """The same training on a machine that is slower, or faster, for as long: so is a fixed piece of work."""
    for seed in range(PAIRS):
        a, b = paced(a_rank(drawn(seed)), 1.0, seed), paced(a_rank(drawn(seed + 100, slower)), slower, -seed - 1)
        made = compare(a, b, None, (0.0, 0.0), ALIKE)
        assert made is not None
        assert made.paced
        assert not made.is_significant
        assert not made.steady_told
        assert (made.clock_change < 0) == (slower > 1)


@pytest.mark.parametrize("slower", [1.03, 1.0, 0.97])
def test_a_difference_of_five_per_cent_is_told_whatever_the_processors_did(slower: float) -> None:
    """Also where it cannot be seen by the clock, because the processors were faster during the slower run."""
    for seed in range(PAIRS):
        a, b = (
            paced(a_rank(drawn(seed)), 1.0, seed),
            paced(a_rank(drawn(seed + 100, 1.055 * slower)), slower, -seed - 1),
        )
        made = compare(a, b, None, (0.0, 0.0), ALIKE)
        assert made is not None
        assert made.is_significant, (seed, made.change, made.spread)
        assert made.change == pytest.approx(1 / 1.055 - 1, abs=0.02)
        part, share = made.explained[0]
        assert (part.name, share) == ("compute", pytest.approx(1.0))


def test_a_wait_does_not_take_longer_on_slower_processors() -> None:
    """Steps of waits alone are judged as the clock says; a wait for workers that compute is as much as they do."""
    states = {"compute": 0.0, "sleep": 0.045}
    a, b = a_rank(drawn(1), None, states), a_rank(drawn(2, 1.06), None, states)
    made = compare(paced(a, 1.0, 1), paced(b, 1.08, 2), None, (0.0, 0.0), ALIKE)
    assert made is not None
    assert made.change == made.clock_change
    assert made.is_significant
    rank = a_rank(drawn(1), None, {"compute": 0.010, "data_inline": 0.002, "data_wait": 0.020})
    rank.ordinary.seconds = 0.3
    assert sum(computing(rank).values()) == pytest.approx(0.012)
    rank.ordinary.worker_cpu_seconds_per_batch, rank.ordinary.worker_storage_seconds_per_batch = 0.030, 0.010
    assert sum(computing(rank).values()) == pytest.approx(0.012 + 0.015)


def test_a_training_that_waits_for_its_loader_is_as_fast_as_that() -> None:
    """The driver's own computing takes longer on slower processors, and the wait is the shorter for it."""
    states = {"compute": 0.020, "data_wait": 0.025}
    a, b = a_rank(drawn(1), None, states), a_rank(drawn(2), None, states)
    for rank, on_cpu in ((a, 0.0), (b, 0.0)):
        rank.ordinary.worker_cpu_seconds_per_batch, rank.ordinary.worker_storage_seconds_per_batch = on_cpu, 0.045
    made = compare(paced(a, 1.0, 1), paced(b, 1.08, 2), None, (0.0, 0.0), ALIKE)
    assert made is not None
    assert made.change == made.clock_change
    b.ordinary.worker_cpu_seconds_per_batch, b.ordinary.worker_storage_seconds_per_batch = 0.045, 0.0
    made = compare(a, b, None, (0.0, 0.0), ALIKE)
    assert made is not None
    assert made.change == pytest.approx(made.clock_change + 0.08, abs=0.015)


def test_a_run_that_slows_the_processors_itself_is_less_sure() -> None:
    """Twice as many workers, and the fixed piece of work takes longer: that may be their doing."""
    a, b = paced(a_rank(drawn(1)), 1.0, 1), paced(a_rank(drawn(2)), 1.06, 2)
    spreads = []
    for own in (ALIKE, (0.4, 0.8), None):
        made = compare(a, b, None, (0.0, 0.0), own)
        assert made is not None
        assert made.spread is not None
        spreads.append(made.spread)
    alike, more, unknown = spreads
    assert alike < more == unknown
    assert more > 0.055


def test_too_few_readings_are_no_speed() -> None:
    a, b = paced(a_rank(drawn(1)), 1.0, 1), paced(a_rank(drawn(2, 1.08)), 1.08, 2)
    b.ordinary.paces = b.ordinary.paces[:2]
    made = compare(a, b, None, (0.0, 0.0), ALIKE)
    assert made is not None
    assert made.speeds is None
    assert made.change == made.clock_change


def test_processors_that_are_far_slower_have_a_neighbour_who_may_take_more_from_a_training() -> None:
    """Up to 5 % all that computes is slower by about the same; beyond it nobody knows by how much."""
    a = paced(a_rank(drawn(1)), 1.0, 1)
    spreads = []
    for slower in (1.0, 1.04, 1.08):
        made = compare(a, paced(a_rank(drawn(2, 1.06 * slower)), slower, 2), None, (0.0, 0.0), ALIKE)
        assert made is not None
        assert made.spread is not None
        spreads.append(made.spread)
        assert made.is_significant == (slower < 1.05)
    assert spreads == sorted(spreads)
    assert spreads[2] > 0.08


def test_a_reading_that_something_came_between_is_no_slower_machine() -> None:
    a, b = paced(a_rank(drawn(1)), 1.0, 1), paced(a_rank(drawn(2, 1.055)), 1.0, 2)
    b.ordinary.paces[3] *= 1.15
    made = compare(a, b, None, (0.0, 0.0), ALIKE)
    assert made is not None
    assert made.speeds is not None
    assert abs(made.speeds.change) < 0.01
    assert made.is_significant


@pytest.mark.parametrize("factor", [0.5, 0.7, 0.93, 0.95, 0.97])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_which_run_is_called_a_changes_no_verdict(factor: float, share: float) -> None:
    """Also where a step of both runs waits as well as computes, and the processors of one of them were slower."""
    for seed in range(PAIRS):
        a, b = paced(a_rank(drawn(seed)), 1.0, seed), paced(a_rank(drawn(seed + 100, factor)), 1.04, -seed - 1)
        for rank in (a, b):
            step = rank.ordinary.seconds or 0.0
            rank.ordinary.states = {"compute": 0.6 * step, "sleep": 0.4 * step}
        forth, back = compare(a, b, None, (share, 0.0), ALIKE), compare(b, a, None, (0.0, share), ALIKE)
        assert forth is not None
        assert back is not None
        assert (1 + forth.change) * (1 + back.change) == pytest.approx(1.0)
        assert (forth.is_significant, forth.steady_told) == (back.is_significant, back.steady_told)
        assert forth.spread == pytest.approx(back.spread)


def test_each_row_has_a_verdict_of_its_own_or_none() -> None:
    a, b = a_rank(drawn(1)), a_rank(drawn(2), stalls("network", *[0.3] * 60))
    b.productive_seconds -= 5.0
    a.memory.pss_peak_bytes, b.memory.pss_peak_bytes = 1_000_000_000, 1_286_000_000
    made = compare(a, b)
    assert made is not None
    better = {figure.name: figure.better for figure in made.figures}
    assert (better["productive"], better["stalls"], better["memory, peak"]) == (-1, -1, -1)
    assert (better["step, p99"], better["loader workers"]) == (None, None)
    equal = compare(a, a)
    assert equal is not None
    assert {figure.better for figure in equal.figures} == {0, None}


def test_it_per_second_is_that_of_the_report() -> None:
    a, b = a_rank(drawn(1)), a_rank(drawn(2, 1.3))
    a.steps.per_second, b.steps.per_second = 20.5, 15.25
    made = compare(a, b)
    assert made is not None
    speed = made.figures[0]
    assert (speed.name, speed.a, speed.b, speed.better) == ("it/s", 20.5, 15.25, -1)
