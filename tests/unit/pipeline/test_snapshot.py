"""The report is made of snapshots: what comes later does not change one."""

from __future__ import annotations

import copy

from tests.builders.driver import Driver, moment, played
from trainprobe.model.cells import Leaf
from trainprobe.model.moment import Moment
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.rank.snapshot import RankSnapshot, snapshot
from trainprobe.pipeline.report.rank import RankPlace, rank_report


def taken(pipeline: Pipeline, driver: Driver) -> RankSnapshot:
    (run,) = pipeline.runs.values()
    (rank,) = run.ranks
    return snapshot(rank, driver.now, None)


def reported(seen: RankSnapshot, at: Moment) -> Rank:
    return copy.deepcopy(rank_report(seen, at, RankPlace("run", 0, "0", 1, 1), 4))


def test_a_snapshot_stays_what_it_was() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    driver.write("/ckpt/step-40.pt", 50_000_000, 0.3, 0.2)
    driver.train(40)
    pipeline = played(driver)
    at, before = moment(driver.now), taken(pipeline, driver)
    report = reported(before, at)
    driver.spend(2.0, Leaf.SOCKET)
    driver.write("/ckpt/step-80.pt", 50_000_000, 0.3, 0.2, ino=8)
    driver.train(40)
    played(driver, pipeline)
    assert reported(before, at) == report
    assert reported(taken(pipeline, driver), at) != report
