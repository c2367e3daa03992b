"""The observer is killed and another goes on: one run, one baseline, one stall with one id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.driver import PID, Driver, moment, ns, played
from trainprobe.model.cells import CELLS, LEAVES, Leaf, ThreadState
from trainprobe.model.event import FileEventKind, RankSeen, RunStarted, StepFile
from trainprobe.model.report import Rank, Run
from trainprobe.model.resume_state import KeptRank, ResumedRank, ResumedRun
from trainprobe.pipeline import Pipeline
from trainprobe.wire import codec
from trainprobe.wire import report as wire

RUN = "train.py-0123abcd"


def run_of(pipeline: Pipeline, driver: Driver) -> Run:
    return pipeline.report(moment(driver.now)).runs[0]


def rank_of(pipeline: Pipeline, driver: Driver) -> Rank:
    return run_of(pipeline, driver).ranks[0]


def adds_up(rank: Rank) -> None:
    phases = sum(rank.counters.phase_seconds.values())
    assert sum(rank.ledger.values()) == pytest.approx(rank.wall_seconds, rel=1e-3)
    assert rank.productive_seconds + phases + sum(rank.lost.values()) == pytest.approx(rank.wall_seconds, abs=1e-6)
    assert rank.steps.count == sum(rank.counters.step_durations) + 2  # each life's first boundary ends no step


def stall_open(driver: Driver, pipeline: Pipeline) -> None:
    driver.file(FileEventKind.OPENED, "/out/big.pth", 7, driver.now)
    driver.spend(0.7, Leaf.FILE_SYNC)
    played(driver, pipeline, threads=(driver.sample(Leaf.FILE_SYNC),))


def killed(pipeline: Pipeline, driver: Driver) -> tuple[Run, KeptRank]:
    """What is left of an observer: what it published, and what it kept, both read back from text."""
    report = wire.decode(wire.encode(pipeline.report(moment(driver.now))))
    kept = codec.decode(KeptRank, codec.loads(codec.dumps(pipeline.kept()[RUN, "0"])))
    return report.runs[0], kept


def going_on(driver: Driver, left: tuple[Run, KeptRank], *, same_step: bool) -> Pipeline:
    """Another observer, whose kernel ledgers begin at nothing."""
    driver.cells, driver.pool = [0] * CELLS, [0] * LEAVES
    driver.steps = driver.fetches = driver.inline_fetches = driver.backwards = 0
    driver.files.clear()
    driver.events = [
        RunStarted(RUN, driver.now, PID, ("python", "train.py"), "user", "/home/user", attached=True),
        RankSeen(RUN, driver.now, PID, None, left[1].started_ns),
        ResumedRun(
            RUN, driver.now, left[0].started, tuple(left[0].ranks), (ResumedRank(PID, left[1], same_step=same_step),)
        ),
    ]  # fmt: skip
    return played(driver)


def test_a_stall_goes_on_with_its_id_and_is_counted_once() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    first = played(driver)
    stall_open(driver, first)
    told = rank_of(first, driver)
    left = killed(first, driver)
    driver.now += ns(0.4)  # nobody looks
    second = going_on(driver, left, same_step=True)
    driver.file(FileEventKind.OPENED, "/out/big.pth", 7, driver.now)
    driver.spend(0.5, Leaf.FILE_SYNC)
    played(driver, second, threads=(driver.sample(Leaf.FILE_SYNC),))
    rank = rank_of(second, driver)
    assert [(stall.id, stall.end) for stall in rank.stalls] == [(told.stalls[0].id, None)]
    assert rank.stalls[0].seconds == pytest.approx(1.6, abs=0.06)
    assert rank.stalls[0].start == pytest.approx(told.stalls[0].start, abs=0.001)
    assert rank.counters.stalls["checkpoint"] == rank.totals.stalls == 1
    driver.spend(0.2, Leaf.FILE_SYNC)
    driver.files[1, 7] = StepFile(1, 7, ns(0.7), 0, 1000)
    driver.train(30)
    run = run_of(played(driver, second), driver)
    rank = run.ranks[0]
    assert [stall.id for stall in rank.stalls] == [told.stalls[0].id]
    assert rank.stalls[0].end is not None
    assert rank.stalls[0].seconds == pytest.approx(1.8, abs=0.03)
    assert rank.counters.stalls["checkpoint"] == rank.totals.stalls == 1
    assert sum(rank.counters.stall_seconds.values()) == pytest.approx(1.8, abs=0.03)
    assert rank.wall_seconds == pytest.approx((driver.now / 1e9) - 10, abs=0.01)
    assert run.started == left[0].started
    assert rank.steps.count == 40 + 30
    assert {span.phase for span in rank.phases} == {"startup"}


def test_what_nobody_watched_of_a_stall_was_spent_as_its_driver_is_found() -> None:
    """Stopped before, in between and after; then the marks came a few steps later than the watching."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.spend(1.0, Leaf.STOPPED)
    first = played(driver, threads=(driver.sample(Leaf.STOPPED),))
    left = killed(first, driver)
    driver.now += ns(4)
    second = going_on(driver, left, same_step=True)
    found = replace(driver.sample(Leaf.STOPPED), run=ThreadState.BLOCKED)
    driver.spend(0.05, Leaf.STOPPED)
    played(driver, second, threads=(replace(found, cells=tuple(driver.cells)),))
    driver.spend(0.1, Leaf.SLEEP)
    driver.train(30)
    (stall,) = rank_of(played(driver, second), driver).stalls
    assert stall.cause == "suspended"
    assert stall.shares["suspended"] == pytest.approx(5.1, abs=0.1)


def test_a_stall_that_nobody_saw_end_is_closed_as_it_was_told() -> None:
    """The driver has stepped meanwhile: what happened in between belongs to nobody."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    first = played(driver)
    stall_open(driver, first)
    told = rank_of(first, driver)
    left = killed(first, driver)
    driver.now += ns(30)
    second = going_on(driver, left, same_step=False)
    driver.train(30)
    driver.write("/out/model.pth", 200_000_000, 1.2)
    driver.train(30)
    rank = rank_of(played(driver, second), driver)
    assert rank.stalls[0].id == told.stalls[0].id
    assert rank.stalls[0].end == pytest.approx(rank.stalls[0].start + told.stalls[0].seconds)
    assert [stall.seconds for stall in rank.stalls] == pytest.approx([told.stalls[0].seconds, 1.2], abs=0.02)
    assert rank.counters.stalls["checkpoint"] == rank.totals.stalls == 2
    assert rank.wall_seconds == pytest.approx(driver.now / 1e9 - 10 - 30, abs=0.01)
    adds_up(rank)


def test_the_baseline_goes_on_and_the_next_stall_is_seen_at_once() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    left = killed(played(driver), driver)
    second = going_on(driver, left, same_step=False)
    driver.train(3)
    driver.write("/out/model.pth", 200_000_000, 1.2)
    driver.train(3)
    rank = rank_of(played(driver, second), driver)
    assert [stall.cause for stall in rank.stalls] == ["checkpoint"]
    assert rank.stalls[0].shares == pytest.approx({"checkpoint": 1.2}, abs=0.02)
    assert rank.stalls[0].first_step == pytest.approx(43, abs=1)
    adds_up(rank)


def test_a_rank_without_a_baseline_keeps_its_time() -> None:
    driver = Driver()
    driver.begin()
    driver.train(3)
    told = wire.decode(wire.encode(played(driver).report(moment(driver.now)))).runs[0]
    driver.cells, driver.pool, driver.steps, driver.fetches, driver.backwards = [0] * CELLS, [0] * LEAVES, 0, 0, 0
    driver.events = [
        RunStarted(RUN, driver.now, PID, ("python", "train.py"), "user", "/home/user", attached=True),
        RankSeen(RUN, driver.now, PID, None, driver.now),
        ResumedRun(RUN, driver.now, told.started, tuple(told.ranks), (ResumedRank(PID, None, same_step=False),)),
    ]
    driver.train(30)
    rank = rank_of(played(driver), driver)
    assert rank.wall_seconds == pytest.approx(driver.now / 1e9 - 10, abs=0.06)
    assert rank.steps.count == pytest.approx(33, abs=1)
    assert {span.phase for span in rank.phases} == {"startup", "attaching"}


def test_three_lives_make_one_rank() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    for _ in range(2):
        driver.train(2)
        driver.write("/out/model.pth", 200_000_000, 1.2)
        driver.train(30)
        pipeline = going_on(driver, killed(played(driver, pipeline), driver), same_step=False)
    driver.train(20)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.steps.count == 40 + 64 + 20
    assert rank.totals.stalls == rank.counters.stalls["checkpoint"] == 2
    assert len(rank.checkpoints) == 2
    assert rank.exit is not None
    assert rank.wall_seconds == pytest.approx(driver.now / 1e9 - 10, abs=0.01)


def test_what_was_open_and_turns_out_to_be_an_evaluation_is_no_stall() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    first = played(driver)
    stall_open(driver, first)
    left = killed(first, driver)
    second = going_on(driver, left, same_step=True)
    for _ in range(50):
        driver.fetch(0.002)
        driver.spend(0.03, Leaf.CPU)
    driver.train(30)
    rank = rank_of(played(driver, second), driver)
    assert all(stall.end is not None for stall in rank.stalls)
    assert rank.totals.stalls == len(rank.stalls)
    assert rank.productive_seconds + sum(rank.counters.phase_seconds.values()) + sum(
        rank.lost.values()
    ) == pytest.approx(rank.wall_seconds, abs=1e-6)
