"""Pairs of real trainings of 551 ordinary steps, on a virtual machine whose speed changed from run to run.

Made by ``python -m benchmarks.comparison``, kept without what names the machine.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from trainprobe.advise.comparison import Comparison, compare, others, own_cpus
from trainprobe.model.report import Run
from trainprobe.wire import report as wire

CPUS = 2


@cache
def runs() -> dict[str, Run]:
    text = gzip.decompress((Path(__file__).parent / "recorded.json.gz").read_bytes()).decode()
    return {run.run: run for run in wire.decode(text).runs}


def compared(*names: str) -> Comparison:
    a, b = (runs()[name] for name in names)
    used = [own_cpus(run, CPUS) or 0.0 for run in (a, b)]
    made = compare(a.ranks[0], b.ranks[0], None, (others(a, CPUS), others(b, CPUS)), (used[0], used[1]))
    assert made is not None
    return made


def test_more_computing_is_told_though_the_clock_says_nothing() -> None:
    """The machine was 5 % quicker in the run that computed 5.5 % more."""
    made = compared("0-compute-plain", "0-compute-slower")
    assert abs(made.clock_change) < 0.002
    assert made.work_told
    assert made.work_change == pytest.approx(0.055, abs=0.005)
    assert made.is_significant
    assert made.change < 0


def test_more_writing_is_told_with_its_calls() -> None:
    made = compared("7-io-plain", "7-io-slower")
    (wait,) = made.waits_told
    assert (wait.state, wait.call, wait.a_calls) == ("other", "write", 0.0)
    assert (wait.b_calls or 0.0) > 10
    assert wait.change == pytest.approx(0.00097, abs=0.00002)
    assert not made.work_told


@pytest.mark.parametrize(
    "names",
    [("2-io-plain", "3-compute-plain"), ("7-io-plain", "0-compute-plain"), ("3-compute-plain", "7-io-plain")],
)
def test_nothing_is_told_of_equal_ones(names: tuple[str, str]) -> None:
    """By the clock up to 6 % apart; by the fixed piece of work the processors differed by up to 6.5 %."""
    made = compared(*names)
    assert (made.is_significant, made.parts_told, made.steady_told) == (False, False, False)
    assert made.work is not None
    assert made.work.b / made.work.a == pytest.approx(1.0, abs=0.006)


def test_which_run_is_called_a_changes_no_verdict() -> None:
    for a in runs():
        for b in runs():
            forth, back = compared(a, b), compared(b, a)
            assert (1 + forth.change) * (1 + back.change) == pytest.approx(1.0)
            assert forth.is_significant == back.is_significant, (a, b)
            assert (forth.work_told, bool(forth.waits_told)) == (back.work_told, bool(back.waits_told)), (a, b)
