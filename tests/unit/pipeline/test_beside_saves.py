"""Trainings one of whose threads saves beside the steps, which wait for the interpreter's lock meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.driver import PID, Driver, ns, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import FileEventKind, RankSeen
from trainprobe.model.report import Rank

SAVER, SAVES, BESIDE = 4242, 5, 40


def trained(
    path: str = "/out/step-{}/__0_0.distcp",
    pid: int = PID,
    beside: float = 0.02,
    others: float = 0.0,
    leaf: Leaf = Leaf.LOCK,
    ranks: int = 1,
) -> Rank:
    """Five times 160 steps of 50 ms, then 40 beside which a file is written; they wait ``beside`` s each, the
    other ones ``others``."""
    driver = Driver()
    driver.begin()
    driver.events[:] = [replace(one, world_size=ranks) if isinstance(one, RankSeen) else one for one in driver.events]
    for place in range(SAVES):
        for _ in range(160):
            driver.spend(others, leaf, Region.STEP)
            driver.step()
        file, opened, number = path.format(place), driver.now, 60 + place
        driver.file(FileEventKind.OPENED, file, number, opened, tid=SAVER, pid=pid)
        for _ in range(BESIDE):
            driver.spend(beside, leaf, Region.STEP)
            driver.step()
        driver.file(FileEventKind.CLOSED, file, number, opened, 2_000_000_000, ns(1.0), tid=SAVER, pid=pid)
    driver.train(20)
    driver.exit()
    return rank_of(played(driver), driver)


def test_waits_for_the_interpreter_that_a_saving_thread_holds_are_of_the_checkpoint() -> None:
    rank = trained()
    assert rank.lost == {"checkpoint": pytest.approx(SAVES * BESIDE * 0.02, rel=0.03)}
    (found,) = rank.bottlenecks
    assert (
        found.summary == f"waiting for thread {SAVER} of the training, which writes checkpoint /out/step-4/__0_0.distcp"
    )
    told = {(one.key, one.pid, one.path) for one in found.evidence}
    assert ("checkpoint.saved_beside", PID, None) in told
    assert ("checkpoint.write_seconds", PID, "/out/step-4/__0_0.distcp") in told
    assert any("holds the interpreter" in advice for advice in found.advice)
    adds_up(rank)


def test_it_is_so_where_a_lock_may_also_be_for_other_ranks() -> None:
    """Of whom nothing is seen: what the other steps wait for them is not lost."""
    rank = trained(others=0.004, ranks=2)
    assert rank.lost == {"checkpoint": pytest.approx(SAVES * BESIDE * 0.016, rel=0.05)}


def test_waits_of_all_steps_are_not_of_the_saves_beside_some_of_them() -> None:
    rank = trained(beside=0.02, others=0.02)
    assert rank.lost == {"unknown": pytest.approx((SAVES * (160 + BESIDE)) * 0.02, rel=0.03)}


def test_only_what_steps_beside_saves_wait_beyond_the_others_is_of_the_saves() -> None:
    rank = trained(beside=0.02, others=0.004)
    assert rank.lost["checkpoint"] == pytest.approx(SAVES * BESIDE * 0.016, rel=0.05)
    assert rank.lost["unknown"] == pytest.approx(SAVES * (160 + BESIDE) * 0.004, rel=0.05)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"pid": 2000}, id="another process holds no lock of the training's"),
        pytest.param({"path": "/out/events.log"}, id="a log is no checkpoint"),
        pytest.param({"path": "/out/predictions-{}.json"}, id="results are none"),
        pytest.param({"leaf": Leaf.OTHER}, id="it waits for something else"),
    ],
)
def test_other_waits_beside_a_writer_are_not_of_a_checkpoint(other: dict[str, object]) -> None:
    rank = trained(**other)  # type: ignore[arg-type]
    assert rank.lost == {"unknown": pytest.approx(SAVES * BESIDE * 0.02, rel=0.03)}


def test_a_save_beside_steps_that_wait_for_nothing_costs_nothing() -> None:
    assert trained(beside=0.0).lost == {}


def test_a_checkpoint_that_lies_open_and_is_not_written_holds_nothing() -> None:
    driver = Driver()
    driver.begin()
    driver.train(160)
    driver.file(FileEventKind.OPENED, "/out/model.h5", 60, driver.now, tid=SAVER)
    for _ in range(BESIDE):
        driver.spend(0.02, Leaf.LOCK, Region.STEP)
        driver.step()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"unknown": pytest.approx(BESIDE * 0.02, rel=0.05)}


def test_own_saves_in_ordinary_steps_and_waits_beside_others_are_one_bottleneck() -> None:
    driver = Driver()
    driver.begin()
    for place in range(5 * SAVES):
        driver.train(24)
        driver.write(f"/out/last-{place}.pt", 50_000_000, 0.045, ino=200 + place)
        opened = driver.now
        driver.file(FileEventKind.OPENED, f"/out/all-{place}.pt", 60 + place, opened, tid=SAVER)
        for _ in range(8):
            driver.spend(0.02, Leaf.LOCK, Region.STEP)
            driver.step()
        driver.file(FileEventKind.CLOSED, f"/out/all-{place}.pt", 60 + place, opened, 2_000_000_000, ns(0.4), tid=SAVER)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [one.cause for one in rank.bottlenecks] == ["checkpoint"]
    assert rank.lost == {"checkpoint": pytest.approx(5 * SAVES * (8 * 0.02 + 0.045), rel=0.05)}
    adds_up(rank)
