"""Would a crash have lost everything? Only where no complete checkpoint was left."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, ns, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.cells import Leaf
from trainprobe.model.event import FileEventKind
from trainprobe.model.report import Rank, Warning_

MB = 1_000_000


def trained(driver: Driver) -> Rank:
    driver.train(20)
    return rank_of(played(driver), driver)


def unsafe(rank: Rank) -> list[Warning_]:
    return [warning for warning in rank.warnings if warning.cause == "checkpoint_unsafe"]


def begun() -> Driver:
    driver = Driver()
    driver.begin()
    driver.train(20)
    return driver


def test_the_only_checkpoint_written_over_in_place_is_unsafe() -> None:
    driver = begun()
    for _ in range(3):
        driver.write("/out/last.pt", 100 * MB, 0.8)
        driver.train(20)
    rank = trained(driver)
    (warning,) = unsafe(rank)
    assert "2 times, 800 ms at most, no complete checkpoint existed: /out/last.pt" in warning.summary
    assert "without fsync" in warning.summary
    assert [save.outcome for save in rank.checkpoints] == ["complete", "unsafe", "unsafe"]
    assert rank.totals.warnings == 1
    assert warning.advice


def test_what_is_synced_behind_its_close_through_another_descriptor_is_synced() -> None:
    """torch.save(path), then os.open(path, os.O_RDONLY) and os.fsync: the kernel side tells the second close alone."""
    driver = begun()
    for _ in range(3):
        driver.write("/out/last.pt", 100 * MB, 0.8)
        opened = driver.now
        driver.spend(0.2, Leaf.FILE_SYNC)
        driver.file(FileEventKind.CLOSED, "/out/last.pt", opened=opened, sync=ns(0.2))
        driver.train(20)
    rank = trained(driver)
    (warning,) = unsafe(rank)
    assert warning.summary.endswith("/out/last.pt is written over in place")
    assert [save.outcome for save in rank.checkpoints] == ["complete", "complete", "complete"]
    assert [save.fsync_seconds for save in rank.checkpoints] == [0.2, 0.2, 0.2]
    assert rank.checkpoints[-1].seconds == pytest.approx(1.0, abs=0.01)


def test_the_old_one_deleted_first_is_unsafe() -> None:
    driver = begun()
    driver.write("/out/step-1.pt", 100 * MB, 0.5, ino=7)
    driver.train(10)
    driver.file(FileEventKind.UNLINKED, "/out/step-1.pt", 7)
    driver.write("/out/step-2.pt", 100 * MB, 6.2, ino=8)
    (warning,) = unsafe(trained(driver))
    assert warning.summary.startswith("for 6.20 s no complete checkpoint existed: /out/step-1.pt is deleted before")


def test_deleting_the_old_one_after_the_new_is_safe() -> None:
    driver = begun()
    for step in range(4):
        driver.write(f"/out/step-{step}.pt", 100 * MB, 0.5, ino=10 + step)
        if step:
            driver.file(FileEventKind.UNLINKED, f"/out/step-{step - 1}.pt", 9 + step)
        driver.train(10)
    assert unsafe(trained(driver)) == []


def test_a_temporary_name_and_a_rename_are_safe() -> None:
    driver = begun()
    for number in range(3):
        driver.write("/out/last.pt.tmp", 100 * MB, 0.5, 0.3, ino=20 + number)
        driver.file(FileEventKind.RENAMED, "/out/last.pt.tmp", 20 + number, new_path="/out/last.pt", created=False)
        driver.train(10)
    rank = trained(driver)
    assert unsafe(rank) == []
    assert {save.outcome for save in rank.checkpoints} == {"complete"}


def test_a_second_checkpoint_makes_writing_over_one_safe() -> None:
    driver = begun()
    driver.write("/out/best.pt", 100 * MB, 0.5, ino=30)
    for _ in range(3):
        driver.write("/out/last.pt", 100 * MB, 0.5, ino=31)
        driver.train(10)
    assert unsafe(trained(driver)) == []


def test_an_end_in_the_gap_is_told() -> None:
    driver = begun()
    driver.write("/out/last.pt", 100 * MB, 0.5)
    driver.train(10)
    driver.file(FileEventKind.OPENED, "/out/last.pt", 7, driver.now)
    driver.spend(0.4)
    driver.exit(None, 9, shutdown=0.0)
    (warning,) = unsafe(rank_of(played(driver), driver))
    assert "the training ended in such a moment" in warning.summary


def test_a_save_that_failed_leaves_no_checkpoint() -> None:
    driver = begun()
    driver.write("/out/last.pt", 100 * MB, 0.5)
    driver.train(5)
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/out/last.pt", 7, opened)
    driver.spend(0.2)
    driver.file(FileEventKind.CLOSED, "/out/last.pt", 7, opened, 10 * MB, ns(0.2), errno=28)
    driver.train(20)
    driver.write("/out/last.pt", 100 * MB, 0.5)
    (warning,) = unsafe(trained(driver))
    assert warning.evidence[0].value == pytest.approx(0.2 + 20 * 0.05 + 0.5, abs=0.01)
