"""What steps wait for, in equal stretches: nothing is lost as they become longer, and few are kept."""

from __future__ import annotations

import random

import pytest

from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.steps.ordinary_waits import MOST, SHORTEST, Waits
from trainprobe.model.cause import State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import StepFile


def test_means_of_all_steps_are_kept_in_few_stretches(rng: random.Random) -> None:
    least, steps = rng.randint(500, 5000), 0
    waits, slept, wrote, looks, closed = Waits(), 0, 0, 0, False
    every: list[tuple[int, int]] = []
    while steps < least or not closed:
        steps += 1
        slept += rng.randint(0, 2_000_000)
        wrote += rng.randint(0, 3)
        waits.step(1)
        closed = waits.full
        if closed or rng.random() < 0.01:  # a report asks for what there is
            looks += closed
            use = StepFile(1, 2, 5, 0, 4096 * wrote, wrote)
            items = {
                (State.SLEEP, Region.STEP, Leaf.SLEEP): float(slept),
                (State.OTHER, Region.STEP, Leaf.FILE_SYNC): 7.0,
                (State.COMPUTE, Region.STEP, Leaf.CPU): 9e6,
                (State.DATA_WAIT, Region.FETCH, Leaf.SLEEP): 5e6,
            }
            waits.add_steps(items, [(use, FileClass.LOG, "/log")])
            every.append((slept, wrote))
            slept = wrote = 0
    number, of = len(waits.stretches), waits.length
    assert MOST // 2 <= number < MOST
    assert number * of == steps
    assert looks <= MOST + (MOST // 2) * (of // SHORTEST).bit_length(), "few looks, however long the run"
    assert set(waits.per_step()) == {"sleep/sleep", "other/write"}
    assert sum(waits.per_step()["sleep/sleep"]) * of == pytest.approx(sum(ns for ns, _ in every) / 1e9)
    assert sum(waits.calls()["logging/write"]) * of == pytest.approx(sum(calls for _, calls in every))
    assert [size / 4096 for size in waits.bytes()["logging/write"]] == pytest.approx(waits.calls()["logging/write"])


def test_a_stretch_without_any_counts_as_one() -> None:
    waits = Waits()
    for number in range(10 * SHORTEST):
        waits.step(1)
        if waits.full:
            late = number > 5 * SHORTEST
            waits.add_steps({(State.NETWORK, Region.STEP, Leaf.SOCKET): 4e9} if late else {}, ())
    assert waits.per_step() == {"network/network": [0.0] * 5 + [4.0 / SHORTEST] * 5}
    assert waits.calls() == {}
