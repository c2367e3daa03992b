"""Workers of another loader live on beside the training's, as an evaluation's do, and are idle: they make no batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.builders.driver import Driver, moment, ns, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import CELLS, Leaf, Level, Region, ThreadState, cell
from trainprobe.model.event import StackSeen, ThreadSample
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.model.sample import HostSample
from trainprobe.pipeline import Pipeline

TRAINING, EVALUATION = tuple(range(2000, 2004)), tuple(range(3000, 3008))


class Training:
    """A driver with four workers, and perhaps eight idle ones, whose ledgers are read each second."""

    def __init__(self, idle: bool, others: Sequence[int] = EVALUATION) -> None:
        self.driver, self.pipeline = Driver(), Pipeline()
        self.cells = {pid: [0] * CELLS for pid in (*TRAINING, *(others if idle else ()))}
        self.driver.begin()
        for pid in self.cells:
            self.driver.fork(pid)

    def work(self, pid: int, seconds: float, leaf: Leaf) -> None:
        self.driver.work(seconds, leaf)
        self.cells[pid][cell(Region.STEP, leaf)] += ns(seconds)

    def look(self, leaf: Leaf = Leaf.POLL) -> None:
        """``leaf``: of the training's workers."""
        driver, idle = self.driver, ThreadState.BLOCKED
        samples = [
            ThreadSample(pid, pid, Level.COARSE, idle, Region.STEP, leaf if pid in TRAINING else Leaf.POLL,
                         driver.now - ns(0.1), 0, -1, -1, 0, 0, "", tuple(cells))
            for pid, cells in self.cells.items()
        ]  # fmt: skip
        threads = (driver.sample(), *samples)
        self.pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=threads, host=HostSample(cpus=16)))
        driver.events.clear()

    def train(self, steps: int, waits: float, each: float) -> None:
        driver, seen = self.driver, self.driver.now
        for step in range(steps):
            self.work(TRAINING[step % len(TRAINING)], each, Leaf.CPU)
            driver.fetch(waits, Leaf.POLL)
            driver.spend(0.02)
            driver.backward()
            driver.optimizer()
            if driver.now - seen >= NS:
                seen = driver.now
                self.look()

    def ended(self) -> Rank:
        self.driver.exit()
        return rank_of(played(self.driver, self.pipeline), self.driver)


@pytest.mark.parametrize("idle", [False, True])
def test_slow_workers_are_told_beside_idle_ones_of_another_loader(idle: bool) -> None:
    training = Training(idle)
    training.train(300, waits=0.05, each=0.36)
    rank = training.ended()
    assert rank.verdict.cause == "data_cpu"
    assert rank.ordinary.workers == len(TRAINING)
    assert any("instead of 4: a batch costs a worker 360 ms" in advice for advice in rank.bottlenecks[0].advice)
    adds_up(rank)


@pytest.mark.parametrize(
    ("others", "epoch", "line"),
    [
        (range(2004, 2012), 1000, "divide the data set into 8 shards or more: 8 of 12 workers got nothing to load"),
        (range(2009, 2017), 1000, "num_workers=8 instead of 4"),  # the first loader's queues have threads
        (range(2004, 2012), 4, "let the loader's iterator go on over the edge of epochs"),  # of four batches
    ],
)
def test_workers_that_live_on_without_a_shard_are_told(others: range, epoch: int, line: str) -> None:
    """They were started in a row with those that load, or are another loader's, or an epoch has too few batches."""
    training = Training(idle=True, others=others)
    for _ in range(400 // epoch + 1):
        training.train(min(400, epoch), waits=0.05, each=0.36)
        training.look()
        training.driver.fetches += 1  # finds the end
    (bottleneck,) = training.ended().bottlenecks
    assert bottleneck.cause == "data_cpu"
    assert bottleneck.advice[0].startswith(line)


@pytest.mark.parametrize("own", [0.05, 0.4])
@pytest.mark.parametrize(
    ("busy", "each", "cause"),
    [(10, 0.1, "data_cpu"), (6, 0.1, "unknown"), (10, 0.03, "unknown")],
)
def test_workers_that_work_while_they_are_waited_for_in_each_step(
    busy: int, each: float, cause: str, own: float
) -> None:
    """They live on, and an epoch is one batch: each in turn is the only one that works, and none makes a batch ahead.
    ``busy``: of ten looks that find the driver waiting, so many find it at work."""
    training = Training(idle=False)
    driver = training.driver
    for step in range(400):
        pid = TRAINING[step % len(TRAINING)]
        driver.fetches += 1  # finds the end
        training.work(pid, each, Leaf.CPU)
        driver.spend(0.05, Leaf.POLL, Region.FETCH)
        idle = replace(driver.sample(Leaf.PIPE_READ), level=Level.COARSE, run=ThreadState.BLOCKED)
        samples = {one: replace(idle, pid=one, tid=one, cells=tuple(cells)) for one, cells in training.cells.items()}
        if step // 5 % 10 < busy:
            samples[pid] = replace(samples[pid], run=ThreadState.ON, leaf=Leaf.CPU)
        waits = replace(driver.sample(Leaf.POLL), run=ThreadState.BLOCKED, region=Region.FETCH)
        if step % 5 == 0:
            played(driver, training.pipeline, threads=(waits, *samples.values()), host=HostSample(cpus=16))
        driver.fetch(0.05, Leaf.POLL)
        driver.spend(own / 2)
        driver.backward(own / 2)
        driver.optimizer()
    (bottleneck,) = training.ended().bottlenecks
    assert bottleneck.cause == cause
    assert bottleneck.seconds == pytest.approx(400 * 0.1, rel=0.05)
    assert cause == "unknown" or bottleneck.advice[0].startswith("let the loader's iterator go on over the edge")


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize(("blocked", "cause"), [(TRAINING, "data_storage"), (TRAINING[:1], "worker_hang")])
def test_workers_that_wait_for_a_network_at_once(idle: bool, blocked: tuple[int, ...], cause: str) -> None:
    training = Training(idle)
    training.train(150, waits=0.0005, each=0.12)
    for _ in range(4):
        training.driver.spend(0.5, Leaf.POLL, Region.FETCH)
        for pid in blocked:
            training.work(pid, 0.45, Leaf.SOCKET)
        training.look(Leaf.SOCKET)
    training.driver.fetches += 1
    training.train(20, waits=0.0005, each=0.12)
    rank = training.ended()
    assert [stall.cause for stall in rank.stalls] == [cause]
    adds_up(rank)


@pytest.mark.parametrize(("slow", "cause"), [(0.3, "data_cpu"), (0.12, "unknown")])
def test_one_of_two_loaders_is_too_slow(slow: float, cause: str) -> None:
    """Three workers of the first are mostly idle; the second has a single one, which is never, or for half of the time:
    then nobody knows what is waited for."""
    training = Training(idle=False)
    driver, seen = training.driver, training.driver.now
    for step in range(300):
        training.work(TRAINING[step % 3], 0.02, Leaf.CPU)
        training.work(TRAINING[3], slow, Leaf.CPU)
        driver.fetch(0.001, Leaf.POLL)
        driver.fetch(0.25, Leaf.POLL)
        driver.spend(0.02)
        driver.backward()
        driver.optimizer()
        if driver.now - seen >= NS:
            seen = driver.now
            training.look()
    rank = training.ended()
    (bottleneck,) = rank.bottlenecks
    assert bottleneck.cause == cause
    assert bottleneck.seconds == pytest.approx(300 * 0.25, rel=0.1)
    assert not any("single batches are late" in advice for advice in bottleneck.advice)
    adds_up(rank)


def test_idle_workers_of_another_loader_are_not_asked_what_they_do() -> None:
    training = Training(idle=True)
    training.train(200, waits=0.05, each=0.36)
    driver, asked = training.driver, set[int]()
    for _ in range(100):
        training.train(20, waits=0.05, each=0.36)
        for pid, tid in training.pipeline.wants().stacks:
            driver.events.append(StackSeen(driver.now, pid, tid, ("<module> (train.py:9)", "decode (data.py:3)")))
            asked.add(pid)
    assert asked & set(TRAINING)
    assert not asked & set(EVALUATION)


def test_a_worker_that_hangs_is_its_trainings_own_however_long_that_goes_on() -> None:
    """The others work on until all batches ahead are made; no step ends meanwhile."""
    training = Training(idle=False)
    training.train(200, waits=0.0005, each=0.12)
    for second in range(40):
        training.driver.spend(1.0, Leaf.POLL, Region.FETCH)
        for pid in TRAINING[1:] if second < 30 else ():
            training.work(pid, 0.5, Leaf.CPU)
        training.look()
        (state,) = training.pipeline.runs["train.py-0123abcd"].ranks.by_pid[training.driver.pid]
        assert state.loader_workers == len(TRAINING)


def test_workers_of_a_training_that_needs_few_batches_are_its_own() -> None:
    """Each makes one in eight seconds."""
    training = Training(idle=False)
    for _ in range(8):
        training.train(1, waits=0.001, each=0.1)
    for step in range(40):
        training.work(TRAINING[step % len(TRAINING)], 0.1, Leaf.CPU)
        training.driver.fetch(0.001, Leaf.POLL)
        for _ in range(2):
            training.driver.spend(1.0)
            training.look()
        training.driver.backward()
        training.driver.optimizer()
    rank = training.ended()
    assert rank.ordinary.workers == len(TRAINING)
    assert not rank.bottlenecks
