"""Workers that read the output of a command: they wait at a pipe, as idle ones do."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import LEAVES, Leaf, Level, Region, ThreadState
from trainprobe.model.event import ProcessEvent, ProcessEventKind, StackSeen, ThreadSample
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline

LOOP = "_worker_loop (torch/utils/data/_utils/worker.py:340)"
READS = (LOOP, "fetch (torch/utils/data/_utils/fetch.py:35)", "Pipe.read (webdataset/gopen.py:80)")
SELECTS = (LOOP, "fetch (torch/utils/data/_utils/fetch.py:35)", "read (train.py:8)", "select (selectors.py:415)")
IDLE = (LOOP, "Queue.get (multiprocessing/queues.py:113)", "_poll (multiprocessing/connection.py:440)")

WAITS = ("<module> (train.py:9)", "_try_get_data (torch/utils/data/dataloader.py:1200)", IDLE[-1])


def fed(stack: tuple[str, ...], command: str = "", *, running: bool = False, leaf: Leaf = Leaf.PIPE_READ) -> Rank:
    """Each step waits for workers that are at a pipe, or in another ``leaf``; ``command``: that one of them runs."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for pid in (2000, 2001):
        driver.fork(pid)
    if command:
        driver.events.append(ProcessEvent(ProcessEventKind.FORK, driver.now, 3000, 2000, "python"))
        arguments = (f"/usr/bin/{command}", "x")
        driver.events.append(ProcessEvent(ProcessEventKind.EXEC, driver.now, 3000, 2000, command, command=arguments))
    for step in range(400):
        driver.work(0.15 if leaf is Leaf.PIPE_READ else 0.4, leaf)
        driver.work(0.02)
        driver.fetch(0.25, Leaf.POLL)
        driver.spend(0.01)
        driver.backward()
        driver.optimizer()
        if step % 10 == 0:
            for pid, tid in pipeline.wants().stacks:
                own = pid == driver.pid
                seen = StackSeen(driver.now, pid, tid, WAITS if own else stack, running=running and not own)
                driver.events.append(seen)
            pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
            driver.events.clear()
    driver.exit()
    return rank_of(played(driver, pipeline), driver)


@pytest.mark.parametrize("stack", [READS, SELECTS])
def test_workers_that_wait_for_a_commands_output_are_not_idle(stack: tuple[str, ...]) -> None:
    rank = fed(stack)
    assert rank.bottlenecks[0].cause == "unknown"
    assert rank.bottlenecks[0].summary.startswith("workers wait at a pipe for another process, in ")
    assert "num_workers" in rank.bottlenecks[0].advice[0]
    adds_up(rank)


@pytest.mark.parametrize(("command", "cause"), [("aws", "data_storage"), ("ffmpeg", "unknown")])
def test_the_command_that_workers_run_is_named(command: str, cause: str) -> None:
    """What it reads over a network is storage."""
    rank = fed(READS, command)
    assert rank.bottlenecks[0].cause == cause
    assert rank.bottlenecks[0].summary.startswith(f"workers wait at a pipe for {command}")
    assert "Pipe.read (webdataset/gopen.py:80)" in rank.bottlenecks[0].summary
    adds_up(rank)


@pytest.mark.parametrize(("stack", "running"), [(IDLE, False), (READS, True)])
def test_workers_that_are_idle_or_run_are_not_told_to_wait_at_a_pipe(stack: tuple[str, ...], running: bool) -> None:
    rank = fed(stack, "aws", running=running)
    assert rank.bottlenecks[0].cause == "unknown"
    assert "pipe" not in rank.bottlenecks[0].summary


@pytest.mark.parametrize(
    ("inside", "cause", "summary"),
    [
        ("sync (fsspec/asyn.py:103)", "data_storage", "reading data over the network, in 6 of 6 looks at workers"),
        ("wait_for_turn (train.py:20)", "unknown", "workers were blocked in futex for"),
    ],
)
def test_workers_that_wait_for_a_thread_which_reads_from_a_network(inside: str, cause: str, summary: str) -> None:
    """fsspec (S3, GCS, HTTP) has a thread for that; its callers wait at a lock."""
    (found,) = fed((*READS[:2], inside, "Event.wait (python3.11/threading.py:629)"), leaf=Leaf.LOCK).bottlenecks
    assert (found.cause, found.summary[: len(summary)]) == (cause, summary)


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("batch", [0.1, 2.0])
@pytest.mark.parametrize("stack", [READS, SELECTS])
def test_a_worker_at_a_pipe_hangs_while_another_makes_a_dear_batch_as_usual(
    stack: tuple[str, ...], workers: int, batch: float
) -> None:
    """The other one fills its queue again. ``batch``: seconds that it takes."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for pid in range(2000, 2000 + workers):
        driver.fork(pid)

    def step() -> None:
        driver.work(batch)
        driver.fetches += 1
        driver.spend(0.2)
        driver.backward(0.08)
        driver.optimizer()

    for _ in range(40):
        step()
    played(driver, pipeline)
    begun = driver.now
    for look in range(24):
        driver.spend(0.1, Leaf.POLL, Region.FETCH)
        seen = []
        for pid in range(2000, 2000 + workers):
            works = pid == 2001 and look * 0.1 < batch
            run, leaf = (ThreadState.ON, Leaf.CPU) if works else (ThreadState.BLOCKED, Leaf.PIPE_READ)
            cells = (0,) * (len(Region) * LEAVES)
            seen.append(ThreadSample(pid, pid, Level.COARSE, run, Region.STEP, leaf, begun, 0, 0, 5, 0, 9, "", cells))
        if look == 8:
            driver.events.append(StackSeen(driver.now, 2000, 2000, stack))
        played(driver, pipeline, threads=(driver.sample(Leaf.POLL), *seen))
    for _ in range(20):
        step()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {"worker_hang": pytest.approx(2.4, rel=0.05)}
    assert "worker 2000 blocked in reading a pipe" in rank.stalls[-1].summary
    adds_up(rank)
