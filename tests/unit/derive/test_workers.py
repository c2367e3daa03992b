"""The life and death of worker processes, from the kernel's events and from what /proc told at the start."""

from __future__ import annotations

import pytest

from trainprobe.derive.workers import WorkerPool
from trainprobe.model.event import ProcessEvent, ProcessEventKind
from trainprobe.model.moment import NS


def fork(pid: int, at_ns: int) -> ProcessEvent:
    return ProcessEvent(ProcessEventKind.FORK, at_ns, pid, 50, "pt_data_worker")


def test_a_worker_that_both_proc_and_the_kernel_tell_of_is_one() -> None:
    """It was forked while the watching began; /proc has its start in clock ticks."""
    workers = WorkerPool(50)
    workers.add_event(fork(51, 10_000_000_000))
    workers.add_event(fork(51, 10_009_000_000))
    assert (workers.started, workers.count, workers.peak) == (1, 1, 1)


def test_a_pid_that_is_used_again_is_another_worker() -> None:
    workers = WorkerPool(50)
    workers.add_event(fork(51, 10 * NS))
    workers.add_event(fork(51, 400 * NS))  # the end of the first was lost
    assert (workers.started, workers.count) == (2, 1)


def run(pid: int, at_ns: int) -> ProcessEvent:
    return ProcessEvent(ProcessEventKind.EXEC, at_ns, pid, 50, "git", command=("git", "rev-parse"))


def test_a_command_that_the_training_runs_never_was_a_worker() -> None:
    """Between fork and exec it cannot be told from one."""
    workers = WorkerPool(50)
    workers.add_event(fork(51, 10 * NS))
    workers.add_event(run(51, 10 * NS + 1))
    assert (workers.started, workers.count, workers.peak) == (0, 0, 0)
    for pid in (60, 61):
        workers.add_event(fork(pid, 20 * NS))
    for pid in (71, 72, 73):  # at once, and a worker with them
        workers.add_event(fork(pid, 30 * NS))
    assert workers.peak == 5
    for pid in (71, 73):
        workers.add_event(run(pid, 30 * NS + 1))
    assert (workers.started, workers.count, workers.peak) == (3, 3, 3)


def ended(pid: int, at_ns: int, code: int) -> ProcessEvent:
    return ProcessEvent(ProcessEventKind.EXIT, at_ns, pid, 50, "python3", code=code)


@pytest.mark.parametrize("code", [127, 255])
def test_a_command_that_is_not_there_is_no_dead_worker(code: int) -> None:
    """subprocess.run(["nvidia-smi"]) where there is none: its child ends at once, without an exec."""
    workers = WorkerPool(50)
    workers.add_event(fork(51, 10 * NS))
    assert workers.add_event(ended(51, 10 * NS + NS // 1000, code)) is None
    assert (workers.started, workers.ended, workers.peak, workers.deaths) == (0, 0, 0, [])
    workers.add_event(fork(52, 20 * NS))
    death = workers.add_event(ended(52, 21 * NS, code))
    assert death is not None
    assert death.abnormal


def test_workers_that_import_everything_again_are_counted() -> None:
    """By spawn, or by a fork server; a command that a worker runs is none."""
    workers, spawn = WorkerPool(50), ("python", "-c", "from multiprocessing.spawn import spawn_main")
    workers.add_event(fork(51, 10 * NS))
    assert (workers.started, workers.spawned) == (1, 0)
    workers.add_event(fork(52, 11 * NS))
    workers.add_event(ProcessEvent(ProcessEventKind.EXEC, 11 * NS + 1, 52, 50, "python", command=spawn))
    assert (workers.started, workers.spawned) == (2, 1)
    server = ("python", "-c", "from multiprocessing.forkserver import main")
    workers.add_event(fork(60, 12 * NS))
    workers.add_event(ProcessEvent(ProcessEventKind.EXEC, 12 * NS + 1, 60, 50, "python", command=server))
    workers.add_event(ProcessEvent(ProcessEventKind.FORK, 13 * NS, 61, 60, "python"))
    assert (workers.started, workers.spawned) == (3, 2)
    workers.add_event(ProcessEvent(ProcessEventKind.FORK, 14 * NS, 70, 51, "python"))
    workers.add_event(run(70, 14 * NS + 1))
    assert (workers.started, workers.spawned) == (3, 2)
