"""The benchmark of `trainprobe compare`: what it plants, in which order, and when a pair holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.advice.cases import Pace
from benchmarks.comparison import KINDS, PLAIN, SLOWER, Told, planned, settings
from benchmarks.programs import Json

PACE = Pace(batch=0.00002, own=0.0003)
STEP, MORE = 0.020, 0.001


def test_each_kind_has_its_turn_and_the_order_is_drawn() -> None:
    rounds = [planned(7, number) for number in range(30)]
    assert Counter(kind for runs in rounds for kind, _ in runs) == dict.fromkeys(KINDS, 20)
    assert all({role for _, role in runs} == {PLAIN, SLOWER} for runs in rounds)
    assert len({runs[0][1] for runs in rounds}) == 2
    assert rounds == [planned(7, number) for number in range(30)]
    assert rounds != [planned(8, number) for number in range(30)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_slower_run_has_at_least_the_difference_more(kind: str) -> None:
    plain, slower = (settings(kind, 500, STEP, more, PACE) for more in (0.0, MORE))
    differs = {name for name in plain if plain[name] != slower[name]}
    more = {
        "own_work": (slower["own_work"] - plain["own_work"]) * PACE.own,
        "batch_wait": slower["batch_wait"] - plain["batch_wait"],
        "sync": slower["sync"] - plain["sync"],
    }
    assert len(differs) == 1
    assert MORE * 0.999 <= more[differs.pop()] < MORE + PACE.own


def test_when_a_pair_holds() -> None:
    none: Json = dict.fromkeys(("steady_told", "waits_told", "work_told"), False)
    none |= {"waits_change": 0.0, "work_change": 0.01}
    told = Told(0, "io", equal=True, true=-0.05, change=-0.05, told=True, apart=20.0, answer=none)
    assert not told.holds
    assert replace(told, told=False).holds
    assert not replace(told, told=False, answer=none | {"steady_told": True}).holds
    assert not replace(told, told=False, answer=none | {"waits_told": True, "waits_change": 0.05}).holds
    other = replace(told, equal=False)
    assert other.holds
    assert not replace(other, change=0.05).holds
    assert not replace(other, told=False).holds
    assert replace(other, told=False, answer=none | {"waits_told": True, "waits_change": 0.05}).holds
    assert replace(other, told=False, answer=none | {"work_told": True}).holds
    assert not replace(other, answer=none | {"waits_told": True, "waits_change": -0.05}).holds
