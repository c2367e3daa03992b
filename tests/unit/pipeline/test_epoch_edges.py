"""The edge of an epoch: a new iterator, workers that start again, a sampler that shuffles, and the first batch."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import ProcessEvent, ProcessEventKind, StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.model.sample import HostSample
from trainprobe.pipeline import Pipeline

SAMPLER = ("<module> (train.py:9)", "DataLoader.__iter__ (torch/utils/data/dataloader.py:440)")
SHUFFLES = (*SAMPLER, "RandomSampler.__iter__ (torch/utils/data/sampler.py:170)")
LOADS = ("_worker_loop (torch/utils/data/_utils/worker.py:340)", "open_index (train.py:5)", "load (train.py:3)")
FETCHES = (LOADS[0], "fetch (torch/utils/data/_utils/fetch.py:52)")
OPENS = (*FETCHES, "__getitem__ (train.py:20)", "open (train.py:12)")
COLLATES = (*FETCHES, "DataCollatorWithPadding.__call__ (transformers/data_collator.py:271)")
PADS = (*FETCHES, "pad (train.py:25)")
FILLS = (*FETCHES, "__iter__ (train.py:30)", "shuffle (train.py:25)")
INDEXES = (
    LOADS[0],
    "create_fetcher (torch/dataloader.py:90)",
    "__init__ (torch/fetch.py:21)",
    "Shards.__iter__ (dataloader.py:3)",
    "shuffle (a.py:25)",
)
COUNT = 4
PICKLES = (*SAMPLER, "Popen._launch (popen_spawn_posix.py:62)")


def renew(driver: Driver, first: int, count: int, apart: float = 0.01) -> None:
    """The workers end, ten numbers before, and as many new ones are started."""
    for pid in range(first - 10, first - 10 + count):
        driver.die(pid)
    for pid in range(first, first + count):
        driver.fork(pid)
        driver.spend(apart)


def started(count: int = 4) -> Driver:
    driver = Driver()
    driver.begin()
    for pid in range(2000, 2000 + count):
        driver.fork(pid)
    driver.train(40)
    return driver


def test_a_sampler_that_shuffles_behind_the_forks_is_no_start_of_workers() -> None:
    """Workers that live on would not end that: each new iterator asks its sampler again."""
    driver = started()
    for first in (2010, 2020, 2030):
        renew(driver, first, 4)
        driver.spend(3.0)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, SHUFFLES, running=True))
        driver.fetch(0.4, Leaf.POLL)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["cpu_bound"] == pytest.approx(9.0, abs=0.3)
    assert rank.lost["worker_startup"] == pytest.approx(1.3, abs=0.3)
    assert "RandomSampler.__iter__" in rank.stalls[-1].summary
    adds_up(rank)


@pytest.mark.parametrize("count", [4, 1])
@pytest.mark.parametrize("within", [(), ("train_one_epoch (engine.py:9)", "MetricLogger.log_every (misc.py:30)")])
def test_what_the_training_computes_to_start_its_workers_is_their_start(within: tuple[str, ...], count: int) -> None:
    """A data set that is pickled for each. Of a single worker only a stack shows it."""
    stack = (PICKLES[0], *within, *PICKLES[1:])
    driver = started(count)
    for first in (2010, 2020):
        driver.fetches += 1
        renew(driver, first, count, 0.5)
        for _ in range(2):
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, stack, running=True))
        driver.fetch(0.4, Leaf.POLL)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == pytest.approx({"worker_startup": 2 * (0.5 * count + 0.4)}, abs=0.1)


def fed(steps: int, driver: Driver) -> None:
    """Steps for which each worker has a batch ready that took it 0.16 s."""
    for _ in range(steps):
        driver.work(0.16)
        driver.step()


def edges(
    start: float, work: float, *, renewed: bool = True, spawned: bool = False, stack: tuple[str, ...] = ()
) -> Rank:
    """Five epochs. At the edge of each the workers start within ``start``, and then each works for so long on its first
    batch; ``stack``: of a worker, while it does."""
    driver = Driver()
    driver.begin()
    for pid in range(2000, 2000 + COUNT):
        driver.fork(pid)
    pipeline = Pipeline()
    pipeline.step(Frame(moment(driver.now), tuple(driver.events), host=HostSample(cpus=8)))
    driver.events.clear()
    fed(60, driver)
    for first in range(2010, 2050, 10):
        driver.fetches += 1  # the epoch's end is found
        if renewed:
            renew(driver, first, COUNT, 0.0)
        for pid in range(first, first + COUNT) if spawned else ():
            command = ("python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork")
            driver.events.append(
                ProcessEvent(ProcessEventKind.EXEC, driver.now, pid, driver.pid, "python", command=command)
            )
        driver.spend(start, Leaf.POLL, Region.FETCH)
        if stack:
            driver.events.append(StackSeen(driver.now, first, first, stack))
        driver.work(COUNT * work)
        driver.fetch(work, Leaf.POLL)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
        fed(60, driver)
    driver.exit()
    return rank_of(played(driver, pipeline), driver)


def test_the_first_batch_of_an_epoch_is_no_start_of_workers() -> None:
    """Workers that live on make it anew, too: what they would save is the start alone."""
    rank = edges(0.3, 0.16)
    assert rank.lost == pytest.approx({"worker_startup": 4 * 0.3, "data_cpu": 4 * 0.16}, abs=0.1)
    saves = "persistent_workers=True keeps the workers between epochs of one DataLoader; saves 299 ms per epoch"
    assert rank.stalls[0].advice == [saves]
    adds_up(rank)


@pytest.mark.parametrize("steps", [2, 10])
def test_what_kept_workers_save_is_told_of_one_epoch(steps: int) -> None:
    """Where epochs are so short that their stalls are one."""
    driver, first = Driver(), 2000
    driver.begin()
    for epoch in range(80 // steps):
        for worker in range(COUNT if epoch else 0):
            driver.die(first - COUNT + worker)
        for worker in range(COUNT):
            driver.fork(first + worker)
        first += COUNT
        driver.spend(0.4, Leaf.POLL, Region.FETCH)
        driver.train(steps)
        driver.fetches += 1
    driver.train(3)
    rank = rank_of(played(driver), driver)
    assert rank.lost["worker_startup"] > 0.4 * (80 // steps - 6)
    saved = [line.rpartition("; saves ")[2] for stall in rank.stalls for line in stall.advice if "saves" in line]
    assert saved
    assert set(saved) == {"400 ms per epoch"}


@pytest.mark.parametrize("stack", [FILLS, INDEXES])
def test_a_data_set_that_fills_a_buffer_at_each_epoch_is_no_start_of_workers(stack: tuple[str, ...]) -> None:
    rank = edges(0.1, 4.0, stack=stack)
    assert rank.lost["data_cpu"] == pytest.approx(16.0, abs=0.6)
    assert rank.lost.get("worker_startup", 0.0) < 0.8


@pytest.mark.parametrize(
    ("spawned", "stack"),
    [(True, ()), (False, LOADS), (False, OPENS), (False, ()), (True, COLLATES), (False, COLLATES), (False, PADS)],
)
def test_what_new_workers_do_before_their_first_batch_is_their_start(spawned: bool, stack: tuple[str, ...]) -> None:
    """They import everything again, run worker_init_fn, open files when they are first asked for a sample, or nobody
    knows what they do. A batch is what it is for all."""
    rank = edges(0.1, 1.2, spawned=spawned, stack=stack)
    assert rank.lost["worker_startup"] == pytest.approx(4 * (1.3 - 0.16), abs=0.2)
    assert [stall.cause for stall in rank.stalls] == ["worker_startup"] * 4


def test_batches_made_ahead_do_not_cover_the_first_one_of_an_epoch() -> None:
    rank = edges(0.0, 0.8, renewed=False)
    assert rank.lost == pytest.approx({"data_cpu": 4 * 0.8}, abs=0.2)
    assert not any("prefetch_factor" in advice for stall in rank.stalls for advice in stall.advice)


def test_batches_made_ahead_cover_a_late_one_in_the_midst_of_an_epoch() -> None:
    driver = started()
    played(driver, pipeline := Pipeline(), host=HostSample(cpus=8))
    for _ in range(4):
        fed(60, driver)
        driver.work(0.4)
        driver.fetch(0.4, Leaf.POLL)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    fed(20, driver)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == pytest.approx({"data_cpu": 1.6}, abs=0.1)
    assert rank.stalls[0].advice[0].startswith("prefetch_factor=")


@pytest.mark.parametrize("batches", [2, 5, 30])
def test_the_wait_at_one_edge_is_told_also_where_short_epochs_make_one_stall(batches: int) -> None:
    driver = started()
    for _ in range(20):
        driver.fetches += 1  # finds the end of the loader
        driver.work(0.6)
        driver.spend(0.15, Leaf.POLL, Region.FETCH)
        driver.train(batches)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert {stall.cause for stall in rank.stalls} == {"data_cpu"}
    assert "each new one waits 150 ms until" in rank.stalls[-1].advice[0]


@pytest.mark.parametrize("edge", [False, True])
@pytest.mark.parametrize("steps", [1, 6])
def test_a_batch_that_several_steps_train_on_is_no_edge_of_an_epoch(steps: int, edge: bool) -> None:
    """A critic takes more steps than what it judges; a batch is fetched for all of them."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for place in range(80):
        if place > 20 and place % 20 == 0:
            driver.fetches += edge
            driver.work(1.0)
            driver.spend(1.0, Leaf.POLL, Region.FETCH)
        driver.step()
        for _ in range(steps - 1):
            driver.spend(0.025)
            driver.backward()
            driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [stall.cause for stall in rank.stalls] == ["data_cpu"] * 2
    assert all(("edge of epochs" in stall.advice[0]) == edge for stall in rank.stalls)


@pytest.mark.parametrize(("edges", "fetches", "stalls"), [(True, True, 20), (False, False, 20), (False, True, 1)])
def test_waits_far_apart_are_one_stall_only_where_workers_are_late_in_turn(
    edges: bool, fetches: bool, stalls: int
) -> None:
    """Each sixth step waits for a batch: at the edges of epochs, or for environments that are stepped between updates.
    Four workers that are slower than the training make as many batches ahead, and are late again."""
    driver = Driver()
    driver.begin()
    for pid in range(2000, 2004):
        driver.fork(pid)
    for step in range(40 + 20 * 6):
        if step >= 40 and step % 6 == 4:
            driver.fetches += edges
            driver.work(0.6)
            driver.spend(0.15, Leaf.POLL, Region.FETCH if fetches else Region.STEP)
        if fetches:
            driver.fetch()
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {"data_cpu": pytest.approx(20 * 0.15, rel=0.02)}
    assert len(rank.stalls) == stalls
    assert stalls == 1 or rank.stalls[-1].period.steps == 6  # type: ignore[union-attr]


def short_epochs(
    start: float,
    batch: float,
    *,
    micro: int = 1,
    step: float = 0.05,
    spawned: bool = False,
    stack: tuple[str, ...] = (),
) -> Rank:
    """One step an epoch, of ``micro`` batches, and four new workers for each: each starts within ``start``, and makes a
    batch where there is one for it."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for first in range(2000, 2000 + 80 * COUNT, COUNT):
        for pid in range(first, first + COUNT):
            if first > 2000:
                driver.die(pid - COUNT)
            driver.fork(pid)
            if spawned:
                command = ("python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork")
                driver.events.append(
                    ProcessEvent(ProcessEventKind.EXEC, driver.now, pid, driver.pid, "python", command=command)
                )
        driver.work(COUNT * start + micro * batch)
        driver.spend(start, Leaf.POLL, Region.FETCH)
        if stack:
            driver.events.append(StackSeen(driver.now, first, first, stack, running=True))
        for place in range(micro):
            driver.fetch(0.0 if place else batch, Leaf.POLL)
            driver.spend(step / 2)
            driver.backward(step / 2)
        driver.optimizer()
        driver.fetches += 1  # the epoch's end is found
        pipeline = played(driver, pipeline, host=HostSample(cpus=8))
    driver.exit()
    return rank_of(played(driver, pipeline), driver)


JUDGED = 71
"""Epochs behind the start-up, which the first eight steps and the run's first workers belong to."""


@pytest.mark.parametrize("spawned", [False, True])
def test_workers_that_start_anew_in_each_ordinary_step_are_told(spawned: bool) -> None:
    """One batch an epoch: no step is late."""
    start = 1.2 if spawned else 0.05
    rank = short_epochs(start, 0.001, spawned=spawned)
    assert rank.lost == {"worker_startup": pytest.approx(JUDGED * start, rel=0.1)}
    assert [one.cause for one in rank.bottlenecks] == ["worker_startup"]
    assert (
        rank.bottlenecks[0]
        .advice[0]
        .startswith("persistent_workers=True keeps the workers between epochs of one DataLoader; saves")
    )
    adds_up(rank)


@pytest.mark.parametrize("micro", [1, 4])
@pytest.mark.parametrize("stack", [(), COLLATES])
def test_a_batch_that_takes_new_workers_long_in_each_step_is_no_start(micro: int, stack: tuple[str, ...]) -> None:
    """One batch an epoch, or one for each worker: no more workers would make them sooner."""
    rank = short_epochs(0.05, 1.0, micro=micro, stack=stack)
    assert rank.verdict.cause == "data_cpu"
    assert rank.lost["data_cpu"] == pytest.approx(JUDGED * 1.0, rel=0.1)
    assert rank.lost.get("worker_startup", 0.0) < JUDGED * 0.06
    assert "let the loader's iterator go on over the edge of epochs" in rank.bottlenecks[0].advice[0]
    assert not any("num_workers" in line for line in rank.bottlenecks[0].advice)
    adds_up(rank)


def test_a_start_of_workers_that_is_a_small_part_of_a_step_is_none_of_its_losses() -> None:
    rank = short_epochs(0.05, 0.005, step=4.0)
    assert (rank.lost, rank.verdict.kind) == ({}, "none")


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.CPU, "data_cpu"), (Leaf.FILE_READ, "data_storage")])
def test_a_late_batch_of_workers_that_start_in_each_step_is_no_start(leaf: Leaf, cause: str) -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for epoch in range(80):
        first, late = 2000 + COUNT * epoch, 2.0 if epoch > 30 and epoch % 10 == 0 else 0.0
        for pid in range(first, first + COUNT):
            if epoch:
                driver.die(pid - COUNT)
            driver.fork(pid)
        driver.work(COUNT * 0.05)
        driver.work(late, leaf)
        driver.spend(0.05, Leaf.POLL, Region.FETCH)
        driver.fetch(late, Leaf.POLL)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
        driver.fetches += 1
        pipeline = played(driver, pipeline)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert {stall.cause for stall in rank.stalls} == {cause}
    assert rank.lost[cause] == pytest.approx(4 * 2.0, rel=0.1)


@pytest.mark.parametrize("processes", [1, 8])
def test_processes_that_are_started_in_each_step_beside_a_loader_are_none_of_its_workers(processes: int) -> None:
    """One that saves and lives on for a while, or a pool that ends in the step. Nobody knows what it waits for."""
    driver, pipeline = started(), Pipeline()
    for step in range(120):
        pids = range(3000 + 8 * step, 3000 + 8 * step + processes)
        for pid in pids:
            driver.fork(pid)
        for pid in pids if processes > 1 else (3000 + 8 * (step - 2),) if step > 1 else ():
            driver.die(pid)
        driver.fetch(0.02, Leaf.POLL)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
        pipeline = played(driver, pipeline)
    driver.exit()
    assert "worker_startup" not in rank_of(played(driver, pipeline), driver).lost
