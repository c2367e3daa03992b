"""Attacks of one user on the daemon, and what it does for another user's training meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.limits import fake_torch
from benchmarks.programs import resident
from tests.builders.waiting import wait_until
from tests.training.test_restart import SCRIPT
from tests.training.test_unanswered import LOCKED, PROGRAM, as_user, group
from trainprobe.collect.procfs import Proc

ATTACKER, VICTIM = 2_100_001, 2_100_002
SECONDS = float(os.environ.get("TRAINPROBE_ATTACK_SECONDS", "120"))
CPU_SHARE, RSS_BYTES = 0.30, 80e6
STALLED_SECONDS = FOUND_SECONDS = 1.0
DUE_SECONDS, COSTLY_SECONDS, LATE_SECONDS = 1.0, 5.0, 1.0
"""Between two reports while a step is late; where those of thousands of threads cost more than their share of the time,
or the daemon has to spare and says so; how late one may be."""
TOLD = ("budget", "slots", "processes", "libraries", "python_stack")
"""Sources that report what is left out, what is refused, and what does not answer."""
REFUSED = {"libraries": {"slots"}, "lock": {"processes"}, "arguments": {"processes"}, "fuse": {"libraries", "slots"}}
"""Where it is told. Whose libraries have hung of late has none read for a while, and that is told as ``slots``."""
TOLD_SECONDS = 40.0  # a library that hangs is reported after thirty
ATTACKS = ("bomb", "threads", "libraries", "lock", "arguments", "fuse")
SCRAPE_SECONDS, EXPORTER_RSS_BYTES, CLIENTS = 1.0, 50e6, 256
SLOW_CLIENTS, HUNG = Path(__file__).with_name("slow_clients.py"), Path(__file__).with_name("hung_filesystem.py")
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
    refusals: dict[str, str] = field(default_factory=dict)
    other_stalls: Counter[str] = field(default_factory=Counter)  # of the victim, by cause: contention is true

    def __str__(self) -> str:
        return (
            f"found {self.found_seconds:.2f} s after its first step,"
            f" stalls within {max(self.published_seconds):.2f} s"
            f" (half of {len(self.published_seconds)} within {statistics.median(self.published_seconds):.2f}),"
            f" reports {max(self.apart_seconds):.2f} s apart,"
            f" {max(self.rss) / 1e6:.1f} MB, {self.cpu_share:.1%} of a core, {self.refusals},"
            f" other stalls {dict(self.other_stalls)}"
        )

    def hold(self, how: str) -> None:
        """The promises, each."""
        assert self.found_seconds <= FOUND_SECONDS
        spares = how == "threads" or "budget" in self.refusals
        assert max(self.apart_seconds) <= (COSTLY_SECONDS if spares else DUE_SECONDS) + LATE_SECONDS
        assert max(self.rss) <= RSS_BYTES
        assert self.cpu_share <= CPU_SHARE
        half = len(self.descriptors) // 2
        early = statistics.median(self.descriptors[:half] or [1 << 20])
        assert statistics.median(self.descriptors[half:]) <= early + 64


def cpu_seconds(pid: int) -> float:
    """Of the daemon, its children that have ended and those that have not."""
    ticks = 0
    for path in (Path(f"/proc/{pid}"), *(Path(f"/proc/{child}") for child in Proc().children(pid))):
        with suppress(OSError):
            ticks += sum(map(int, (path / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def theirs() -> Iterator[Path]:
    """Where both users may go, with the programs of both."""
    with tempfile.TemporaryDirectory(prefix="trainprobe-attack-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "theirs").mkdir()
        (folder / "theirs").chmod(0o777)
        fake_torch.built(folder).chmod(0o755)
        shutil.copy(SLOW_CLIENTS, folder)
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
        if how == "fuse":
            hung(place, stack)
        elif body is not None:
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
    for mounted in mount_points(place):
        arguments = (how, str(place / "fuse"), str(mounted), str(int(SECONDS) + 60), str(place / "locked"))
        in_a_namespace(stack, python, str(place / PROGRAM.name), *arguments)


def hung(place: Path, stack: ExitStack) -> None:
    """Four trainings whose folder and library lie on a file system that stops answering: two before anybody else can
    have read the library, two later."""
    for number, mounted in enumerate(mount_points(place)):
        arguments = (str(mounted), str(place / fake_torch.NAME), str(ATTACKER), str(8 * (number // 2)))
        command = ("unshare", "--mount", "/usr/bin/python3", str(HUNG), *arguments, str(int(SECONDS) + 60))
        stack.enter_context(group(*command, stdout=subprocess.DEVNULL))


def mount_points(place: Path) -> list[Path]:
    """Four; and a /dev/fuse for everybody, as udev makes it."""
    os.mknod(place / "fuse", 0o020666, os.stat("/dev/fuse").st_rdev)
    (place / "fuse").chmod(0o666)
    made = [place / f"mounted{number}" for number in range(4)]
    for mounted in made:
        mounted.mkdir()
        mounted.chmod(0o777)
    return made


def in_a_namespace(stack: ExitStack, *command: str) -> None:
    """What it mounts ends with it."""
    namespaces = ("unshare", "--user", "--map-root-user", "--mount")
    stack.enter_context(group(*as_user(ATTACKER), *namespaces, *command, stdout=subprocess.DEVNULL))


class Watching(Protocol):
    """A daemon that runs."""

    @property
    def pid(self) -> int: ...
    def report(self) -> dict[str, Any]: ...


def rank(daemon: Watching, pid: int) -> dict[str, Any] | None:
    ranks = (rank for run in daemon.report()["runs"] for rank in run["ranks"])
    return next((rank for rank in ranks if rank["pid"] == pid), None)


def steps(daemon: Watching, pid: int) -> int:
    return int((rank(daemon, pid) or {"steps": {"count": 0}})["steps"]["count"])


def stalls(daemon: Watching, pid: int, *, is_open: bool) -> list[dict[str, Any]]:
    return [one for one in (rank(daemon, pid) or {"stalls": []})["stalls"] if (one["end"] is None) is is_open]


def seconds_between_reports(daemon: Watching) -> float:
    """Between the next two reports."""

    def next_one(last: float) -> float:
        made = wait_until(lambda: (at := float(daemon.report()["generated_monotonic"])) > last and at, 10)
        return float(made)

    first = next_one(float(daemon.report()["generated_monotonic"]))
    return next_one(first) - first


def refusals(daemon: Watching) -> dict[str, str]:
    """Sources that are not up because of processes."""
    sources = daemon.report()["sources"]
    return {name: sources[name]["reason"] for name in TOLD if sources.get(name, {"state": "up"})["state"] != "up"}


def stop_again_and_again(daemon: Watching, place: Path, python: str, how: str, seconds: float = SECONDS) -> Watched:
    """Another user's training during an attack: it is found, and each of its stalls is published."""
    seen = Watched()
    with group(*as_user(VICTIM), python, str(place / "train.py")) as training:
        wait_until((place / "theirs/began").exists, 60)
        first_step = time.monotonic()
        wait_until(lambda: rank(daemon, training.pid), 10)
        seen.found_seconds = time.monotonic() - first_step
        wait_until(lambda: steps(daemon, training.pid) > 40, 60)
        began, before = time.monotonic(), cpu_seconds(daemon.pid)
        while time.monotonic() - began < seconds:
            training.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            wait_until(lambda: stalls(daemon, training.pid, is_open=True), STALLED_SECONDS + 0.5)
            seen.published_seconds.append(time.monotonic() - stopped)
            seen.apart_seconds.append(seconds_between_reports(daemon))
            training.send_signal(signal.SIGCONT)
            wait_until(lambda: not stalls(daemon, training.pid, is_open=True), 15)
            seen.rss.append(resident(daemon.pid))
            seen.descriptors.append(len(os.listdir(f"/proc/{daemon.pid}/fd")))
            seen.refusals |= refusals(daemon)
            time.sleep(2)
        causes = (one["cause"] for one in stalls(daemon, training.pid, is_open=False))
        seen.other_stalls = Counter(cause for cause in causes if cause != "suspended")
        seen.cpu_share = (cpu_seconds(daemon.pid) - before) / (time.monotonic() - began)
    if (places := REFUSED.get(how)) and not places & seen.refusals.keys():
        wait_until(lambda: places & refusals(daemon).keys(), TOLD_SECONDS)
        seen.refusals |= refusals(daemon)
    return seen


@dataclass
class Scraped:
    """What an exporter used while slow clients kept it busy, and how long Prometheus waited."""

    seconds: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    cpu_share: float = 0.0

    def __str__(self) -> str:
        return (
            f"{len(self.seconds)} scrapes, the slowest took {max(self.seconds):.2f} s, half of them"
            f" {statistics.median(self.seconds):.3f} s; {max(self.rss) / 1e6:.1f} MB,"
            f" {max(self.descriptors)} descriptors, {self.cpu_share:.1%} of a core"
        )

    def hold(self) -> None:
        assert max(self.seconds) <= SCRAPE_SECONDS
        assert max(self.rss) <= EXPORTER_RSS_BYTES
        assert self.cpu_share <= CPU_SHARE


def scrape_again_and_again(pid: int, scrape: Callable[[], str]) -> Scraped:
    """``pid``: the exporter's. Each scrape is answered, or raises."""
    seen = Scraped()
    began, before = time.monotonic(), cpu_seconds(pid)
    while time.monotonic() - began < SECONDS:
        asked = time.monotonic()
        assert "trainprobe_build_info" in scrape()
        seen.seconds.append(time.monotonic() - asked)
        seen.rss.append(resident(pid))
        seen.descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))
        time.sleep(0.5)
    seen.cpu_share = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    return seen
