"""Many ranks with many stalls cost no more than a few do, and their totals stay."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tests.builders.driver import Driver, played
from trainprobe.model.cause import Cause
from trainprobe.pipeline import stall_shares
from trainprobe.pipeline.run.state import RunState
from trainprobe.pipeline.stall_shares import OF_HOST, OF_RUN, shorten
from trainprobe.pipeline.stalls import KEEP, StallEntry


def run(user: str, *stalls: int) -> RunState:
    """A run of ``user`` with a rank for each number: of its stalls."""
    driver = Driver()
    driver.begin()
    driver.train(10)
    (made,) = played(driver).runs.values()
    made.started = replace(made.started, user=user)
    (first,) = made.ranks.by_pid.pop(driver.pid)
    for number, count in enumerate(stalls):
        rank = copy.deepcopy(first)
        rank.stalls.entries = [
            StallEntry(at, at + 1, 2e9, Cause.NETWORK, {Cause.NETWORK: 2e9}, at, at, 1) for at in range(count)
        ]
        rank.stalls.total = count
        made.ranks.by_pid[number] = [rank]
    return made


def kept(one: RunState) -> list[int]:
    return [len(rank.stalls.entries) for rank in one.ranks]


def test_a_run_has_so_many_and_its_fullest_ranks_lose_their_oldest() -> None:
    one = run("a", *[KEEP] * 10, 7)
    shorten([one])
    *full, few = kept(one)
    assert (sum(full), few) == (OF_RUN - 7, 7)
    assert max(full) - min(full) <= 1
    first, *_ = one.ranks
    assert first.stalls.entries[-1].start_ns == KEEP - 1
    gone = KEEP - len(first.stalls.entries)
    assert sum(first.stalls.gone.counts) == gone
    assert first.stalls.gone.seconds == pytest.approx(2.0 * gone)
    assert first.stalls.total == KEEP


def test_stalls_that_are_over_before_anybody_looks_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_shares, "OF_RUN", 10)
    driver = Driver()
    driver.begin()
    driver.train(60)
    for number in range(30):
        driver.train(12)
        driver.write(f"/out/epoch_{number}.pth", 246_000_000, 0.3, 0.9)
    driver.train(2)
    (one,) = played(driver).runs.values()
    (rank,) = one.ranks
    assert (rank.stalls.total, kept(one)) == (30, [10])


def test_a_stall_that_goes_on_with_one_that_is_forgotten_stands_by_itself() -> None:
    one = run("a", 1)
    (rank,) = one.ranks
    last = rank.stalls.entries[0]
    rank.stalls.begin(replace(last, first_step=1, end_ns=None), 2)
    assert rank.stalls.joins
    rank.stalls.forget_oldest()
    assert len(rank.stalls.listed()) == 1


def test_few_ranks_keep_all() -> None:
    runs = [run("a", *[KEEP] * 8), *(run(f"b{number}", KEEP) for number in range(64))]
    shorten(runs)
    assert all(count == KEEP for one in runs for count in kept(one))


def test_whoever_has_most_of_the_host_gives() -> None:
    crowd = [run("a", *[KEEP] * 8) for _ in range(12)]
    victim = run("b", KEEP, KEEP)
    shorten([*crowd, victim])
    assert kept(victim) == [KEEP, KEEP]
    assert sum(sum(kept(one)) for one in crowd) == OF_HOST - 2 * KEEP
