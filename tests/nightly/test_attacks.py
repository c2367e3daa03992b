"""What one user's processes do, minutes long, holds up no other user's training, and the daemon stays small."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.limits import fake_torch
from benchmarks.programs import Daemon
from tests.training.test_restart import SCRIPT, rank, stalls, wait_until
from tests.training.test_unanswered import LOCKED, PROGRAM, as_user, group
from trainprobe.collect.procfs import Proc

pytestmark = pytest.mark.nightly

ATTACKER, VICTIM = 2_100_001, 2_100_002
SECONDS = float(os.environ.get("TRAINPROBE_ATTACK_SECONDS", "120"))
CPU_SHARE, RSS_BYTES = 0.30, 80e6
STALLED_SECONDS = FOUND_SECONDS = 1.0
DUE_SECONDS, COSTLY_SECONDS, LATE_SECONDS = 1.0, 5.0, 1.0
"""Between two reports while a step is late; where those of thousands of threads cost more than their share of the time;
how late one may be."""
TOLD = ("slots", "processes", "libraries", "python_stack")
"""Sources that report what is refused, and what does not answer."""
FEW_THREADS, MANY_THREADS, BESIDE_SECONDS = 100, 10_000, 20.0
BOMB = """
import os, time
while True:
    for _ in range(20):
        if os.fork() == 0:
            os.execv("/usr/bin/python3", ["python3", "-c", "import time; time.sleep(1)"])
    for _ in range(20):
        os.wait()
"""
THREADS = """
import ctypes, time
library = ctypes.CDLL({library!r})
time.sleep(2)
library.start({threads}, 1000)
time.sleep(100000)
"""
MAPPED = """
import mmap, os, time
number = 0
while True:
    held = []
    for _ in range(50):
        number += 1
        path = f"{place}/{{os.getuid()}}-{{number}}/libtorch_cpu.so"
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(b"no ELF" * 1000)
        with open(path, "rb") as file:
            held.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC))
        os.remove(path)
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
    time.sleep(5)
    for _ in held:
        os.wait()
"""


@dataclass
class Watched:
    """What the daemon used meanwhile."""

    rss: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    published_seconds: list[float] = field(default_factory=list)
    apart_seconds: list[float] = field(default_factory=list)
    found_seconds: float = 0.0
    cpu_share: float = 0.0


def cpu_seconds(pid: int) -> float:
    """Of the daemon, its children that have ended and those that have not."""
    ticks = 0
    for path in (Path(f"/proc/{pid}"), *(Path(f"/proc/{child}") for child in Proc().children(pid))):
        with suppress(OSError):
            ticks += sum(map(int, (path / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="trainprobe-attack-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "theirs").mkdir()
        (folder / "theirs").chmod(0o777)
        fake_torch.built(folder).chmod(0o755)
        began = f"    open('{folder}/theirs/began', 'a').close()\n"
        (folder / "train.py").write_text(
            SCRIPT.replace("    optimizer.zero_grad()\n", began + "    optimizer.zero_grad()\n")
        )
        yield folder


@contextmanager
def attack(how: str, place: Path, python: str) -> Iterator[None]:
    """``python``: one with PyTorch."""
    with ExitStack() as stack:
        users = [3_000_000 + number for number in range(16)] if how == "libraries" else [ATTACKER]
        body = {
            "bomb": BOMB,
            "threads": THREADS.format(library=str(place / fake_torch.NAME), threads=6000),
            "libraries": MAPPED.format(place=place / "theirs"),
        }.get(how)
        if body is not None:
            for uid in users:
                stack.enter_context(group(*as_user(uid), "/usr/bin/python3", "-c", body))
        else:
            locked(how, place, stack, python)
        yield


def locked(how: str, place: Path, stack: ExitStack, python: str) -> None:
    """Four processes whose memory map a file system that does not answer keeps locked; or trainings that start such."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None
    subprocess.run([compiler, "-pthread", "-o", str(place / "locked"), str(LOCKED)], check=True)
    shutil.copy(PROGRAM, place)
    os.mknod(place / "fuse", 0o020666, os.stat("/dev/fuse").st_rdev)
    (place / "fuse").chmod(0o666)
    for number in range(4):
        mounted = place / f"mounted{number}"
        mounted.mkdir()
        mounted.chmod(0o777)
        arguments = (how, str(place / "fuse"), str(mounted), str(int(SECONDS) + 60), str(place / "locked"))
        command = (python, str(place / PROGRAM.name), *arguments)
        namespaces = ("unshare", "--user", "--map-root-user", "--mount")
        stack.enter_context(group(*as_user(ATTACKER), *namespaces, *command, stdout=subprocess.DEVNULL))


def seconds_between_reports(daemon: Daemon) -> float:
    """Between the next two reports."""

    def next_one(last: float) -> float:
        made = wait_until(lambda: (at := float(daemon.report()["generated_monotonic"])) > last and at, 10)
        return float(made)

    first = next_one(float(daemon.report()["generated_monotonic"]))
    return next_one(first) - first


def refusals(daemon: Daemon) -> dict[str, str]:
    """Sources that are not up because of processes."""
    sources = daemon.report()["sources"]
    return {name: sources[name]["reason"] for name in TOLD if sources.get(name, {"state": "up"})["state"] != "up"}


@pytest.mark.timeout(int(SECONDS) + 240)
@pytest.mark.parametrize("how", ["bomb", "threads", "libraries", "lock", "arguments"])
def test_a_stall_of_another_user_is_published_in_time_all_the_while(
    tmp_path: Path, place: Path, torch_python: str, how: str
) -> None:
    seen = Watched()
    with Daemon(tmp_path) as daemon, attack(how, place, torch_python):
        time.sleep(5)
        with group(*as_user(VICTIM), torch_python, str(place / "train.py")) as training:
            wait_until((place / "theirs/began").exists, 60)
            first_step = time.monotonic()
            wait_until(lambda: rank(daemon, training.pid), 10)
            seen.found_seconds = time.monotonic() - first_step
            wait_until(lambda: (rank(daemon, training.pid) or {"steps": {"count": 0}})["steps"]["count"] > 40, 60)
            began, before = time.monotonic(), cpu_seconds(daemon.process.pid)
            while time.monotonic() - began < SECONDS:
                training.send_signal(signal.SIGSTOP)
                stopped = time.monotonic()
                wait_until(lambda: stalls(daemon, training.pid, is_open=True), STALLED_SECONDS + 0.5)
                seen.published_seconds.append(time.monotonic() - stopped)
                seen.apart_seconds.append(seconds_between_reports(daemon))
                training.send_signal(signal.SIGCONT)
                wait_until(lambda: not stalls(daemon, training.pid, is_open=True), 15)
                status = Path(f"/proc/{daemon.process.pid}/status").read_text()
                seen.rss.append(int(status.partition("VmRSS:")[2].split()[0]) << 10)
                seen.descriptors.append(len(os.listdir(f"/proc/{daemon.process.pid}/fd")))
                time.sleep(2)
            seen.cpu_share = (cpu_seconds(daemon.process.pid) - before) / (time.monotonic() - began)
            print(
                f"{how}: found {seen.found_seconds:.2f} s after its first step,"
                f" stalls within {max(seen.published_seconds):.2f} s, reports {max(seen.apart_seconds):.2f} s apart,"
                f" {max(seen.rss) / 1e6:.1f} MB, {seen.cpu_share:.1%} of a core, {refusals(daemon)}"
            )
    assert daemon.process.returncode == 0, "it ended as it was told to, and not before"
    assert seen.found_seconds <= FOUND_SECONDS
    assert max(seen.apart_seconds) <= (COSTLY_SECONDS if how == "threads" else DUE_SECONDS) + LATE_SECONDS
    assert max(seen.rss) <= RSS_BYTES
    assert seen.cpu_share <= CPU_SHARE
    half = len(seen.descriptors) // 2
    assert statistics.median(seen.descriptors[half:]) <= statistics.median(seen.descriptors[:half] or [1 << 20]) + 64


@pytest.mark.timeout(180)
def test_ten_thousand_threads_that_step_cost_no_more_than_a_hundred(tmp_path: Path, place: Path) -> None:
    """Of one process: while they begin, and then."""
    begun, after = {}, {}
    for threads in (FEW_THREADS, MANY_THREADS):
        body = THREADS.format(library=str(place / fake_torch.NAME), threads=threads)
        (folder := tmp_path / str(threads)).mkdir()
        with Daemon(folder) as daemon, group(*as_user(ATTACKER), "/usr/bin/python3", "-c", body) as training:
            before = cpu_seconds(daemon.process.pid)
            wait_until(lambda: rank(daemon, training.pid), 20)
            time.sleep(5)
            assert len(os.listdir(f"/proc/{training.pid}/task")) > threads
            begun[threads] = cpu_seconds(daemon.process.pid) - before
            time.sleep(BESIDE_SECONDS)
            after[threads] = (cpu_seconds(daemon.process.pid) - before - begun[threads]) / BESIDE_SECONDS
            print(f"{threads} threads: {begun[threads]:.2f} s at their start, then {after[threads]:.1%} of a core")
    assert begun[MANY_THREADS] <= begun[FEW_THREADS] + 0.5
    assert after[MANY_THREADS] <= after[FEW_THREADS] + 0.01
