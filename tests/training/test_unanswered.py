"""What one user's processes do to a reader does not keep the daemon from another user's training."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pace
from benchmarks.programs import Daemon
from tests.builders.waiting import wait_until
from tests.training.test_restart import SCRIPT, rank, stalls
from trainprobe.bpf.read import initial_state
from trainprobe.bpf.read.paths import Paths
from trainprobe.collect import descriptors
from trainprobe.collect.instructions import Instructions
from trainprobe.collect.procfs import Proc
from trainprobe.collect.shared_memory import SharedMemoryReader

ATTACKER, VICTIM = 2_100_001, 2_100_002
PROGRAM, LOCKED = Path(__file__).with_name("unanswered.py"), Path(__file__).with_name("locked.c")
FILE_SYSTEM_SECONDS = 60
PUBLISHED_SECONDS = 1.0
ENDED_SECONDS = 10.0  # reports come seldom while all is well


def as_user(uid: int) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


@contextmanager
def group(*command: str, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends with all that it started."""
    child = subprocess.Popen(command, start_new_session=True, **how)
    try:
        yield child
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where other users may go; with a /dev/fuse for everybody, as udev makes it."""
    if (compiler := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")) is None:
        pytest.skip("no C compiler here")
    with tempfile.TemporaryDirectory(prefix="trainprobe-unanswered-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "mounted").mkdir()
        (folder / "mounted").chmod(0o777)
        os.mknod(folder / "fuse", stat.S_IFCHR | 0o666, os.stat("/dev/fuse").st_rdev)
        (folder / "fuse").chmod(0o666)
        subprocess.run([compiler, "-pthread", "-o", str(folder / "locked"), str(LOCKED)], check=True)
        shutil.copy(PROGRAM, folder)
        (folder / "train.py").write_text(SCRIPT)
        yield folder


@contextmanager
def attacked(place: Path, python: str, how: str) -> Iterator[subprocess.Popen[bytes]]:
    arguments = (how, str(place / "fuse"), str(place / "mounted"), str(FILE_SYSTEM_SECONDS), str(place / "locked"))
    command = (python, str(place / PROGRAM.name), *arguments)
    with group(
        *as_user(ATTACKER), "unshare", "--user", "--map-root-user", "--mount", *command, stdout=subprocess.PIPE
    ) as attacker:
        yield attacker
        assert attacker.poll() is None


def processes(holds: Callable[[Path], bool]) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == ATTACKER and holds(folder):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def follow(daemon: Daemon, place: Path, python: str) -> None:
    """Another user's training is found, and each of its stalls is published in time."""
    with group(*as_user(VICTIM), python, str(place / "train.py")) as training:
        wait_until(lambda: (rank(daemon, training.pid) or {"steps": {"count": 0}})["steps"]["count"] > 40, 30)
        for more in (True, False):
            training.send_signal(signal.SIGSTOP)
            wait_until(lambda: stalls(daemon, training.pid, is_open=True), PUBLISHED_SECONDS)
            training.send_signal(signal.SIGCONT)
            if more:
                wait_until(lambda: not stalls(daemon, training.pid, is_open=True), ENDED_SECONDS)
                time.sleep(0.5)


def stack_source(daemon: Daemon) -> dict[str, str]:
    found: dict[str, str] = daemon.report()["sources"].get("python_stack", {"state": "up"})
    return found


@pytest.mark.timeout(60)
def test_what_waits_for_a_lock_is_given_up_in_time(place: Path) -> None:
    with attacked(place, "/usr/bin/python3", "lock") as attacker:
        (child,) = wait_until(lambda: Proc().children(attacker.pid)[1:], 10)
        time.sleep(0.2)
        for pid, names in (
            (attacker.pid, ("cmdline", "environ", "smaps_rollup")),
            (child, ("io", f"task/{child}/syscall", "cmdline", "environ")),
        ):
            for name in names:
                began = time.monotonic()
                assert Proc().read(pid, name, 100) is None, f"{name} can be read: the test tries nothing"
                assert pace.within(time.monotonic() - began, 0.5)
        others: tuple[Callable[[Proc], object], ...] = (  # some wait for that lock in new kernels
            lambda proc: proc.stat(child),
            lambda proc: proc.maps(child),
            lambda proc: proc.read(child, "wchan", 100),
            lambda proc: [proc.link(child, name) for name in ("cwd", "fd/0", "ns/pid")],
            lambda proc: proc.links((child, os.getpid()), "ns/pid")[os.getpid()],
            lambda proc: [descriptors.kinds(proc, child), descriptors.gpu_files(proc, child)],
            lambda proc: SharedMemoryReader(proc).limit("r", child, "", 0),
            lambda proc: Instructions(proc).count(((child, child),)),
            lambda proc: initial_state.doing(child, child, proc),
            lambda proc: Paths(proc).note_process(child),
            lambda proc: [
                proc.status(child),
                proc.cgroup(child),
                proc.mountinfo(child),
                proc.read(child, "limits", 100),
            ],
            lambda proc: [proc.limited((), (), [child])[2], proc.threads(child), proc.children(child)],
        )
        for read in others:
            began = time.monotonic()
            read(Proc())
            assert pace.within(time.monotonic() - began, 0.5)


@pytest.mark.timeout(90)
def test_a_stack_that_cannot_be_read(tmp_path: Path, place: Path, torch_python: str) -> None:
    with Daemon(tmp_path) as daemon, attacked(place, torch_python, "stack") as attacker:
        wait_until(lambda: stack_source(daemon)["state"] == "error", 30)
        told = re.match(r"py-spy \(process (\d+)\) cannot be killed", stack_source(daemon)["reason"])
        assert told
        hung = Path("/proc", told[1])
        assert (hung / "stat").read_text().rpartition(")")[2].split()[0] == "D"
        assert stack_source(daemon)["remedy"]
        follow(daemon, place, torch_python)
        assert stack_source(daemon)["state"] == "error"
        (server,) = processes(lambda folder: folder.name not in (str(attacker.pid), hung.name))
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: stack_source(daemon)["state"] == "up", 25)
        assert not hung.exists()


@pytest.mark.timeout(90)
def test_arguments_that_cannot_be_read(tmp_path: Path, place: Path, torch_python: str) -> None:
    with Daemon(tmp_path) as daemon, attacked(place, torch_python, "arguments"):
        locked = wait_until(lambda: processes(lambda folder: (folder / "comm").read_text() == "locked\n"), 10)
        wait_until(lambda: len(processes(lambda folder: (folder / "comm").read_text() == "locked\n")) > 20, 30)
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(["cat", f"/proc/{locked[0]}/cmdline"], capture_output=True, timeout=0.5, check=False)
        follow(daemon, place, torch_python)
