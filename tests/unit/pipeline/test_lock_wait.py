"""A lock on a file, by a call that blocks or by a loop that looks at it: which file, and who holds it."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.cells import Leaf
from trainprobe.model.event import FileEventKind, FileLooked, StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Stall
from trainprobe.model.sample import HeldLock, Inspection

PATH = "/home/user/.cache/torch_extensions/ext.lock"
INO = 77


def stall_of(
    leaf: Leaf,
    frames: tuple[str, ...] = (),
    *,
    held: tuple[HeldLock, ...] = (),
    opened: bool = True,
    locking: str = "",
    forks: bool = False,
    asks: str = "",
    runs: bool = False,
    writer: int = 0,
) -> Stall:
    driver = Driver()
    driver.begin()
    if forks:
        driver.fork(1999)
    driver.train(40)
    pipeline = played(driver)
    if opened:
        driver.file(FileEventKind.OPENED, PATH, INO, driver.now)
    if writer:
        driver.fork(writer)
        driver.file(FileEventKind.OPENED, PATH, INO, driver.now, pid=writer, tid=writer)
    if forks:
        driver.fork(2000)
    for number in range(4):
        driver.spend(0.5, leaf)
        seen = Inspection(driver.pid, driver.tid, "S", path=PATH if locking else "", locking=locking, held_locks=held)
        seen = Inspection(driver.pid, driver.tid, "R") if runs and number == 3 else seen
        stack = StackSeen(driver.now, driver.pid, driver.tid, frames)
        look = FileLooked(driver.now, driver.pid, driver.tid, asks)
        events = (*driver.events, *([stack] if frames else []), *([look] if asks else []))
        driver.events.clear()
        pipeline.step(Frame(moment(driver.now), events, threads=(driver.sample(leaf),), inspections=(seen,)))
    driver.train(20)
    return rank_of(played(driver, pipeline), driver).stalls[-1]


def test_a_call_that_blocks_names_the_file_and_the_holder() -> None:
    held = (HeldLock(1, INO, 4711, "python"), HeldLock(1, 99, 1, "init"))
    stall = stall_of(Leaf.LOCK, held=held, locking="flock")
    assert stall.cause == "lock_wait"
    assert stall.seconds == pytest.approx(2.0, abs=0.1)
    assert stall.summary == f"waited 2.00 s for the lock {PATH}, which process 4711 (python) holds"
    assert stall.chain == [f"training thread blocked in flock on {PATH}"]
    assert "process 4711" in stall.advice[0]


def test_a_lock_that_nobody_here_holds_is_another_hosts_or_left_over() -> None:
    stall = stall_of(Leaf.LOCK, locking="fcntl")
    assert stall.summary.endswith(f"{PATH}, which no process of this host holds")
    assert f"no other training uses {PATH}" in stall.advice[0]


@pytest.mark.parametrize(
    ("held", "opened"), [((HeldLock(1, INO, -1),), True), ((HeldLock(1, INO, 4711),), False)]
)  # an open file description's has no pid; a file that was opened to read only has no known inode
def test_where_the_holder_is_not_known_none_is_named(held: tuple[HeldLock, ...], opened: bool) -> None:
    stall = stall_of(Leaf.LOCK, held=held, opened=opened, locking="flock")
    assert stall.summary == f"waited 2.00 s for the lock {PATH}"
    assert stall.advice[0] == f"see who holds {PATH}: lslocks, or the numbers in /proc/locks", "it is not left over"


def test_a_call_that_blocks_on_a_file_that_was_opened_long_ago_names_the_holder() -> None:
    held = (HeldLock(1, INO, 4711, "python", exclusive=True, path=PATH), HeldLock(1, 9, 2, "x", True, "/other.lock"))
    stall = stall_of(Leaf.LOCK, held=held, opened=False, locking="flock")
    assert stall.summary == f"waited 2.00 s for the lock {PATH}, which process 4711 (python) holds"


def test_a_loop_that_looks_at_a_lock_file_is_known_by_its_stack() -> None:
    frames = ("load (train.py:9)", "BaseFileLock._poll_until_acquired (_api.py:1177)")
    held = (HeldLock(1, INO, 4711, "python"),)
    assert stall_of(Leaf.SLEEP, frames, held=held).summary.endswith("which process 4711 (python) holds")
    assert stall_of(Leaf.SLEEP, frames).summary.endswith("a file that is the lock as long as it exists")
    baton = ("load (train.py:9)", "FileBaton.wait (torch/utils/file_baton.py:50)")
    assert stall_of(Leaf.SLEEP, baton, opened=False).summary == f"waited 2.00 s for a lock file, in {baton[1]}"


def test_a_look_between_two_attempts_does_not_hide_who_holds_the_lock() -> None:
    frames = ("load (train.py:9)", "LockAcquisition._poll_until_acquired (filelock/_acquire.py:177)")
    held = (HeldLock(1, INO, 4711, "python"),)
    assert stall_of(Leaf.SLEEP, frames, held=held, runs=True).summary.endswith("which process 4711 (python) holds")


def test_a_stack_of_a_thread_that_ran_when_it_was_taken_is_not_of_its_pause() -> None:
    """It is asked for during the pause and taken behind it."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    for line, running in ((25, False), (28, True)):
        driver.spend(0.5, Leaf.SLEEP)
        stack = StackSeen(driver.now, driver.pid, driver.tid, (f"<module> (train.py:{line})",), running=running)
        pipeline.step(Frame(moment(driver.now), (*driver.events, stack), threads=(driver.sample(Leaf.SLEEP),)))
        driver.events.clear()
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == "unknown"
    assert stall.python_stack == ["<module> (train.py:25)"]


def test_other_pauses_and_locks_are_not_a_files() -> None:
    frames = ("load (train.py:9)", "acquire (pool.py:12)")
    assert stall_of(Leaf.SLEEP, frames).cause == "unknown"
    assert stall_of(Leaf.LOCK).cause != "lock_wait"


def test_a_pause_while_another_process_has_locked_a_file_that_is_open_is_for_that_lock() -> None:
    """As SQLite waits: it sleeps, tries, sleeps; the stack is in its caller."""
    held = (HeldLock(1, INO, 4711, "python", exclusive=True, path="/data/study.db"),)
    stall = stall_of(Leaf.SLEEP, ("report (tune.py:9)",), held=held, opened=False)
    assert stall.cause == "lock_wait"
    assert stall.summary == "waited 2.00 s for the lock /data/study.db, which process 4711 (python) holds"
    assert stall.chain == ["training thread looks at the lock again and again, in report (tune.py:9)"]
    assert stall_of(Leaf.SLEEP, held=held, opened=False).chain == [
        "training thread sleeps, and /data/study.db is locked"
    ]


@pytest.mark.parametrize("name", ["data.lock", "lock", ".lock-3", "build_lock", "cache.LCK"])
def test_a_loop_of_the_users_own_that_asks_for_a_lock_file_waits_for_it(name: str) -> None:
    stall = stall_of(Leaf.SLEEP, ("build (train.py:9)",), opened=False, asks=f"/data/{name}")
    assert stall.cause == "lock_wait"
    assert stall.summary == f"waited 2.00 s for the lock /data/{name}, a file that is the lock as long as it exists"
    assert f"no other training uses /data/{name}" in stall.advice[0]
    assert stall_of(Leaf.SLEEP, opened=False, asks=f"/data/{name}").chain == [
        f"training thread sleeps and asks for /data/{name} again and again"
    ]


@pytest.mark.parametrize("name", ["block.bin", "clock.txt", "ready.flag"])
def test_a_loop_that_asks_for_another_file_is_a_pause_with_its_name(name: str) -> None:
    stall = stall_of(Leaf.SLEEP, opened=False, asks=f"/data/{name}")
    assert stall.cause == "unknown"
    assert stall.summary == f"a loop that sleeps and asks for /data/{name}: 2.00 s of sleep"


def test_a_lock_in_a_step_that_starts_processes_is_a_lock() -> None:
    stall = stall_of(Leaf.LOCK, locking="flock", forks=True)
    assert stall.cause == "lock_wait"


def test_a_holder_that_the_training_started_is_called_its_own() -> None:
    """Nobody is sent to look for a stranger, or to end what the training needs."""
    held = (HeldLock(1, INO, 1999, "python"),)
    stall = stall_of(Leaf.LOCK, held=held, locking="flock", forks=True)
    assert stall.summary == f"waited 2.00 s for the lock {PATH}, which process 1999 (python) of this training holds"
    assert stall.advice[0].startswith("let process 1999, which this training started, hold the lock shorter")


def test_a_file_that_its_holder_wrote_last_has_that_holder() -> None:
    """The training asks for it by its name in each attempt, and closes it before it sleeps."""
    frames = ("load (train.py:9)", "LockAcquisition._poll_until_acquired (filelock/_acquire.py:177)")
    held = (HeldLock(1, INO, 4711, "python"),)
    stall = stall_of(Leaf.SLEEP, frames, held=held, opened=False, asks=PATH, writer=4711)
    assert stall.summary.endswith("which process 4711 (python) of this training holds")
