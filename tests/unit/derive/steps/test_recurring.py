"""Which call marks the steps: found among calls of all kinds, whatever the pace; none where nothing recurs evenly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate, pairwise

import pytest

from trainprobe.bpf.abi import BEAT_INTERVALS
from trainprobe.derive.steps.recurring import before_rhythm, once_a_step
from trainprobe.derive.steps.recurring import bursts as bursts_since

Times = dict[str, list[float]]


def intervals(times: list[float]) -> list[int]:
    """As the kernel side counts them."""
    counted: Counter[int] = Counter()
    for before, after in pairwise(times):
        units = int((after - before) * 1e9) >> 10
        octave = max(0, units.bit_length() - 1)
        place = 2 * octave + (units >> (octave - 1) & 1) if octave else 0
        counted[min(place, BEAT_INTERVALS - 1)] += 1
    return [counted[place] for place in range(BEAT_INTERVALS)]


def found(times: Mapping[str, list[float]]) -> str | None:
    return once_a_step({call: intervals(at) for call, at in times.items()})


def bursts(calls: Mapping[str, list[int]]) -> tuple[str, int] | None:
    """From the begin of the process."""
    return bursts_since(calls, calls)


def loop(steps: int, pace: float, calls: dict[str, tuple[int, float]], uneven: float = 0.2) -> Times:
    """By call: how often a step, and how far into it, as a part of it. One in 25 steps is five times as long."""
    times: Times = {call: [] for call in calls}
    now = 0.0
    for step in range(steps):
        lasts = pace * random.uniform(1 - uneven, 1 + uneven) * (5 if step % 25 == 24 else 1)
        for call, (number, place) in calls.items():
            times[call] += [now + lasts * place + 2e-5 * i for i in range(number)]
        now += lasts
    return times


@pytest.mark.parametrize("pace", [0.004, 0.05, 0.7, 6.0])
def test_the_call_that_comes_once_a_step_among_those_that_come_oftener(pace: float) -> None:
    calls = {"copy": (random.randrange(2, 6), 0.01), "wait": (1, 0.6), "kernel": (random.randrange(20, 300), 0.1)}
    assert found(loop(random.randrange(30, 200), pace, calls)) == "wait"


def test_a_look_at_the_result_now_and_then_is_no_step() -> None:
    times = loop(300, 0.03, {"wait": (1, 0.5)})
    assert found(times | {"loss": times["wait"][:: random.randrange(5, 20)]}) == "wait"
    assert found({"loss": times["wait"][::10]}) == "loss", "where nothing else is seen, it is the group that recurs"


def test_kernels_of_layers_are_no_steps() -> None:
    """Launches that the GPU's full queue holds up come evenly: those of layers several times a step."""
    times: Times = {}
    layers, kernels, now = random.randrange(2, 9), random.randrange(8, 30), 0.0
    names = [f"layer's {k}" for k in range(kernels)] * layers + [f"once {k}" for k in range(kernels)]
    for _ in range(100):
        for name in names:
            times.setdefault(name, []).append(now)
            now += 0.05 / len(names) * random.uniform(0.9, 1.1)
    told = found(times)
    assert told is not None
    assert told.startswith("once")


def test_nothing_recurs() -> None:
    """Bursts, calls without any order, too few of them, and what comes a thousand times a second."""
    bursts = [step + 1e-4 * i for step in range(40) for i in range(4)]
    now, chaos = 0.0, []
    for _ in range(300):
        chaos.append(now)
        now += 10 ** random.uniform(-4, 0)
    fast = [0.001 * i for i in range(5000)]
    assert found({"bursts": bursts, "chaos": chaos, "few": [1.0, 2.0, 3.0], "fast": fast}) is None
    assert found({}) is None


def burst_loop(steps: int, pace: float, calls: int, *, uneven: float = 0.2) -> list[float]:
    """Times of calls that come in bursts, one a step; one in 25 steps is five times as long."""
    times, now = [], 0.0
    for step in range(steps):
        times += [now + 2e-5 * call for call in range(calls)]
        now += pace * random.uniform(1 - uneven, 1 + uneven) * (5 if step % 25 == 24 else 1)
    return times


@pytest.mark.parametrize("pace", [0.004, 0.05, 0.7])
def test_bursts_of_calls_are_steps(pace: float) -> None:
    """Each is one step, however many calls it has; one call is enough."""
    steps, calls = random.randrange(40, 200), random.randrange(1, 20)
    runs = intervals(burst_loop(steps, pace, calls))
    found = bursts({"now and then": [0] * BEAT_INTERVALS, "runs": runs})
    assert found is not None
    call, least = found
    octave = least.bit_length() - 1
    assert (call, sum(runs[2 * octave + (least >> (octave - 1) & 1) :])) == ("runs", steps - 1)
    assert 0.001 < least * 1024e-9 < 0.8 * pace


def test_a_call_that_comes_once_a_step_is_preferred_to_one_whose_bursts_are_drawn_out() -> None:
    """On a busy host the second call of a step may come as late as the next step."""
    once = burst_loop(100, 0.05, 1)
    twice = sorted([*once, *(at + (0.02 if number % 12 == 0 else 1e-3) for number, at in enumerate(once))])
    rare = once[::5]
    found = bursts({"twice": intervals(twice), "once": intervals(once), "rare": intervals(rare)})
    assert found is not None
    assert found[0] == "once"


def test_steps_that_become_twice_as_fast_stay_steps() -> None:
    """The machine was busy while the pace was learnt."""
    found = bursts({"runs": intervals(burst_loop(60, 0.2, 10))})
    assert found is not None
    assert 2e-4 < found[1] * 1024e-9 < 0.05


@pytest.mark.parametrize("calls", [1, 6])
def test_a_stall_longer_than_all_steps_together_hides_no_steps(calls: int) -> None:
    """A save, a slow batch, an evaluation while the pace is learnt."""
    times = burst_loop(120, 0.01, calls)
    for stall in range(2):
        times = [at + (2.0 if at > 0.5 * (stall + 1) else 0.0) for at in times]
    assert bursts({"runs": intervals(times)}) is not None
    assert calls > 1 or found({"wait": times}) == "wait"


def test_steps_of_three_lengths_that_lie_beside_each_other_are_steps() -> None:
    """A busy host draws them out: 13 % are a little shorter than the band that most of the time is in."""
    runs = [0] * BEAT_INTERVALS
    runs[23:30] = [56, 232, 69, 44, 14, 3, 1]
    assert bursts({"runs": runs}) is not None


def chaos() -> list[float]:
    """Calls at intervals of a tenth of a millisecond to a second, all lengths alike."""
    return [*accumulate((10 ** random.uniform(-4, 0) for _ in range(299)), initial=0.0)]


def test_calls_without_a_pace_are_no_bursts() -> None:
    """One chaos of two hundred looks as if it had a pace, by chance."""
    others = {"fast": intervals([0.001 * i for i in range(5000)]), "few": intervals([1.0, 2.0, 3.0])}
    assert sum(bursts({"chaos": intervals(chaos()), **others}) is not None for _ in range(40)) <= 2
    assert bursts(others) is None
    assert bursts({}) is None


def looks(times: list[float], seconds: int) -> list[tuple[int, list[int]]]:
    return [(round(n * 1e9), intervals([at for at in times if at < n])) for n in range(seconds)]


@pytest.mark.parametrize("pace", [0.012, 0.1, 0.3])
def test_what_came_while_it_started_is_no_step(pace: float) -> None:
    """Calls at any pace, then a pause in which it compiles, then steps of some calls each; few of them are late."""
    starting, now = [0.5], 0.5
    for _ in range(random.randrange(8, 30)):
        now += random.choice([0.004, 0.03, 1.1]) * random.uniform(0.7, 1.4)
        starting.append(now)
    begins = now + random.uniform(1.2, 3)
    steps = [begins + pace * n + (n > 20) * 1.5 for n in range(round(12 / pace))]
    times = starting + [at + call * 2e-5 for at in steps for call in range(4)]
    seen = looks(times, round(times[-1]))
    found = bursts({"call": [now - before for now, before in zip(seen[-1][1], seen[-9][1])]})
    assert found is not None
    least = found[1]
    place = 2 * (least.bit_length() - 1) + (least >> (least.bit_length() - 2) & 1)
    counted = sum(seen[-1][1][place:]) - before_rhythm(seen, least)
    truth = sum(at < len(seen) - 1 for at in steps)
    assert abs(counted - truth) <= max(3, 0.03 * truth), (counted, truth)


def test_steps_from_the_first_look_on_all_count() -> None:
    times = [n * 0.05 + call * 2e-5 for n in range(100) for call in range(3)]
    seen = looks(times, 5)
    found = bursts({"call": seen[-1][1]})
    assert found is not None
    assert before_rhythm(seen, found[1]) == 0


def counted_looks(told: list[dict[int, int]], seconds: tuple[int, ...]) -> list[tuple[int, list[int]]]:
    """As ``looks``, from what each span counted by half octaves."""
    seen, sums = [], [0] * BEAT_INTERVALS
    for second, more in zip(seconds, told, strict=True):
        sums = [number + more.get(place, 0) for place, number in enumerate(sums)]
        seen.append((second * 10**9, sums))
    return seen


def test_first_steps_that_a_busy_host_draws_out_count() -> None:
    """As counted in a training of Flax: the first second beside another program, then steps of 28 ms."""
    told = [
        {},
        {29: 1, 30: 5, 31: 4, 32: 5, 34: 1},
        {28: 4, 29: 15, 30: 11, 31: 1},
        {28: 4, 29: 26, 30: 4},
        {28: 14, 29: 48, 30: 8},
    ]
    assert before_rhythm(counted_looks(told, (0, 1, 2, 3, 5)), 1536) == 0


@pytest.mark.parametrize(("before", "starting"), [({}, 0), ({32: 1}, 2)])
def test_a_first_step_that_a_look_parts_from_the_others_counts(before: dict[int, int], starting: int) -> None:
    """Three seconds of compiling, and a look between the second step and the third. Where the call came before, it is
    not known whether the long gap was a step."""
    told = [{}, before, {}, {33: 1}, {28: 20, 29: 13, 30: 2}, {28: 30, 29: 10, 30: 1}]
    assert before_rhythm(counted_looks(told, (0, 1, 2, 3, 4, 5)), 1536) == starting


@pytest.mark.parametrize(
    ("told", "starting"),
    [
        ([{29: 6, 35: 2}, {29: 23, 30: 7}, {30: 27}], 1),
        ([{29: 12, 30: 3, 35: 1, 36: 1}, {29: 16, 30: 14}], 1),
        ([{37: 1}, {29: 1, 30: 24, 36: 1}, {29: 9, 30: 19}], 1),
        ([{37: 2}, {31: 13, 32: 3}, {31: 17}], 1),
        ([{29: 3, 30: 1, 35: 2}, {29: 1, 30: 2, 31: 14}], 1),
        (
            [{15: 2, 22: 7, 23: 9, 25: 2, 28: 3, 29: 2, 32: 1}, {28: 13, 30: 1, 34: 1}, {29: 16, 30: 3, 36: 1, 38: 1}],
            40,
        ),
    ],
)
def test_only_the_last_of_long_gaps_is_a_step_of_tensorflow(told: list[dict[int, int]], starting: int) -> None:
    """As counted in trainings of Keras: while it is traced, the first step makes the same call."""
    seen = counted_looks([{}, *told], tuple(range(len(told) + 1)))
    assert before_rhythm(seen, 1536, 1) == starting


def test_a_stall_behind_the_first_steps_takes_none_of_them_away() -> None:
    """Steps of 5 ms; the start made the same call three times."""
    told = [{}, {30: 3}, {23: 60}, {23: 180, 33: 1}, {23: 195}]
    assert before_rhythm(counted_looks(told, (0, 1, 2, 3, 4)), 1024, 1) == 3
