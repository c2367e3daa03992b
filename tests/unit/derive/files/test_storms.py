"""Many small calls on many logs in one step; bytes that go through shared memory to where they belong."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, ns, played
from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.files.saves import Saves
from trainprobe.model.cells import Leaf
from trainprobe.model.event import FileEvent, FileEventKind, StepFile
from trainprobe.model.report import Rank


def rank_after(calls: int, cpu: float) -> Rank:
    """A training that in one step makes ``calls`` calls on logs, of which only one has a name, and spends ``cpu``."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.write("/out/metric_0.log", 1000, write=0.05, created=False)
    driver.spend(0.15, Leaf.FILE_META)
    driver.files[1, 7] = StepFile(1, 7, ns(0.05), 0, 1000, calls // 10)
    driver.files[0, 0] = StepFile(0, 0, ns(0.15), 0, 9000, calls - calls // 10)
    driver.spend(cpu)
    driver.train(20)
    (run,) = played(driver).report(moment(driver.now)).runs
    return run.ranks[0]


def test_a_storm_of_calls_on_many_logs_is_logging_with_the_cpu_between_them() -> None:
    rank = rank_after(calls=20_000, cpu=0.8)
    (stall,) = rank.stalls
    assert stall.shares == {"logging": pytest.approx(1.0, abs=0.02)}
    assert rank.ledger["logging"] == pytest.approx(0.2, abs=0.01), "the state is what the kernel saw"
    told = {one.what: one.value for one in stall.evidence}
    assert told["calls on logs"] == 20_000
    assert told["training thread on the CPU between them"] == pytest.approx(0.8, abs=0.02)


def test_work_beside_a_few_log_lines_is_not_logging() -> None:
    rank = rank_after(calls=300, cpu=0.8)
    (stall,) = rank.stalls
    assert stall.cause == "cpu_bound"
    assert stall.shares["cpu_bound"] == pytest.approx(0.8, abs=0.02)


def test_a_temporary_file_in_shared_memory_is_what_it_is_moved_to() -> None:
    saves = Saves()
    common = {"pid": 1, "tid": 1, "dev": 9, "ino": 5}
    written = FileEvent(FileEventKind.CLOSED, 2000, path="/dev/shm/tmpab12", bytes=1 << 24, **common)
    moved = FileEvent(
        FileEventKind.RENAMED, 3000, path="/dev/shm/tmpab12", new_path="/out/step-10.pt", errno=18, **common
    )
    saves.add_event(written)
    saves.add_event(moved)
    assert saves.class_of(9, 5, 1 << 24)[0] == FileClass.CHECKPOINT


@pytest.mark.parametrize(("between", "counts"), [(0.0001, True), (0.004, False)])
def test_making_the_lines_of_a_storm_in_every_step_counts_too(between: float, counts: bool) -> None:
    """Ten short lines in each step: Python's way from call to call is part of it, a computation between two is not."""
    driver, each = Driver(), 0.0006
    driver.begin()
    for _ in range(300):
        for number in range(10):
            driver.write(f"/out/metric_{number}.log", 40, each, gap=between, ino=100 + number, created=False)
        driver.step()
    report = played(driver).report(moment(driver.now))
    rank = report.runs[0].ranks[0]
    told = sum(one.seconds for one in rank.bottlenecks if one.cause == "logging")
    assert told / rank.steps.count == pytest.approx(10 * (each + (between if counts else 0.0)), rel=0.1)
