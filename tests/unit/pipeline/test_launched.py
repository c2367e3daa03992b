"""A training that is found below its launcher takes over its children, and theirs."""

from __future__ import annotations

from tests.builders.driver import moment
from trainprobe.model.event import Event, ProcessEvent, ProcessEventKind, RankSeen, RunStarted
from trainprobe.model.frame import Frame
from trainprobe.pipeline import Pipeline

RUN = "train.py-0123abcd"
SHELL, DRIVER, TRACKER, SERVER, WORKER = 10, 11, 12, 13, 14


def forked(at: int, pid: int, ppid: int) -> ProcessEvent:
    return ProcessEvent(ProcessEventKind.FORK, at, pid, ppid, comm="python")


def executed(at: int, pid: int, *command: str) -> ProcessEvent:
    return ProcessEvent(ProcessEventKind.EXEC, at, pid, comm="python", command=command)


def launched() -> list[Event]:
    """A training below a shell, which is taken for the driver."""
    return [
        RunStarted(RUN, 1, SHELL, ("sh", "-c", "python train.py | tee log"), "user", "/"),
        RankSeen(RUN, 1, SHELL, None, 1, candidate=True),
        forked(2, DRIVER, SHELL),
        executed(3, DRIVER, "python", "train.py"),
    ]


def test_the_worker_of_a_fork_server_is_the_drivers_and_the_server_is_none() -> None:
    pipeline = Pipeline()
    events: list[Event] = [
        *launched(),
        forked(4, TRACKER, DRIVER),
        executed(5, TRACKER, "python", "-c", "from multiprocessing.resource_tracker import main;main(5)"),
        forked(6, SERVER, DRIVER),
        executed(7, SERVER, "python", "-c", "from multiprocessing.forkserver import main; main(8, 9)"),
        forked(8, WORKER, SERVER),
        RankSeen(RUN, 9, DRIVER, None, 2),
    ]
    pipeline.step(Frame(moment(10), tuple(events)))
    ranks = pipeline.runs[RUN].ranks.by_pid
    (workers,) = (rank.lives.workers for rank in ranks[DRIVER])
    assert (workers.started, workers.count, workers.peak) == (1, 1, 1)
    assert workers.owns(WORKER)
    assert not ranks.get(SHELL) or ranks[SHELL][0].lives.workers.count == 0


def test_what_another_program_forks_is_no_worker_and_what_the_training_forks_is() -> None:
    """Below a shell both are children of another program, until the driver is known."""
    pipeline, early, monitor, shell = Pipeline(), 20, 21, 22
    events: list[Event] = [
        *launched(),
        forked(4, early, DRIVER),
        forked(5, monitor, DRIVER),
        executed(6, monitor, "bash", "watch.sh"),
        forked(7, shell, monitor),
        RankSeen(RUN, 9, DRIVER, None, 2),
        forked(10, WORKER, DRIVER),
        forked(11, shell + 1, monitor),
    ]
    pipeline.step(Frame(moment(12), tuple(events)))
    (workers,) = (rank.lives.workers for rank in pipeline.runs[RUN].ranks.by_pid[DRIVER])
    roles = {pid: life.role for pid, life in workers.live.items()}
    assert roles == {early: "worker", monitor: "helper", shell: "helper", WORKER: "worker", shell + 1: "helper"}
    assert (workers.started, workers.count) == (2, 2)
