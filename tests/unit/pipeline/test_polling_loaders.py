"""A loader other than torch's, as batchgenerators has it: it sleeps until one of its processes has a batch."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf
from trainprobe.model.event import StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.model.sample import HostSample
from trainprobe.pipeline import Pipeline

ASKS = (
    "<module> (train.py:9)",
    "MultiThreadedAugmenter.__next__ (batchgenerators/multi_threaded_augmenter.py:182)",
    "MultiThreadedAugmenter.__get_next_item (batchgenerators/multi_threaded_augmenter.py:170)",
)
PAUSES = ("<module> (train.py:9)", "keep_rate (train.py:3)")
WORKERS = 4


def polled(late: bool, works: float, leaf: Leaf = Leaf.CPU, stack: tuple[str, ...] = ASKS) -> Rank:
    """The training sleeps 70 ms in each step, or a second in some; each worker works for such a part of that."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for pid in range(2000, 2000 + WORKERS):
        driver.fork(pid)
    for step in range(1200):
        slept = 0.07 if not late else 1.0 if step % 20 == 19 else 0.0
        driver.work(slept * WORKERS * works, leaf)
        driver.spend(slept, Leaf.SLEEP)
        if step % 20 == 19:
            threads = (driver.sample(Leaf.SLEEP),)
            pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=threads, host=HostSample(cpus=16)))
            driver.events.clear()
            for pid, tid in pipeline.wants().stacks:
                if pid == driver.pid:
                    driver.events.append(StackSeen(driver.now, pid, tid, stack))
        driver.spend(0.02)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    adds_up(rank)
    return rank


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.CPU, "data_cpu"), (Leaf.FILE_READ, "data_storage")])
def test_a_loader_that_sleeps_until_a_batch_is_there_is_told_by_what_its_processes_do(
    leaf: Leaf, cause: str, late: bool
) -> None:
    rank = polled(late, 0.9, leaf)
    assert rank.lost == {cause: pytest.approx(60.0 if late else 84.0, rel=0.06)}
    assert rank.bound.by == "input"
    advice = (rank.stalls or rank.bottlenecks)[0].advice
    assert not any(line.startswith("read it in another thread or process") for line in advice)


@pytest.mark.parametrize("late", [False, True])
def test_a_loader_that_sleeps_while_its_processes_are_idle_waits_for_something_unknown(late: bool) -> None:
    rank = polled(late, 0.0)
    assert rank.lost == {"unknown": pytest.approx(60.0 if late else 84.0, rel=0.06)}
    assert "no evidence for a cause; seen: " in rank.verdict.summary


def test_a_pause_beside_processes_that_work_is_the_trainings_own() -> None:
    """In each step it is no loss, in some steps it is one that is told."""
    assert polled(False, 0.9, stack=PAUSES).lost == {}
    rank = polled(True, 0.9, stack=PAUSES)
    assert rank.lost == {"unknown": pytest.approx(60.0, rel=0.06)}
    assert "a pause that the training's own code asks for" in rank.stalls[0].summary
