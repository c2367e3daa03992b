"""The life and death of worker processes, from the kernel's events and from what /proc told at the start."""

from __future__ import annotations

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
