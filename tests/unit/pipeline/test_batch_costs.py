"""What a batch costs a worker, where late ones are single ones and where all are dear."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.advise.settings import advice
from trainprobe.model.cells import LEAVES, Leaf, Level, Region, ThreadState
from trainprobe.model.event import ThreadSample
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank, Run
from trainprobe.model.sample import HostSample
from trainprobe.pipeline import Pipeline


@pytest.mark.parametrize(("every", "each"), [(50, 0.004), (5, 0.36)])
def test_single_late_batches_say_nothing_of_the_others(every: int, each: float) -> None:
    """On a GPU with steps of 10 ms four batches of 1.8 s of 220 made the mean one ten times as dear: more workers were
    advised, which wait for a late batch as two do."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    for number in range(400):
        late = 1.8 if number % every == every - 1 and number > 40 else 0.0
        driver.work(late + 0.004)
        driver.fetch(late + 0.0002, Leaf.POLL)
        driver.spend(0.008)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["data_cpu"] > 10
    assert rank.ordinary.worker_cpu_seconds_per_batch == pytest.approx(each, rel=0.15)


def test_a_slow_first_epoch_stays_slow_storage_while_later_ones_compute() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    lost, pipeline = [], Pipeline()
    for epoch in range(6):
        for _ in range(200):
            driver.work(0.05 if epoch == 0 else 0.08)
            driver.work(0.3 if epoch == 0 else 0.0, Leaf.FILE_READ)
            driver.fetch(0.15 if epoch == 0 else 0.001, Leaf.POLL)
            driver.spend(0.02)
            driver.backward(0.03)
            driver.optimizer()
        lost.append(rank_of(played(driver, pipeline), driver).lost)
        driver.events.clear()
    assert lost[-1]["data_storage"] == pytest.approx(lost[0]["data_storage"], rel=0.02)
    assert lost[-1]["data_storage"] > 4 * lost[-1]["data_cpu"]


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.CPU, "data_cpu"), (Leaf.FILE_READ, "data_storage")])
@pytest.mark.parametrize("working", [True, False])
@pytest.mark.parametrize("more", [0.0, 0.001])
def test_a_worker_that_has_batches_left_when_the_others_have_none_is_waited_for(
    leaf: Leaf, cause: str, working: bool, more: float
) -> None:
    """Its data set divides itself among the workers (IterableDataset). No batch takes ``more`` work than usual that is
    worth to be told."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for pid in range(2000, 2004):
        driver.fork(pid)
    for _ in range(60):
        driver.work(1.0, leaf)
        driver.step()
    played(driver, pipeline)
    for _ in range(10):
        begun = driver.now
        for _ in range(9):
            driver.work(0.1 + more if working else 0.0, leaf)
            driver.spend(0.1, Leaf.POLL, Region.FETCH)
            own = 0 if not working else driver.now - begun
            cells = tuple(own if place == leaf else 0 for place in range(5 * LEAVES))
            run = ThreadState.ON if leaf is Leaf.CPU and working else ThreadState.BLOCKED
            does = leaf if working else Leaf.POLL
            one = ThreadSample(2000, 2000, Level.COARSE, run, Region.STEP, does, begun, 0, 0, 5, 0, 9, "", cells)
            played(driver, pipeline, threads=(driver.sample(Leaf.POLL), one))
        driver.work(0.1 if working else 1.0, leaf)
        driver.step()
    driver.train(3)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {cause if working else "unknown": pytest.approx(9.0, rel=0.05)}
    told = {stall.summary.partition(";")[0] for stall in rank.stalls if stall.cause == "data_cpu"}
    assert not told or all("no more than on other batches" in one for one in told)


@pytest.mark.parametrize("leaf", [Leaf.FILE_READ, Leaf.READ_CPU])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_training_reads_in_no_fetch_is_no_matter_of_its_loader(leaf: Leaf, workers: int) -> None:
    """The next stage's data set is read, while its workers keep up: batches made ahead, and workers, do not help."""
    driver = Driver()
    driver.begin()
    for worker in range(workers):
        driver.fork(2000 + worker)
    for _ in range(4):
        for _ in range(50):
            driver.work(0.01 if workers else 0.0)
            driver.fetch(0.0001, inline=not workers)
            driver.spend(0.024)
            driver.backward()
            driver.optimizer()
        driver.spend(1.5, leaf)
    driver.train(2)
    pipeline = played(driver)
    pipeline.step(Frame(moment(driver.now), host=HostSample(8)))
    rank = rank_of(pipeline, driver)
    cause = "data_storage" if leaf is Leaf.FILE_READ else "data_inline"
    assert rank.lost == {cause: pytest.approx(4 * 1.5, rel=0.02)}
    for stall in rank.stalls:
        assert stall.advice[0].startswith("read it in another thread or process")
        assert not any("prefetch_factor" in line or "num_workers" in line for line in stall.advice)
    run = pipeline.report(moment(driver.now)).runs[0]
    proposed = {setting.name: setting.proposed for setting in advice(run, rank, 8).settings}
    assert (proposed["num_workers"], proposed["prefetch_factor"]) == (None, None)


def test_what_the_training_reads_in_its_fetches_is_its_loaders() -> None:
    driver = Driver()
    driver.begin()
    for place in range(200):
        driver.fetch(1.5 if place % 50 == 49 else 0.001, Leaf.READ_CPU, inline=True)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.train(2)
    (first, *_) = rank_of(played(driver), driver).stalls
    assert first.cause == "data_inline"
    assert not any("another thread" in line for line in first.advice)


def of_shards(shards: int, workers: int, *, evaluates: bool = False) -> Rank:
    """Epochs of an iterable data set, whose workers without a shard end at once. A batch costs one of them 110 ms, and
    each step but its data takes 46 ms."""
    driver, pipeline, pid = Driver(), Pipeline(), 2000
    driver.begin()
    for _ in range(3):
        if evaluates:  # with workers of its own
            for worker in (9000 + pid, 9001 + pid):
                driver.fork(worker)
            driver.spend(0.4, region=Region.NO_GRAD)
            for worker in (9000 + pid, 9001 + pid):
                driver.die(worker)
        for worker in range(pid, pid + workers):
            driver.fork(worker)
            driver.spend(0.01)
        for step in range(200):
            driver.work(0.11)
            driver.fetch(max(0.001, 0.11 / shards - 0.046), Leaf.POLL)
            if not step:
                for worker in range(pid + shards, pid + workers):
                    driver.die(worker)
            driver.step(0.02)
            driver.fetches -= 1
        driver.fetches += 1
        for worker in range(pid, pid + min(shards, workers)):
            driver.die(worker)
        pid += workers
    pipeline.step(Frame(moment(driver.now), tuple(driver.events), host=HostSample(cpus=16)))
    driver.events.clear()
    driver.exit()
    return rank_of(played(driver, pipeline), driver)


@pytest.mark.parametrize(
    ("shards", "workers", "line"),
    [
        (1, 4, "divide the data set into 3 shards or more: 3 of 4 workers got nothing to load"),
        (1, 1, "num_workers=3 instead of 1"),
        (1, 2, "divide the data set into 3 shards or more: 1 of 2 workers got nothing to load"),
    ],
)
@pytest.mark.parametrize("evaluates", [False, True])
def test_workers_without_a_shard_are_no_reason_for_more(shards: int, workers: int, line: str, evaluates: bool) -> None:
    rank = of_shards(shards, workers, evaluates=evaluates)
    told = next(one for one in rank.bottlenecks if one.cause == "data_cpu")
    assert told.advice[0].startswith(line)
    run = Run("train.py-1", [], "ann", "/", 0.0, None, {}, [rank])
    (setting,) = (one for one in advice(run, rank, 16).settings if one.name == "num_workers")
    assert str(setting.now) == str(workers)
    assert (setting.proposed is None) == (workers > shards)
    assert ("a data set of 3 shards or more" in str(setting.reason)) == (workers > shards)
