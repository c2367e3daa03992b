"""From frames to the report: each cause is named, its seconds are right, and everything adds up."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.builders.driver import START, Driver, moment, ns, played
from trainprobe.model.cells import Leaf, Level, Region, ThreadState
from trainprobe.model.event import FileEventKind, StackSeen, StepFile
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.model.sample import HostSample
from trainprobe.pipeline import Pipeline


def rank_of(pipeline: Pipeline, driver: Driver) -> Rank:
    return pipeline.report(moment(driver.now)).runs[0].ranks[0]


def adds_up(rank: Rank) -> None:
    phases = sum(rank.counters.phase_seconds.values())
    assert sum(rank.ledger.values()) == pytest.approx(rank.wall_seconds, abs=1e-6)
    assert rank.productive_seconds + phases + sum(rank.lost.values()) == pytest.approx(rank.wall_seconds, abs=1e-6)
    for stall in rank.stalls:
        assert sum(stall.shares.values()) == pytest.approx(stall.seconds)


def checkpoint(driver: Driver) -> None:
    driver.write("/out/model.pth", 200_000_000, 0.6, 0.5, 0.1)


def unnamed_checkpoint(driver: Driver) -> None:
    driver.write("/out/weights", 200_000_000, 1.2)


def renamed_checkpoint(driver: Driver) -> None:
    driver.write("/out/tmpk3j2", 200_000_000, 0.9, 0.3)
    driver.file(FileEventKind.RENAMED, "/out/tmpk3j2", new_path="/out/weights-final", created=False)


def logging(driver: Driver) -> None:
    driver.write("/out/train.log", 4000, 0.1, 1.1, created=False)


def data_cpu(driver: Driver) -> None:
    driver.work(1.2)
    driver.fetch(1.2, Leaf.POLL)
    driver.fetches -= 1


def data_storage(driver: Driver) -> None:
    driver.work(1.1, Leaf.FILE_READ)
    driver.work(0.05, Leaf.CPU)
    driver.fetch(1.2, Leaf.POLL)
    driver.fetches -= 1


def cpu_bound(driver: Driver) -> None:
    driver.spend(1.2)


def gc_pause(driver: Driver) -> None:
    driver.spend(1.15, Leaf.COLLECTOR)
    driver.spend(0.05)


def gc_pause_elsewhere(driver: Driver) -> None:
    driver.collected_ns += 1_250_000_000  # some of it before the driver waits for the interpreter
    driver.spend(1.2, Leaf.LOCK)


def suspended(driver: Driver) -> None:
    driver.spend(1.2, Leaf.STOPPED)


def contention(driver: Driver) -> None:
    driver.spend(1.2, Leaf.RUNQUEUE)


def throttled(driver: Driver) -> None:
    driver.spend(1.2, Leaf.THROTTLED)


def swap(driver: Driver) -> None:
    driver.spend(0.8, Leaf.SWAP)
    driver.spend(0.4, Leaf.RECLAIM)


def network(driver: Driver) -> None:
    driver.spend(1.2, Leaf.SOCKET)


def sleep(driver: Driver) -> None:
    driver.spend(1.2, Leaf.SLEEP)


FAULTS: list[tuple[str, Callable[[Driver], None]]] = [
    ("checkpoint", checkpoint),
    ("checkpoint", unnamed_checkpoint),
    ("checkpoint", renamed_checkpoint),
    ("logging", logging),
    ("data_cpu", data_cpu),
    ("data_storage", data_storage),
    ("cpu_bound", cpu_bound),
    ("gc_pause", gc_pause),
    ("gc_pause", gc_pause_elsewhere),
    ("suspended", suspended),
    ("cpu_contention", contention),
    ("cpu_throttled", throttled),
    ("swap", swap),
    ("network", network),
    ("unknown", sleep),
]


@pytest.mark.parametrize(("cause", "fault"), FAULTS)
def test_a_planted_stall_is_named_and_measured(cause: str, fault: Callable[[Driver], None]) -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    for _ in range(3):
        fault(driver)
        driver.train(30)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [stall.cause for stall in rank.stalls] == [cause] * 3
    for stall in rank.stalls:
        assert stall.seconds == pytest.approx(1.2, abs=0.01)
    assert rank.verdict.cause == cause
    assert rank.lost[cause] == pytest.approx(3.6, abs=0.03)
    assert rank.stalls[0].period is not None
    assert rank.stalls[0].period.steps == 30
    adds_up(rank)


def test_a_clean_run_has_no_stall_and_is_healthy() -> None:
    driver = Driver()
    driver.begin()
    driver.train(300)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.stalls == []
    assert rank.bottlenecks == []
    assert rank.verdict.kind == "none"
    assert rank.steps.count == 300
    assert {span.phase for span in rank.phases} == {"startup", "shutdown"}
    adds_up(rank)


def test_heavier_batches_are_work() -> None:
    driver = Driver()
    driver.begin()
    driver.train(60)
    for _ in range(5):
        driver.fetch()
        driver.spend(0.072)
        driver.backward(0.06)
        driver.optimizer()
        driver.train(10)
    driver.exit()
    assert rank_of(played(driver), driver).stalls == []


def test_inline_loading_is_a_bottleneck_with_its_share() -> None:
    driver = Driver()
    driver.begin()
    for _ in range(200):
        driver.fetch(0.03, Leaf.CPU, inline=True)
        driver.spend(0.03)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.verdict.kind == "bottleneck"
    assert rank.verdict.cause == "data_inline"
    assert rank.bottlenecks[0].share == pytest.approx(0.03 / 0.085, rel=0.05)
    assert "num_workers=" in rank.bottlenecks[0].advice[0]
    adds_up(rank)


def fed_by_a_worker(waited: float, *parts: tuple[float, Leaf]) -> Rank:
    """A training that waits so long for each batch; what its worker does for one, in seconds."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for _ in range(200):
        for seconds, leaf in parts:
            driver.work(seconds, leaf)
        driver.fetch(waited, Leaf.POLL)
        driver.spend(0.01)
        driver.backward()
        driver.optimizer()
    driver.exit()
    return rank_of(played(driver, host=HostSample(cpus=8)), driver)


def test_input_bound_with_busy_workers_is_data_cpu() -> None:
    rank = fed_by_a_worker(0.05, (0.13, Leaf.CPU))
    assert rank.verdict.cause == "data_cpu"
    assert rank.bound.by == "input"
    assert any("num_workers=" in line for line in rank.bottlenecks[0].advice)


@pytest.mark.parametrize(
    ("leaf", "cause", "words"),
    [
        (Leaf.SOCKET, "data_storage", "reading data over the network: workers were blocked in socket calls for"),
        (Leaf.SLEEP, "unknown", "workers were blocked in a sleep for"),
        (Leaf.LOCK, "unknown", "workers were blocked in futex for"),
    ],
)
def test_input_bound_by_workers_that_are_blocked_in_each_batch(leaf: Leaf, cause: str, words: str) -> None:
    """As long as all of their time outside of the queue is spent there: no hang: it is how the data is fetched."""
    rank = fed_by_a_worker(0.09, (0.12, leaf), (0.01, Leaf.CPU))
    assert rank.verdict.cause == cause
    assert rank.bottlenecks[0].summary.startswith(words)
    assert "num_workers=" in rank.bottlenecks[0].advice[0]
    assert rank.ordinary.worker_blocked_seconds_per_batch == pytest.approx(0.12, rel=0.02)
    adds_up(rank)


@pytest.mark.parametrize(
    ("workers", "blocked", "seconds", "cause"),
    [
        (4, 4, 1.5, "data_storage"),
        (2, 2, 1.5, "data_storage"),
        (4, 1, 1.5, "worker_hang"),
        (2, 1, 1.5, "worker_hang"),
        (1, 1, 1.5, "worker_hang"),
        (4, 4, 12.0, "worker_hang"),
    ],
)
def test_workers_that_all_wait_in_sockets_now_and_then_read_over_the_network(
    workers: int, blocked: int, seconds: float, cause: str
) -> None:
    """Each reads its next shard. One that does so alone is waited for, and all of them hang where it takes too long."""
    driver = Driver()
    driver.begin()
    for pid in range(2000, 2000 + workers):
        driver.fork(pid)
    for _ in range(3):
        for _ in range(30):
            driver.work(0.02)
            driver.step()
        driver.work(blocked * seconds, Leaf.SOCKET)
        driver.fetch(seconds, Leaf.POLL)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.train(20)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {cause: pytest.approx(3 * seconds, rel=0.05)}
    assert ("over the network" in rank.verdict.summary) == (cause == "data_storage")
    adds_up(rank)


@pytest.mark.parametrize(
    ("workers", "blocked", "cause"), [(2, 1, "worker_hang"), (4, 1, "worker_hang"), (4, 4, "data_storage")]
)
def test_a_worker_that_hangs_beside_a_long_step_hangs_alone(workers: int, blocked: int, cause: str) -> None:
    """It may be blocked for all of that step: batches made ahead cover the first part of its wait."""
    driver = Driver()
    driver.begin()
    for pid in range(2000, 2000 + workers):
        driver.fork(pid)
    for late in [False] * 12 + [True] + [False] * 12:
        driver.work(0.2)
        if late:
            driver.work(blocked * (4.0 + 2.5), Leaf.SOCKET)
            driver.fetch(2.5, Leaf.POLL)
        driver.fetches += not late
        driver.spend(2.0)
        driver.backward(1.5)
        driver.optimizer(seconds=0.5)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {cause: pytest.approx(2.5, rel=0.05)}


def test_a_wait_for_workers_that_are_idle_at_their_pipe_is_lost_without_a_cause() -> None:
    rank = fed_by_a_worker(0.09, (0.12, Leaf.PIPE_READ), (0.01, Leaf.CPU))
    assert rank.verdict.cause == "unknown"
    assert rank.bottlenecks[0].share == pytest.approx(0.089 / 0.125, rel=0.01)
    adds_up(rank)


def test_taking_over_a_ready_batch_is_no_wait() -> None:
    rank = fed_by_a_worker(0.001, (0.034, Leaf.PIPE_READ), (0.001, Leaf.CPU))
    assert not rank.bottlenecks
    assert rank.bound.by == "compute"


def test_fetches_that_outnumber_backwards_are_fake_batching_where_workers_are_idle() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for _ in range(100):
        for _ in range(32):
            driver.work(0.001, Leaf.PIPE_READ)
            driver.fetch(0.0011, Leaf.POLL)
        driver.spend(0.01)
        driver.backward(0.01)
        driver.optimizer(seconds=0.001)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.verdict.cause == "fake_batching"
    assert rank.bound.by == "input"
    assert rank.bottlenecks[0].share == pytest.approx(35.2 / 56.2, rel=0.01)
    adds_up(rank)


@pytest.mark.parametrize(
    ("work", "size", "cause"),
    [(0.009, None, "fake_batching"), (0.045, None, "data_cpu"), (0.009, 3e5, "fake_batching"), (0.009, 2e7, "unknown")],
)
def test_fetches_that_outnumber_backwards_are_no_fake_batching_for_busy_workers_and_large_batches(
    work: float, size: float | None, cause: str
) -> None:
    """Detectron2 groups single samples by their shape; several loaders give a batch each."""
    driver = Driver(batch=None if size is None else int(size))
    driver.begin()
    for pid in range(2000, 2004):
        driver.fork(pid)
    for _ in range(100):
        for _ in range(16):
            driver.work(work)
            driver.fetch(0.01, Leaf.POLL)
        driver.spend(0.03)
        driver.backward(0.02)
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.verdict.cause == cause
    assert any("batch_size" in advice for one in rank.bottlenecks for advice in one.advice) == (
        cause == "fake_batching"
    )
    adds_up(rank)


def test_fetches_that_outnumber_backwards_are_fake_batching() -> None:
    driver = Driver()
    driver.begin()
    for _ in range(100):
        for _ in range(16):
            driver.fetch(0.005, Leaf.CPU, inline=True)
        driver.spend(0.02)
        driver.backward()
        driver.optimizer()
    driver.exit()
    assert rank_of(played(driver), driver).verdict.cause == "fake_batching"


@pytest.mark.parametrize("leaf", [Leaf.POLL, Leaf.LOCK])
@pytest.mark.parametrize(
    ("work", "cause"), [(0.018, "data_cpu"), (0.005, "data_cpu"), (0.001, "unknown"), (0.045, "unknown")]
)
def test_processes_that_work_only_while_they_are_waited_for_are_not_idle(leaf: Leaf, work: float, cause: str) -> None:
    """Environments that are stepped, or a pool that is asked, once in each step: all four of them for most of the wait,
    or one for it. Who works for longer works ahead: of that nobody knows what the wait is for."""
    driver = Driver()
    driver.begin()
    for pid in range(2000, 2004):
        driver.fork(pid)
    for _ in range(200):
        driver.work(4 * work)
        driver.spend(0.02, leaf)
        driver.spend(0.08)
        driver.backward(0.08)
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    (bottleneck,) = rank.bottlenecks
    assert bottleneck.cause == cause
    assert bottleneck.seconds == pytest.approx(190 * 0.02, rel=0.1)
    adds_up(rank)


@pytest.mark.parametrize("leaf", [Leaf.POLL, Leaf.LOCK])
@pytest.mark.parametrize(
    ("work", "found", "cause"),
    [
        (Leaf.CPU, (ThreadState.ON, Leaf.CPU), "data_cpu"),
        (Leaf.CPU, (ThreadState.RUNNABLE, Leaf.RUNQUEUE), "data_cpu"),
        (Leaf.FILE_READ, (ThreadState.BLOCKED, Leaf.FILE_READ), "data_storage"),
        (Leaf.CPU, (ThreadState.BLOCKED, Leaf.LOCK), "unknown"),
        (Leaf.CPU, (ThreadState.BLOCKED, Leaf.SOCKET), "unknown"),
    ],
)
def test_processes_that_are_idle_while_they_are_waited_for_work_at_other_times(
    leaf: Leaf, work: Leaf, found: tuple[ThreadState, Leaf], cause: str
) -> None:
    """Producers that unpack, while the training computes, what they wait for themselves: a camera, a server, a lock."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    (run, of_worker), seen = found, driver.now
    for _ in range(400):
        driver.work(0.045, work)
        driver.spend(0.05, leaf)
        if driver.now - seen >= NS:
            seen = driver.now
            samples = [replace(driver.sample(leaf), run=ThreadState.BLOCKED)]
            for pid, state, of in ((2000, run, of_worker), (2001, ThreadState.BLOCKED, Leaf.PIPE_READ)):
                one = replace(samples[0], pid=pid, tid=pid, level=Level.COARSE, run=state, leaf=of)
                samples.append(one)
            pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=tuple(samples)))
            driver.events.clear()
        driver.spend(0.04)
        driver.backward(0.04)
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert [found.cause for found in rank.bottlenecks] == [cause]
    adds_up(rank)


def test_the_fetches_of_an_evaluation_make_no_fake_batching() -> None:
    """Steps that wait a little for their one batch, and an evaluation of many small ones."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for step in range(100):
        driver.work(0.003, Leaf.PIPE_READ)
        driver.fetch(0.003, Leaf.POLL)
        driver.spend(0.02)
        driver.backward(0.01)
        driver.optimizer(seconds=0.001)
        for _ in range(800 if step == 60 else 0):
            driver.fetch(0.002)
            driver.spend(0.001, Leaf.CPU, Region.NO_GRAD)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds["evaluation"] > 2
    assert "fake_batching" not in rank.lost


@pytest.mark.parametrize("inline", [False, True])
def test_an_evaluation_in_each_step_makes_no_fake_batching(inline: bool) -> None:
    """An epoch is a single step."""
    driver = Driver()
    driver.begin()
    for _ in range(100):
        driver.fetch(0.02, Leaf.CPU if inline else Leaf.POLL, inline=inline)
        driver.spend(0.05)
        driver.backward()
        driver.optimizer()
        for _ in range(10):
            driver.fetch(0.01, Leaf.CPU if inline else Leaf.POLL, inline=inline)
            driver.spend(0.02, Leaf.CPU, Region.NO_GRAD)
        driver.fetches += 2  # find the ends of the loaders
        driver.inline_fetches += 2 * inline
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert "fake_batching" not in rank.lost
    assert sum(rank.lost.values()) == pytest.approx(90 * 0.12, rel=0.15)
    adds_up(rank)


LOADS = ("<module> (train.py:90)", "train (train.py:31)", "_BaseDataLoaderIter.__next__ (torch/dataloader.py:741)")
VALIDATES = ("<module> (train.py:90)", "validate (train.py:60)", "forward (net.py:9)")


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize(
    ("backbone", "stacks", "cause"),
    [(0.4, (), "fake_batching"), (0.1, (LOADS,), "fake_batching"), (0.1, (LOADS, VALIDATES), "")],
)
def test_a_frozen_backbone_does_not_hide_fake_batching(
    inline: bool, backbone: float, stacks: tuple[tuple[str, ...], ...], cause: str
) -> None:
    """It runs with gradients off in each step, as an evaluation does: what it costs, or the stacks tell them apart."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for step in range(200):
        for _ in range(16):
            driver.fetch(0.005, Leaf.CPU if inline else Leaf.POLL, inline=inline)
        driver.spend(backbone, Leaf.CPU, Region.NO_GRAD)
        driver.spend(0.005)
        driver.backward(0.004)
        driver.optimizer(seconds=0.001)
        if stacks and step % 40 == 39:
            played(driver, pipeline).runs["train.py-0123abcd"].ranks.by_pid[driver.pid][
                0
            ].ordinary.lines_ns = driver.now
            shown = stacks[step // 40 % len(stacks)]
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, shown, running=True))
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert ("fake_batching" in rank.lost) == (cause == "fake_batching")
    assert sum(rank.lost.values()) == pytest.approx(190 * 0.08, rel=0.1)
    adds_up(rank)


def test_evaluation_is_a_phase_and_the_checkpoint_after_it_a_stall() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    for _ in range(50):
        driver.fetch(0.002)
        driver.spend(0.03, Leaf.CPU, Region.NO_GRAD)
    checkpoint(driver)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [stall.cause for stall in rank.stalls] == ["checkpoint"]
    assert rank.stalls[0].seconds == pytest.approx(1.2, abs=0.05)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(1.6, abs=0.05)
    adds_up(rank)


def test_a_hog_without_gradients_is_no_evaluation_when_the_stack_says_so() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.0, Leaf.CPU, Region.NO_GRAD)
    driver.events.append(
        StackSeen(
            driver.now, driver.pid, driver.tid, ("<module> (train.py:9)", "optimal_sequence_search (main.py:212)")
        )
    )
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.stalls[0].cause == "cpu_bound"
    assert rank.stalls[0].python_stack is not None
    assert "optimal_sequence_search" in rank.stalls[0].summary


@pytest.mark.parametrize(
    ("region", "slow_backward", "evaluated", "where"),
    [
        (Region.NO_GRAD, 0.0, 0.7, None),
        (Region.STEP, 0.0, 0.0, "outside of forward and backward"),
        (Region.STEP, 0.15, 0.0, "main (train.py:42)"),
    ],
)
def test_a_stack_of_the_backward_explains_only_a_backward_that_was_long(
    region: Region, slow_backward: float, evaluated: float, where: str | None
) -> None:
    """It was taken late: what had held up the step was over."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(0.7, Leaf.CPU, region)
    driver.spend(slow_backward, Leaf.CPU, Region.BACKWARD)
    frames = ("<module> (train.py:60)", "main (train.py:42)", "_engine_run_backward (torch/graph.py:979)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.counters.phase_seconds.get("evaluation", 0.0) == pytest.approx(evaluated, abs=0.02)
    assert [where in stall.summary for stall in rank.stalls] == ([True] if where else [])
    adds_up(rank)


@pytest.mark.parametrize(("seconds", "evaluated"), [(0.8, 0.0), (2.5, 2.5)])
def test_work_without_gradients_that_a_stack_showed_once_is_none_without_a_stack(
    seconds: float, evaluated: float
) -> None:
    """Images are drawn under no_grad: two calls of the same callback are one thing. What is far longer is another."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.0, Leaf.CPU, Region.NO_GRAD)
    frames = ("<module> (train.py:9)", "save_image (torchvision/utils.py:277)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(30)
    driver.spend(seconds, Leaf.CPU, Region.NO_GRAD)
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert {stall.cause for stall in rank.stalls} == {"cpu_bound"}
    assert rank.counters.phase_seconds.get("evaluation", 0.0) == pytest.approx(evaluated, abs=0.05)


@pytest.mark.parametrize(
    "frames",
    [
        ("<module> (train.py:9)", "look (train.py:5)", "Linear.forward (linear.py:134)"),
        ("<module> (train.py:9)", "OnPolicyAlgorithm.collect_rollouts (on_policy_algorithm.py:199)",
         "no_grad.__init__ (grad_mode.py:77)"),
        ("_keep_alive (copy.py:254)", "deepcopy (copy.py:178)"),
    ],
    ids=["a forward pass", "between two of a rollout", "torn: it has lost the functions that called these"],
)  # fmt: skip
def test_forward_passes_without_gradients_are_an_evaluation_whatever_their_function_is_called(
    frames: tuple[str, ...],
) -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.0, Leaf.CPU, Region.NO_GRAD)
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.stalls == []
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("frame", "evaluated"), [("Policy.forward (policy.py:5)", 0.6), ("step (env.py:30)", 0.0)])
@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.CPU, "cpu_bound"), (Leaf.CHILD, "unknown")])
def test_of_a_rollout_whose_environment_takes_most_its_forward_passes_are_not_lost(
    leaf: Leaf, cause: str, frame: str, evaluated: float
) -> None:
    """It steps in the training thread, or in a process. The only stack of a step is in the one or in the other."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    for _ in range(2):
        driver.spend(0.3, Leaf.CPU, Region.NO_GRAD)
        frames = ("<module> (ppo.py:9)", "main (ppo.py:90)", frame)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
        driver.spend(0.9, leaf)
        driver.train(30)
        pipeline = played(driver, pipeline)
    rank = rank_of(pipeline, driver)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(evaluated, abs=0.03)
    assert rank.lost[cause] == pytest.approx(1.8 + (0.6 - evaluated) * (leaf == Leaf.CPU), abs=0.03)
    adds_up(rank)


@pytest.mark.parametrize(("quiet", "told"), [(0.2, 1.3), (0.0, 1.6)])
@pytest.mark.parametrize("known", [2, 5])
def test_beside_what_a_callback_takes_an_evaluation_has_its_usual_length(known: int, quiet: float, told: float) -> None:
    """Rollouts of 0.3 s, most of it with gradients off, between each 20 steps; in one of them 1.3 s are computed."""
    driver = Driver()
    driver.begin()
    driver.train(20)
    for _ in range(known):
        driver.spend(0.2, Leaf.CPU, Region.NO_GRAD)
        driver.spend(0.1)
        driver.train(20)
    pipeline = played(driver)
    driver.spend(quiet, Leaf.CPU, Region.NO_GRAD)
    driver.spend(1.6 - quiet)
    frames = ("main (train.py:9)", "on_step (train.py:30)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    (stall,) = rank.stalls
    assert (stall.cause, stall.seconds) == ("cpu_bound", pytest.approx(told, abs=0.03))
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(known * 0.3 + 1.6 - told, abs=0.05)
    adds_up(rank)


@pytest.mark.parametrize(("frame", "evaluated"), [("plot (train.py:30)", 0.6), ("evaluate (train.py:30)", 1.7)])
def test_whose_the_work_behind_a_first_evaluation_is_another_stack_says(frame: str, evaluated: float) -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline, asked = played(driver), []
    for seconds, region, frames in (
        (0.6, Region.NO_GRAD, ("<module> (train.py:9)", "look (train.py:5)", "Linear.forward (linear.py:134)")),
        (0.3, Region.STEP, ("<module> (train.py:9)", frame)),
        (0.8, Region.STEP, ()),
    ):
        driver.spend(seconds, Leaf.CPU, region)
        played(driver, pipeline, threads=(replace(driver.sample(), region=region),))
        asked.append(bool(pipeline.wants().stacks))
        if frames:
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert asked[:2] == [True, True]
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(evaluated, abs=0.05)
    assert rank.lost.get("cpu_bound", 0.0) == pytest.approx(1.7 - evaluated, abs=0.05)
    adds_up(rank)


@pytest.mark.parametrize(
    ("frame", "in_steps", "evaluated"),
    [
        ("train_and_evaluate (train.py:30)", False, 0.0),
        ("_maybe_log_save_evaluate (transformers/trainer.py:3000)", False, 0.0),
        ("run_benchmark (train.py:30)", True, 0.0),
        ("run_benchmark (train.py:30)", False, 4.0),
        ("evaluate (train.py:30)", False, 4.0),
    ],
)
def test_what_the_training_computes_in_a_loop_named_after_evaluations_is_none(
    frame: str, in_steps: bool, evaluated: float
) -> None:
    """With gradients on; ``in_steps``: stacks of ordinary steps show the function, too."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    rank = next(iter(next(iter(pipeline.runs.values())).ranks))
    for _ in range(3 * in_steps):
        rank.ordinary.lines_ns = driver.now
        frames = ("<module> (train.py:9)", frame.replace("30", "20"), "forward (model.py:5)")
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        driver.train(1)
        played(driver, pipeline)
    for _ in range(2):
        driver.spend(2.0)
        frames = ("<module> (train.py:9)", frame, "search (train.py:40)")
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(30)
    told = rank_of(played(driver, pipeline), driver)
    assert told.counters.phase_seconds.get("evaluation", 0.0) == pytest.approx(evaluated, abs=0.05)
    assert told.lost.get("cpu_bound", 0.0) == pytest.approx(4.0 - evaluated, abs=0.05)
    adds_up(told)


@pytest.mark.parametrize("first", [True, False])
def test_one_stack_between_two_forward_passes_does_not_hide_an_evaluation(first: bool) -> None:
    """A callback that evaluates by hand is on the CPU beside its forward passes too."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    inside = ("main (train.py:9)", "look (train.py:5)", "Linear.forward (linear.py:134)")
    beside = ("main (train.py:9)", "look (train.py:7)", "stack (train.py:30)")
    asked = []
    for frames in (inside, beside) if first else (beside, inside):
        for _ in range(3):
            driver.spend(0.2, Leaf.CPU, Region.NO_GRAD)
            played(driver, pipeline, threads=(replace(driver.sample(), region=Region.NO_GRAD),))
            asked.append(pipeline.wants().stacks)
            if asked[-1]:
                break
        if asked[-1]:
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.stalls == []
    assert rank.counters.phase_seconds["evaluation"] > 0.3
    assert sum(map(bool, asked)) == (1 if first else 2), "a second one is asked for where the first shows none"


@pytest.mark.parametrize("leaf", [Leaf.CPU, Leaf.LOCK])
@pytest.mark.parametrize(("frame", "stacks"), [("evaluate (train.py:30)", 2), ("search (train.py:30)", 1)])
def test_an_evaluation_with_gradients_on_is_known_before_it_is_long(frame: str, stacks: int, leaf: Leaf) -> None:
    """JAX and Keras switch none off, and wait for their threads. Its one stack would be no evidence."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline, asked = played(driver), 0
    for _ in range(15):
        driver.spend(0.2, leaf)
        played(driver, pipeline, threads=(driver.sample(leaf),))
        if pipeline.wants().stacks:
            asked += 1
            frames = ("<module> (train.py:9)", frame, "_value (jax/array.py:600)")
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=leaf == Leaf.CPU))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert asked == stacks
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(3.0 * (stacks - 1), abs=0.05)
    assert sum(rank.lost.values()) == pytest.approx(3.0 * (2 - stacks), abs=0.05)


@pytest.mark.parametrize(
    ("caller", "hog", "cause"),
    [
        ("look (train.py:5)", "look (train.py:7)", None),
        ("look (train.py:5)", "search (train.py:40)", "cpu_bound"),
        ("main (train.py:30)", "search (train.py:40)", "cpu_bound"),
    ],
)
def test_a_callback_that_evaluated_once_evaluates_again(caller: str, hog: str, cause: str | None) -> None:
    """The one stack of its second call shows no model. The loop's own function is no callback."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    loop = ("<module> (train.py:60)", "main (train.py:9)")
    inside = (*loop[: 1 if caller.startswith("main") else 2], caller, "Linear.forward (linear.py:134)")
    for frames in (inside, (*loop, hog, "stack (train.py:30)")):
        driver.spend(1.0, Leaf.CPU, Region.NO_GRAD)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        driver.train(30)
        played(driver, pipeline)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert [stall.cause for stall in rank.stalls] == ([cause] if cause else [])
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(1.0 if cause else 2.0, abs=0.05)


def evaluate(driver: Driver, region: Region = Region.NO_GRAD) -> None:
    for _ in range(40):
        driver.fetch(0.002, inline=True)
        driver.spend(0.02, Leaf.CPU, region)


@pytest.mark.parametrize("region", [Region.NO_GRAD, Region.STEP])
def test_a_pause_in_the_step_of_an_evaluation_is_no_part_of_it(region: Region) -> None:
    """As of a callback at the end of the epoch, whether gradients were off or not."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    evaluate(driver, region)
    driver.spend(1.2, Leaf.SLEEP)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [(stall.cause, round(stall.seconds, 1)) for stall in rank.stalls] == [("unknown", 1.2)]
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.88, abs=0.05)
    adds_up(rank)


@pytest.mark.parametrize("before", [True, False])
def test_what_the_training_does_beside_an_evaluation_is_no_part_of_it(before: bool) -> None:
    """No stack was taken of it; the evaluation before it had 0.05 s outside of its forward passes."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    evaluate(driver)
    driver.spend(0.05)
    driver.train(40)
    if before:
        driver.spend(0.8)
    evaluate(driver)
    if not before:
        driver.spend(0.8)
    driver.spend(0.5, Leaf.LOCK)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["cpu_bound"] == pytest.approx(0.8, abs=0.05)
    assert rank.lost["unknown"] == pytest.approx(0.5, abs=0.05)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(2 * 0.88 + 0.1, abs=0.05)
    adds_up(rank)


def test_what_evaluations_always_do_outside_of_their_forward_passes_is_theirs() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    for _ in range(3):
        evaluate(driver)
        driver.spend(0.8)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(3 * 1.68, abs=0.05)


def test_what_comes_before_the_first_fork_is_not_for_the_workers_that_start() -> None:
    """But for the end of those before, which the fetch waits for."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    driver.spend(0.3, Leaf.POLL, Region.FETCH)
    driver.die(2000)
    driver.spend(0.9)
    driver.spend(0.7, Leaf.SLEEP)
    driver.fork(2001)
    driver.fetch(0.4, Leaf.POLL)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["worker_startup"] == pytest.approx(0.7, abs=0.06)
    assert rank.lost["cpu_bound"] == pytest.approx(0.9, abs=0.06)
    assert rank.lost["unknown"] == pytest.approx(0.7, abs=0.02)
    adds_up(rank)


def test_workers_that_start_again_after_an_evaluation_in_the_driver_are_no_part_of_it() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    driver.die(2000)
    evaluate(driver)
    driver.fork(2001)
    driver.fetch(0.6, Leaf.POLL)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [(stall.cause, round(stall.seconds, 1)) for stall in rank.stalls] == [("worker_startup", 0.6)]
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.88, abs=0.05)


@pytest.mark.parametrize("renewed", [True, False])
def test_workers_that_start_again_after_an_evaluation_with_its_own_are_no_part_of_it(renewed: bool) -> None:
    """Where the training's workers live on, those that started are the evaluation's."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    if renewed:
        driver.die(2000)
    driver.fork(2001)
    driver.fetch(0.1, Leaf.POLL)
    for _ in range(40):
        driver.fetch(0.002, Leaf.POLL)
        driver.spend(0.02, Leaf.CPU, Region.NO_GRAD)
    if renewed:
        driver.die(2001)
        driver.fork(2002)
    driver.fetch(0.4, Leaf.POLL)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    started = [("worker_startup", 0.4)] if renewed else []
    assert [(stall.cause, round(stall.seconds, 1)) for stall in rank.stalls] == started
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.98 if renewed else 1.38, abs=0.05)
    adds_up(rank)


@pytest.mark.parametrize(("name", "phase"), [("sample_7.png", 0.0), ("scores.csv", 0.9)])
def test_pictures_that_are_drawn_without_gradients_are_no_evaluation(name: str, phase: float) -> None:
    """No stack was taken of it."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.spend(0.9, Leaf.CPU, Region.NO_GRAD)
    driver.write(f"/out/{name}", 3_000_000, 0.001)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds.get("evaluation", 0.0) == pytest.approx(phase, abs=0.05)


@pytest.mark.parametrize(("waits", "phase"), [(0.6, 3.0), (0.0, 0.0)])
def test_pictures_that_a_model_on_a_gpu_makes_are_an_evaluation(waits: float, phase: float) -> None:
    """As a diffusion model's samples; the driver waits for the GPU. No stack was taken of it."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    for _ in range(5):
        driver.spend(0.6 - waits / 2, Leaf.CPU, Region.NO_GRAD)
        driver.spend(waits / 2, Leaf.GPU, Region.NO_GRAD)
    driver.write("/out/sample.png", 3_000_000, 0.001)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds.get("evaluation", 0.0) == pytest.approx(phase, abs=0.05)
    assert sum(rank.lost.values()) == pytest.approx(3.0 - phase, abs=0.05)
    adds_up(rank)


def test_pictures_that_each_evaluation_draws_do_not_hide_the_next_one() -> None:
    """Stacks were taken of the first two only."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    frames = ("<module> (train.py:9)", "sample (train.py:5)", "Linear.forward (linear.py:134)")
    for place in range(4):
        driver.spend(0.4 if place < 2 else 0.25, Leaf.CPU, Region.NO_GRAD)
        if place < 2:
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        driver.spend(0.3)
        driver.write(f"/out/{place}.png", 3_000_000, 0.001)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [stall.cause for stall in rank.stalls] == []
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(2 * 0.7 + 2 * 0.55, abs=0.05)


def test_a_backward_that_waits_for_a_processor_after_an_evaluation_is_no_part_of_it() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    evaluate(driver)
    driver.spend(0.3, Leaf.RUNQUEUE, Region.BACKWARD)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.88, abs=0.05)
    assert rank.lost["cpu_contention"] == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.RUNQUEUE, "cpu_contention"), (Leaf.THROTTLED, "cpu_throttled")])
def test_waiting_for_a_processor_without_gradients_is_no_evaluation(leaf: Leaf, cause: str) -> None:
    """As Keras's optimisers do on torch, and averages of the weights. No stack was taken of it."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.spend(0.05, Leaf.CPU, Region.NO_GRAD)
    driver.spend(0.06, leaf, Region.NO_GRAD)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.counters.phase_seconds["evaluation"] == 0.0
    assert rank.lost[cause] == pytest.approx(0.06, abs=0.01)


def test_workers_started_again_each_epoch() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    for epoch in range(3):
        driver.die(2000 + epoch)
        driver.spend(0.1)
        driver.fork(2001 + epoch)
        driver.fetch(0.8, Leaf.POLL)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [stall.cause for stall in rank.stalls] == ["worker_startup"] * 3
    assert "persistent_workers" in rank.stalls[0].advice[0]
    adds_up(rank)


@pytest.mark.parametrize(("later", "cause"), [(0, "worker_startup"), (5, "data_cpu")])
def test_the_first_batch_of_each_worker_that_was_started_again_is_its_start(later: int, cause: str) -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    driver.train(40)
    for pid in (2000, 2001):
        driver.die(pid)
        driver.fork(pid + 10)
    driver.fetch(0.8, Leaf.POLL)
    driver.train(1 + later)
    driver.fetch(0.4, Leaf.POLL)
    driver.work(0.4)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.lost["worker_startup"] == pytest.approx(1.2 if later == 0 else 0.8, abs=0.02)
    assert rank.stalls[-1].cause == cause


@pytest.mark.parametrize(
    ("code", "signal", "sender", "reason"),
    [(None, 9, 77, "killed"), (3, None, None, "exited"), (None, 11, None, "crashed")],
)
def test_a_workers_death_ends_the_run(code: int | None, signal: int | None, sender: int | None, reason: str) -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.fork(2001)
    driver.train(40)
    driver.die(2000, code, signal, sender)
    driver.exit(1)
    rank = rank_of(played(driver), driver)
    assert (rank.verdict.kind, rank.verdict.cause) == ("end", "worker_death")
    assert rank.workers.exits[0].reason == reason
    assert rank.warnings[0].cause == "worker_death"
    assert rank.exit is not None
    assert rank.exit.code == 1
    adds_up(rank)


def test_workers_that_finish_are_no_event() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    driver.die(2000)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.warnings == []
    assert rank.workers.exits[0].reason == "finished"


def test_an_open_stall_is_told_while_it_lasts_and_counted_once() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    (alarm,) = pipeline.armed()
    assert alarm.limit_ns > driver.now
    assert alarm.began_ns > driver.now - ns(0.05)
    driver.events.append(driver_opens(driver))
    driver.spend(0.7, Leaf.FILE_SYNC)
    pipeline = played(driver, pipeline, threads=(driver.sample(Leaf.FILE_SYNC),))
    rank = rank_of(pipeline, driver)
    assert rank.stalls[-1].end is None
    assert rank.stalls[-1].cause == "checkpoint"
    opened = rank.stalls[-1]
    assert opened.seconds == pytest.approx(0.7, abs=0.06)
    adds_up(rank)
    driver.spend(0.3, Leaf.FILE_SYNC)
    driver.files[1, 7] = driver_file(ns(1.0))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert len(rank.stalls) == 1
    assert rank.stalls[0].end is not None
    assert rank.stalls[0].seconds == pytest.approx(1.0, abs=0.02)
    assert rank.totals.stalls == 1


def driver_opens(driver: Driver) -> object:
    driver.file(FileEventKind.OPENED, "/out/big.pth", 7, driver.now)
    return driver.events.pop()


def driver_file(io: int) -> object:
    return StepFile(1, 7, io, 0, 10_000_000)


def test_the_time_after_the_last_step_is_shutdown() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.0)
    pipeline = played(driver, pipeline, threads=(driver.sample(),))
    driver.exit(shutdown=0.1)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.stalls == []
    assert rank.counters.phase_seconds["shutdown"] == pytest.approx(1.1, abs=0.05)
    adds_up(rank)


def test_a_run_killed_in_its_stall_keeps_it() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    pipeline = played(driver)
    driver.work(3.0, Leaf.FILE_READ)
    driver.fetch(3.0, Leaf.POLL)
    pipeline = played(driver, pipeline, threads=(driver.sample(Leaf.POLL),))
    driver.exit(None, 9, shutdown=0.0)
    rank = rank_of(played(driver, pipeline), driver)
    assert len(rank.stalls) == 1
    assert rank.stalls[0].end is not None
    assert rank.verdict.kind == "end"
    adds_up(rank)


def test_saves_are_followed_to_their_final_name() -> None:
    driver = Driver()
    driver.begin()
    driver.train(20)
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/tmp/tmpab12", 9, opened)
    driver.spend(0.4, Leaf.FILE_WRITE)
    driver.file(FileEventKind.CLOSED, "/tmp/tmpab12", 9, opened, 50_000_000, ns(0.4))
    driver.file(FileEventKind.RENAMED, "/tmp/tmpab12", 9, new_path="/out/last.ckpt", errno=18)
    again = driver.now
    driver.file(FileEventKind.OPENED, "/out/last.ckpt", 11, again)
    driver.spend(0.2, Leaf.FILE_WRITE)
    driver.file(FileEventKind.CLOSED, "/out/last.ckpt", 11, again, 50_000_000, ns(0.2))
    driver.train(20)
    saves = rank_of(played(driver), driver).checkpoints
    assert [(s.path, s.bytes, s.outcome) for s in saves] == [("/out/last.ckpt", 50_000_000, "complete")]
    assert saves[0].write_seconds == pytest.approx(0.6)
    assert saves[0].seconds == pytest.approx(0.6)


def test_a_full_disk_is_the_saves_outcome() -> None:
    driver = Driver()
    driver.begin()
    driver.train(20)
    driver.file(FileEventKind.OPENED, "/out/a.pth", 9, driver.now)
    driver.file(FileEventKind.CLOSED, "/out/a.pth", 9, driver.now, 1_000_000, ns(0.1), errno=28)
    driver.train(20)
    save = rank_of(played(driver), driver).checkpoints[0]
    assert (save.outcome, save.error) == ("error", "ENOSPC")


def test_a_driver_in_another_thread_takes_the_rank_over() -> None:
    driver = Driver()
    driver.begin()
    pipeline = Pipeline()
    pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=(driver.sample(),)))
    driver.events.clear()
    main = sum(driver.cells)
    driver.tid += 1
    driver.cells = [0] * len(driver.cells)
    driver.train(40)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.steps.count == 40
    assert rank.wall_seconds == pytest.approx((driver.now - START) / 1e9, abs=0.06)
    assert main > 0
    adds_up(rank)


def test_without_marks_the_ledger_still_runs_and_says_why() -> None:
    driver = Driver()
    driver.begin()
    driver.spend(3.0)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.steps.source == "none"
    assert rank.steps.reason
    assert rank.wall_seconds == pytest.approx(4.6)
    adds_up(rank)


def test_replaying_in_other_slices_gives_the_same_report() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    for _, fault in FAULTS[:6]:
        fault(driver)
        driver.train(25)
    driver.exit()
    events = list(driver.events)
    whole = rank_of(played(driver), driver)
    sliced = Pipeline()
    for event in events:
        sliced.step(Frame(moment(event.at_ns), (event,)))
    again = rank_of(sliced, driver)
    assert again.lost == whole.lost
    assert again.verdict == whole.verdict
    assert [(s.cause, s.seconds) for s in again.stalls] == [(s.cause, s.seconds) for s in whole.stalls]


def test_the_removal_of_an_older_checkpoint_is_told_with_its_seconds() -> None:
    driver = Driver()
    driver.begin()
    driver.train(20)
    driver.write("/out/step-1.pt", 100_000_000, 0.3, ino=8)
    driver.train(20)
    driver.write("/out/step-2.pt", 100_000_000, 0.3, ino=9)
    began = driver.now
    driver.spend(0.45, Leaf.FILE_META)
    use = driver.files[1, 9]
    driver.files[1, 9] = replace(use, io_ns=use.io_ns + ns(0.45))
    driver.file(FileEventKind.UNLINKED, "/out/step-1.pt", 8, began)
    driver.train(20)
    first, second = rank_of(played(driver), driver).stalls
    assert "removing" not in first.summary
    assert second.summary == "checkpoint /out/step-2.pt: 100 MB, 450 ms in removing an older one"
    (told,) = [one for one in second.evidence if one.what == "time to remove it"]
    assert (told.value, told.path) == (pytest.approx(0.45), "/out/step-1.pt")


@pytest.mark.parametrize(
    ("path", "ino", "log", "cause"),
    [
        ("/out/step-1.pt", 8, False, "checkpoint"),
        ("/out/step-1.pt", 8, True, "checkpoint"),
        ("/out/checkpoint-20/optimizer.pt", 0, False, "checkpoint"),
        ("/cache/shard-1.mds", 0, False, "unknown"),
        ("/cache/shard-1.mds", 0, True, "logging"),
    ],
)
def test_a_checkpoint_that_is_removed_in_a_step_without_a_save_is_the_saves(
    path: str, ino: int, log: bool, cause: str
) -> None:
    """The kernel enters the calls for the file that the thread wrote last, where it wrote one. One without a number is
    of an earlier run."""
    driver = Driver()
    driver.begin()
    driver.train(20)
    driver.write("/out/step-1.pt", 100_000_000, 0.3, ino=8)
    driver.train(20)
    if log:
        driver.write("/out/metrics.csv", 100, 0.001, ino=9)
    last = driver.files.get((1, 9), StepFile(0, 0, 0, 0, 0))
    for part in range(3):
        began = driver.now
        driver.spend(0.3, Leaf.FILE_META)
        driver.files[last.dev, last.ino] = replace(last, io_ns=last.io_ns + ns(0.3 * (part + 1)))
        driver.file(FileEventKind.UNLINKED, path, ino, began)
    driver.train(20)
    saved, removed = rank_of(played(driver), driver).stalls
    assert (saved.cause, removed.cause) == ("checkpoint", cause)
    assert removed.shares[cause] == pytest.approx(0.9, abs=0.02)
    if cause == "checkpoint":
        assert removed.summary == f"removing checkpoint {path} for 900 ms"


def test_a_file_opened_again_for_its_fsync_is_one_save() -> None:
    driver = Driver()
    driver.begin()
    driver.train(20)
    driver.write("/out/a.pt", 10_000_000, 0.3)
    again = driver.now
    driver.file(FileEventKind.OPENED, "/out/a.pt", 7, again, created=False)
    driver.spend(1.1, Leaf.FILE_SYNC)
    driver.file(FileEventKind.CLOSED, "/out/a.pt", 7, again, 0, 0, ns(1.1), created=False)
    driver.train(20)
    saves = rank_of(played(driver), driver).checkpoints
    assert [(s.bytes, s.outcome) for s in saves] == [(10_000_000, "complete")]
    assert saves[0].seconds == pytest.approx(1.4)
    assert (saves[0].write_seconds, saves[0].fsync_seconds) == (pytest.approx(0.3), pytest.approx(1.1))


def test_an_open_stall_keeps_its_id_when_it_closes() -> None:
    """With an evaluation in the same step the stall that is left is shorter: it is the same one, where it was."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.events.append(driver_opens(driver))
    driver.spend(0.7, Leaf.FILE_SYNC)
    opened = rank_of(played(driver, pipeline, threads=(driver.sample(Leaf.FILE_SYNC),)), driver).stalls[-1]
    for _ in range(50):
        driver.fetch(0.002)
        driver.spend(0.03, Leaf.CPU, Region.NO_GRAD)
    driver.files[1, 7] = driver_file(ns(0.7))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert [stall.id for stall in rank.stalls] == [opened.id]
    assert rank.stalls[0].start == pytest.approx(opened.start, abs=0.1)


def test_a_stall_that_goes_on_with_its_neighbour_is_no_second_one_while_it_is_open() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    checkpoint(driver)
    driver.train(1)
    pipeline = played(driver)
    first = rank_of(pipeline, driver)
    driver.events.append(driver_opens(driver))
    driver.spend(0.7, Leaf.FILE_SYNC)
    rank = rank_of(played(driver, pipeline, threads=(driver.sample(Leaf.FILE_SYNC),)), driver)
    assert [stall.id for stall in rank.stalls] == [stall.id for stall in first.stalls]
    assert rank.stalls[0].end is None
    assert rank.stalls[0].seconds == pytest.approx(1.2 + 0.7, abs=0.06)
    assert rank.totals.stalls == rank.counters.stalls["checkpoint"] == 1
    driver.files[1, 7] = driver_file(ns(0.7))
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert [stall.id for stall in rank.stalls] == [stall.id for stall in first.stalls]
    assert rank.stalls[0].end is not None
    assert rank.totals.stalls == 1


def test_every_step_is_told_as_a_row_with_its_states() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    checkpoint(driver)
    driver.train(30)
    pipeline = played(driver)
    (told,) = pipeline.take_steps(moment(driver.now))
    assert (told.run, told.rank) == ("train.py-0123abcd", "0")
    assert len(told.rows) == rank_of(pipeline, driver).steps.count - 1
    for row in told.rows:
        assert sum(row.states.values()) == pytest.approx(row.seconds)
    slow = max(told.rows, key=lambda row: row.seconds)
    assert slow.states["checkpoint"] == pytest.approx(1.2, abs=0.01)
    assert told.rows[0].start == pytest.approx(1e9 + START / 1e9 + 1.045, abs=0.001)
    assert pipeline.take_steps(moment(driver.now)) == []


def test_rows_that_nobody_takes_are_fewer_and_still_every_step() -> None:
    driver = Driver()
    driver.begin()
    driver.train(5000)
    pipeline = played(driver)
    (told,) = pipeline.take_steps(moment(driver.now))
    assert len(told.rows) <= 1024
    assert sum(row.count for row in told.rows) == 4999
    assert sum(row.seconds for row in told.rows) == pytest.approx(4999 * 0.05)


@pytest.mark.parametrize(
    ("others", "apart", "known"), [(False, 40, 360), (True, 60, None), (True, 40, 40)], ids=["late", "short", "told"]
)
def test_how_often_it_logs_is_not_known_where_most_bursts_are_told_nowhere(
    others: bool, apart: int, known: int | None
) -> None:
    """Those that make no step late are told where they take 1.5 % of ordinary steps: then all writes count."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    for burst in range(27):
        late = burst % 9 == 0
        if late or others:
            driver.write("/runs/train.log", 1000, (0.3 if others else 0.6) if late else 0.045, created=False)
        driver.train(apart)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert {stall.cause for stall in rank.stalls} == {"logging"}
    advice = " ".join(rank.stalls[0].advice)
    assert ("instead of every" in advice) == (known is not None)
    if known:
        (said,) = re.findall(r"instead of every (\d+)", advice)
        assert int(said) == pytest.approx(known, rel=0.05)
