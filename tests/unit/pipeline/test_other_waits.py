"""Waits of the driver that are no riddle: for a save beside the steps, for a command that it started, its own sleep."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.builders.driver import Driver, moment, ns, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.cells import Leaf, Region, ThreadState
from trainprobe.model.event import (
    FileEventKind,
    FileLooked,
    ProcessEvent,
    ProcessEventKind,
    PythonThread,
    StackSeen,
    StepFile,
)
from trainprobe.model.frame import Frame
from trainprobe.model.report import Stall
from trainprobe.model.sample import Inspection, ThreadLook
from trainprobe.pipeline import Pipeline

PATH = "/run/model.pt"
SAVER, SERVER, UPLOAD = 77, 88, 99


def started() -> tuple[Driver, Pipeline]:
    driver = Driver()
    driver.begin()
    driver.train(40)
    return driver, played(driver)


def run_command(driver: Driver, pid: int, name: str) -> None:
    """As subprocess does: fork and exec."""
    driver.events.append(ProcessEvent(ProcessEventKind.FORK, driver.now, pid, driver.pid, "python3"))
    command = (f"/usr/bin/{name}", "x")
    driver.events.append(ProcessEvent(ProcessEventKind.EXEC, driver.now, pid, driver.pid, name, command=command))


def stall_of(driver: Driver, pipeline: Pipeline) -> Stall:
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    return stall


@pytest.mark.parametrize("by_thread", [True, False])
def test_a_wait_for_a_save_beside_the_steps_says_who_saves(by_thread: bool) -> None:
    driver, pipeline = started()
    spent = random.uniform(0.4, 2)
    who = {"tid": SAVER} if by_thread else {"tid": SERVER, "pid": SERVER}
    if not by_thread:
        driver.fork(SERVER)
    opened = driver.now
    driver.file(FileEventKind.OPENED, PATH, opened=opened, **who)
    driver.spend(spent, Leaf.LOCK)
    driver.file(FileEventKind.CLOSED, PATH, opened=opened, size=184_000_000, write=ns(spent), **who)
    stall = stall_of(driver, pipeline)
    name = f"thread {SAVER}" if by_thread else f"process {SERVER}"
    assert stall.cause == "checkpoint"
    assert stall.summary == f"waiting for {name} of the training, which writes checkpoint {PATH}"
    assert list(stall.chain) == [f"training thread waits for {name}", f"{name} writes {PATH}"]
    saver = "the one that saves" if by_thread else "the process that saves"
    assert stall.evidence[0].what == f"training thread waited for {saver}"
    assert stall.evidence[0].value == pytest.approx(spent, abs=0.03)
    said = "beside the steps already" if by_thread else "another process saves already"
    assert any(said in advice for advice in stall.advice)
    assert not any("(asynchronously)" in advice for advice in stall.advice)


GET = (
    "next_batch (loader.py:20)",
    "Queue.get (python3.11/queue.py:171)",
    "Condition.wait (python3.11/threading.py:320)",
)
JOIN = ("finish (train.py:40)", "Thread.join (python3.11/threading.py:1119)")
PAUSE = ("cool_down (train.py:50)",)
ANSWER = ("step_wait (envs.py:50)", "Connection.recv (python3.11/connection.py:250)")
FINISH = ("wait_until_finished (orbax/checkpointer.py:9)", "run_until_complete (python3.11/base_events.py:640)")


@pytest.mark.parametrize(
    ("leaf", "stack", "command", "cause"),
    [
        (Leaf.LOCK, JOIN, "", "checkpoint"),
        (Leaf.LOCK, (), "", "checkpoint"),
        (Leaf.POLL, FINISH, "", "checkpoint"),
        (Leaf.LOCK, GET, "", "unknown"),
        (Leaf.POLL, ANSWER, "", "unknown"),
        (Leaf.SLEEP, PAUSE, "", "unknown"),
        (Leaf.SLEEP, (), "", "unknown"),
        (Leaf.PIPE_READ, (), "nvidia-smi", "unknown"),
        (Leaf.CHILD, (), "nvidia-smi", "unknown"),
        (Leaf.POLL, (), "date", "checkpoint"),
    ],
)
def test_what_else_is_waited_for_while_a_thread_saves(
    leaf: Leaf, stack: tuple[str, ...], command: str, cause: str
) -> None:
    """An asynchronous save may go on for minutes: a pause, a command, a batch of a thread's are not for it."""
    driver, pipeline = started()
    opened = driver.now
    driver.file(FileEventKind.OPENED, PATH, opened=opened, tid=SAVER)
    driver.train(20)
    if command:
        run_command(driver, UPLOAD, command)
    if command == "date":
        driver.events.append(ProcessEvent(ProcessEventKind.EXIT, driver.now, UPLOAD, driver.pid, command, code=0))
    begun, threads = driver.now, (PythonThread(6, "decode (loader.py:44)"), PythonThread(7, "save (torch/serial.py:9)"))
    for look in range(3):
        driver.spend(0.6, leaf)
        beside = (
            ThreadLook(66, 6, "R", "", ns(0.6 * look)),
            ThreadLook(SAVER, 7, "D", "folio_wait_writeback", 0, PATH),
        )
        seen = Inspection(driver.pid, driver.tid, "S", "futex_wait_queue", threads=beside)
        if stack:
            driver.events.append(
                StackSeen(driver.now, driver.pid, driver.tid, ("main (a.py:1)", *stack), others=threads)
            )
        sample = replace(driver.sample(leaf), run=ThreadState.BLOCKED, since_ns=begun)
        played(driver, pipeline, threads=(sample,), inspections=(seen,))
    driver.train(20)
    driver.file(FileEventKind.CLOSED, PATH, opened=opened, size=184_000_000, write=ns(3), tid=SAVER)
    stall = stall_of(driver, pipeline)
    assert stall.cause == cause
    assert stall.seconds == pytest.approx(1.8, abs=0.05)


def test_a_wait_for_a_batch_is_for_no_file_that_workers_write() -> None:
    """A worker keeps what it has decoded in a file of its own, cache-2.bin, which it has open all the time."""
    driver, pipeline = started()
    driver.fork(2000)
    driver.train(20)
    driver.file(FileEventKind.OPENED, "/data/cache-2.bin", opened=driver.now, tid=2000, pid=2000)
    driver.work(1.0)
    driver.spend(1.0, Leaf.PIPE_READ, Region.FETCH)
    assert stall_of(driver, pipeline).cause == "data_cpu"


def test_what_the_driver_serialises_while_its_threads_write_is_the_saves_too() -> None:
    """As orbax has it: the driver's own file stays open all the time, its threads write the others."""
    driver, pipeline = started()
    opened, own = driver.now, "/run/save-640/_CHECKPOINT_METADATA"
    driver.file(FileEventKind.OPENED, own, 70, opened)
    for ino, waited in ((71, 0.05), (72, 0.12)):
        begun = driver.now
        driver.file(FileEventKind.OPENED, PATH, ino, begun, tid=SAVER)
        driver.spend(waited, Leaf.LOCK)
        driver.spend(0.15, Leaf.CPU)
        driver.file(FileEventKind.CLOSED, PATH, ino, begun, 8_790_016, write=ns(0.15), tid=SAVER)
    driver.file(FileEventKind.CLOSED, own, 70, opened, 666)
    stall = stall_of(driver, pipeline)
    assert stall.shares == {"checkpoint": pytest.approx(0.47, abs=0.03)}
    assert stall.summary.startswith(f"waiting for thread {SAVER} of the training, which writes checkpoint")


@pytest.mark.parametrize("runs", [True, False], ids=["it still runs", "it ended"])
def test_a_wait_for_a_command_names_it(runs: bool) -> None:
    """The one that ran longest: another was short, a third ended before."""
    driver, pipeline = started()
    for pid, name, seconds in ((UPLOAD - 2, "before", 0.001), (UPLOAD - 1, "nvidia-smi", 0.02), (UPLOAD, "aws", 1.2)):
        run_command(driver, pid, name)
        driver.spend(seconds, Leaf.CHILD)
        if pid != UPLOAD or not runs:
            driver.events.append(ProcessEvent(ProcessEventKind.EXIT, driver.now, pid, driver.pid, name, code=0))
        if name == "before":
            driver.train(2)
            played(driver, pipeline)
    stall = stall_of(driver, pipeline)
    assert stall.cause == "unknown"
    assert stall.summary.startswith(f"waiting for aws (pid {UPLOAD}) that the training started: 1.2")
    assert list(stall.chain) == [f"training thread waits for aws (pid {UPLOAD})"]


def test_a_wait_for_the_output_of_a_command_names_it() -> None:
    """As subprocess.check_output: a read of a pipe. A service that runs all the time is no such command."""
    driver, pipeline = started()
    for pid, name in ((UPLOAD - 1, "service"), (UPLOAD, "ffmpeg")):
        run_command(driver, pid, name)
        if name == "service":
            driver.train(2)
            played(driver, pipeline)
    driver.spend(1.2, Leaf.PIPE_READ)
    stall = stall_of(driver, pipeline)
    assert stall.summary.startswith(f"waiting for ffmpeg (pid {UPLOAD}) that the training started: 1.2")


def test_a_wait_for_a_child_nobody_saw_start_is_still_told() -> None:
    driver, pipeline = started()
    driver.spend(1.0, Leaf.CHILD)
    assert stall_of(driver, pipeline).summary.startswith("waiting for a process that the training started: ")


def test_who_waits_for_the_end_of_a_process_that_it_forks_waits_for_its_work() -> None:
    driver, pipeline = started()
    driver.fork(UPLOAD - 1)
    driver.train(2)
    played(driver, pipeline)
    driver.fork(UPLOAD)
    driver.spend(1.0, Leaf.CHILD)
    stall = stall_of(driver, pipeline)
    assert stall.summary.startswith("waiting for a process that the training started: ")


def test_the_headline_of_a_pause_has_its_line() -> None:
    driver, pipeline = started()
    for _ in range(2):
        driver.spend(1.0, Leaf.SLEEP)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, ("main (train.py:3)", "poll (train.py:9)")))
        driver.train(20)
    verdict = rank_of(played(driver, pipeline), driver).verdict
    assert verdict.summary.startswith("the training's own pauses cost 2.00 s")
    assert "in 2 stalls, in poll (train.py:9), in 2 of 2 sampled stalls; the longest: a pause that" in verdict.summary


def test_a_sleep_of_the_drivers_own_is_told_as_that() -> None:
    driver, pipeline = started()
    spent = random.uniform(0.4, 2)
    driver.spend(spent, Leaf.SLEEP)
    stall = stall_of(driver, pipeline)
    assert stall.cause == "unknown"
    assert stall.summary.startswith("a pause that the training's own code asks for: ")
    assert stall.seconds == pytest.approx(spent, abs=0.03)


def test_processes_that_are_not_a_loaders_are_not_called_that() -> None:
    driver, pipeline = started()
    for pid in (SERVER, SERVER + 1):
        driver.fork(pid)
        driver.spend(0.3)
        frames = ("main (train.py:3)", "Popen._launch (popen_fork.py:66)")
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
        driver.train(30)
        driver.die(pid)
    stalls = rank_of(played(driver, pipeline), driver).stalls
    assert stalls
    assert stalls[-1].cause == "worker_startup"
    assert stalls[-1].summary.startswith("the training started processes of its own: 1, 300 ms")
    assert "persistent_workers" not in " ".join(stalls[-1].advice)
    assert "keep the processes" in stalls[-1].advice[0]


def test_what_the_training_computes_behind_a_fork_is_not_for_the_process() -> None:
    """No stack shows that it starts one."""
    driver, pipeline = started()
    driver.fork(SAVER)
    driver.train(20)
    driver.fork(SERVER)
    driver.spend(0.9)
    driver.spend(0.4, Leaf.SLEEP)
    driver.train(30)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost["cpu_bound"] == pytest.approx(0.9, abs=0.06)
    assert rank.lost["unknown"] == pytest.approx(0.4, abs=0.06)
    assert rank.lost.get("worker_startup", 0.0) <= 0.06


@pytest.mark.parametrize("work", [1.2, 0.1])
def test_processes_that_work_are_waited_for_and_others_are_started(work: float) -> None:
    driver, pipeline = started()
    driver.fork(SAVER)
    driver.train(20)
    for pid in (SERVER, SERVER + 1):
        driver.fork(pid)
    driver.work(work)
    driver.spend(1.0, Leaf.LOCK)
    stall = stall_of(driver, pipeline)
    if work > 1:
        assert stall.cause == "unknown"
        assert stall.summary.startswith("waiting for 2 processes that the training started in the step: 1.00 s")
    else:
        assert stall.cause == "worker_startup"


def test_one_pause_is_no_loop_that_waits_for_a_file() -> None:
    """Whatever the training asks for behind it."""
    driver, pipeline = started()
    begun = driver.now
    for passes in range(12):
        driver.spend(0.1, Leaf.SLEEP)
        threads = (replace(driver.sample(Leaf.SLEEP), run=ThreadState.BLOCKED, since_ns=begun),)
        if passes > 3:
            driver.events.append(FileLooked(driver.now, driver.pid, driver.tid, "/runs/out"))
        pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=threads))
        driver.events.clear()
    assert stall_of(driver, pipeline).summary.startswith("a pause that the training's own code asks for: ")


@pytest.mark.parametrize(("rest", "told"), [(0.03, 0.0), (0.08, 0.08)])
def test_a_step_that_worked_longer_has_no_stall_for_a_little_without_a_cause(rest: float, told: float) -> None:
    driver = Driver()
    driver.begin()
    driver.train(60)
    driver.spend(0.06)
    driver.spend(0.06, region=Region.BACKWARD)
    driver.spend(rest, Leaf.OTHER)
    driver.train(20)
    rank = rank_of(played(driver), driver)
    assert sum(stall.seconds for stall in rank.stalls) == pytest.approx(told, abs=0.002)


@pytest.mark.parametrize(("leaf", "cause"), [(Leaf.SOCKET, "network"), (Leaf.SLEEP, "unknown")])
def test_a_trackers_answer_within_an_evaluation_is_none_of_it(leaf: Leaf, cause: str) -> None:
    driver, pipeline = started()
    for _ in range(20):
        driver.fetch(0.002)
        driver.spend(0.02, region=Region.NO_GRAD)
    driver.spend(1.3, leaf)
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {cause: pytest.approx(1.3, abs=0.01)}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.44, abs=0.02)
    assert [phase.step for phase in rank.phases if phase.phase == "evaluation"] == [40]


@pytest.mark.parametrize("looked", [True, False])
@pytest.mark.parametrize("evaluates", [True, False])
def test_the_line_of_a_trackers_answer_is_not_that_of_what_was_computed_before(evaluates: bool, looked: bool) -> None:
    """Of an evaluation's metrics, or of work of the training's own. ``looked``: also while it waits."""
    driver, pipeline = started()
    for _ in range(20 * evaluates):
        driver.fetch(0.002)
        driver.spend(0.02, region=Region.NO_GRAD)
    line = "evaluate (train.py:30)" if evaluates else "search (train.py:30)"
    for seconds, leaf, inner in (
        (0.5, Leaf.CPU, (line, "rouge (train.py:50)")),
        (1.3, Leaf.SOCKET, ("log (train.py:60)",)),
    ):
        driver.spend(seconds, leaf)
        if looked or leaf == Leaf.CPU:
            frames = ("<module> (train.py:99)", "main (train.py:9)", *inner)
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=leaf == Leaf.CPU))
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.verdict.cause == "network"
    assert ("log (train.py:60)" in rank.verdict.summary) == looked
    assert "rouge" not in rank.verdict.summary


@pytest.mark.parametrize("removes", [True, False])
def test_files_of_the_trainings_own_are_named(removes: bool) -> None:
    """Features that it keeps, and a cache that it clears: neither checkpoint nor log."""
    driver, pipeline = started()
    for number in range(3):
        driver.train(20)
        if removes:
            began = driver.now
            driver.spend(0.8, Leaf.FILE_META)
            driver.file(FileEventKind.UNLINKED, f"/cache/shard-{number}.mds", 0, began)
        else:
            driver.write(f"/cache/{number}.npy", 3_000_000, 0.8, ino=20 + number)
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {"unknown": pytest.approx(2.4, abs=0.02)}
    assert rank.verdict.summary.startswith("writing or removing files cost 2.40 s")
    assert ("as /cache/2.npy" in rank.stalls[-1].summary) != removes


@pytest.mark.parametrize(("each", "told"), [(0.035, True), (0.005, False)])
def test_short_bursts_of_lines_are_told_where_they_add_up(each: float, told: bool) -> None:
    """Below a stall's limit, in one of 40 steps: 1.7 % of the run, or 0.2 %."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    for _ in range(20):
        driver.write("/run/train.log", 4_000, each, created=False)
        driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.stalls == []
    assert rank.lost == ({"logging": pytest.approx(20 * each, rel=0.05)} if told else {})
    assert ("writing /run/train.log" in rank.verdict.summary) == told


def test_one_slow_line_of_a_log_is_no_rhythm() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.write("/run/train.log", 4_000, random.uniform(0.5, 2.0), created=False)
    driver.train(40)
    driver.exit()
    (stall,) = rank_of(played(driver), driver).stalls
    assert stall.cause == "logging"
    assert not any("every" in advice for advice in stall.advice)


def test_what_a_picture_takes_between_its_writes_is_no_logs() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    driver.write("/out/curves.png", 90_000, 0.001, gap=0.5, ino=8)
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/out/train.log", 9, opened)
    driver.spend(0.3, Leaf.FILE_WRITE)
    driver.spend(0.1, Leaf.FILE_GAP)
    driver.files[1, 9] = StepFile(1, 9, ns(0.3), ns(0.1), 40_000, 5_000)
    driver.file(FileEventKind.CLOSED, "/out/train.log", 9, opened, 40_000, ns(0.3))
    driver.train(30)
    rank = rank_of(played(driver), driver)
    assert rank.lost == pytest.approx({"logging": 0.4, "cpu_bound": 0.5}, abs=0.02)


@pytest.mark.parametrize("fed", [False, True])
def test_a_command_with_a_time_limit_is_waited_for_in_sleeps(fed: bool) -> None:
    """subprocess.run(timeout=…) asks for its end again and again."""
    driver, pipeline = started()
    if fed:
        driver.fork(SERVER)
        driver.train(20)
        played(driver, pipeline)
    run_command(driver, UPLOAD, "rsync")
    driver.spend(1.2, Leaf.SLEEP)
    driver.events.append(ProcessEvent(ProcessEventKind.EXIT, driver.now, UPLOAD, driver.pid, "rsync", code=0))
    stall = stall_of(driver, pipeline)
    assert stall.summary.startswith(f"waiting for rsync (pid {UPLOAD}) that the training started: 1.2")


def test_beside_a_loader_the_output_of_a_command_is_no_batch() -> None:
    """Its workers work meanwhile."""
    driver, pipeline = started()
    driver.fork(SERVER)
    driver.train(20)
    played(driver, pipeline)
    run_command(driver, UPLOAD, "git")
    driver.spend(1.2, Leaf.PIPE_READ)
    driver.work(1.0)
    stall = stall_of(driver, pipeline)
    assert stall.cause == "unknown"
    assert stall.summary.startswith(f"waiting for git (pid {UPLOAD}) that the training started: 1.2")


@pytest.mark.parametrize(("each", "steps", "answers"), [(0.15, 40, False), (0.8, 40, True), (0.8, 1, True)])
def test_answers_are_what_each_step_waits_for_long(each: float, steps: int, answers: bool) -> None:
    """Short requests of a tracker in many steps after one another are one stall, and no long answer."""
    driver, pipeline = started()
    for _ in range(3 if steps > 1 else 40):
        for _ in range(steps):
            driver.spend(each, Leaf.SOCKET)
            driver.step()
        driver.train(20 if steps > 1 else 4)
    rank = rank_of(played(driver, pipeline), driver)
    assert {stall.cause for stall in rank.stalls} == {"network"}
    assert any("ask for the next step's" in line for line in rank.stalls[0].advice) == answers
