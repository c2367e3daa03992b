"""What reaches a training from outside: a kill, a stop, rivals, a reader of its stdout that takes its time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks import programs


@dataclass
class Killed:
    """A worker that was killed, and when (UNIX seconds, just before the kill)."""

    pid: int
    at: float


class Killer(threading.Thread):
    """Sends SIGKILL to one worker, ``after`` seconds after the first one is there."""

    def __init__(self, script: str, plan: str, after: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._script, self._plan, self._after = script, plan, after
        self._choice = random.Random(seed)
        self._ended = threading.Event()
        self.killed: Killed | None = None

    def run(self) -> None:
        while not find_workers(self._script, self._plan):
            if self._ended.wait(0.1):
                return
        if self._ended.wait(self._after):
            return
        workers = find_workers(self._script, self._plan)
        if workers:
            pid, at = self._choice.choice(workers), time.time()
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed = Killed(pid, at)

    def stop(self) -> None:
        self._ended.set()
        self.join()


class Disturber(threading.Thread):
    """Carries out what a plan does to a training from outside: stops it, cuts its quota, takes its processors.

    Times count from the first worker (or, where there is none, the training) that is seen.
    """

    def __init__(self, script: str, plan: str, acts: Sequence[tuple[str, float, float]]) -> None:
        super().__init__(daemon=True)
        self._script, self._plan, self._acts = script, plan, sorted(acts, key=lambda act: act[1])
        self._ended = threading.Event()
        self.done: list[tuple[str, int, int]] = []
        """(what, begin, end) in CLOCK_MONOTONIC nanoseconds."""

    def run(self) -> None:
        while not find_trainings(self._script, self._plan):
            if self._ended.wait(0.05):
                return
        begin = time.monotonic()
        for what, after, seconds in self._acts:
            if self._ended.wait(max(begin + after - time.monotonic(), 0)):
                return
            started = time.monotonic_ns()
            with ACTS[what](find_trainings(self._script, self._plan)):
                self._ended.wait(seconds)
            self.done.append((what, started, time.monotonic_ns()))

    def stop(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def stopped(trainings: Sequence[int]) -> Iterator[None]:
    """SIGSTOP to the training itself, not to its workers."""
    for pid in trainings:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in trainings:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def throttled(trainings: Sequence[int]) -> Iterator[None]:
    """A fifth of a processor for the training and its children, by a cgroup of its own (v1)."""
    group = CPU / f"trainprobe-stalls-{os.getpid()}"
    homes = {pid: CPU / _cpu_group(pid).lstrip("/") for pid in family_of(trainings)}
    group.mkdir(exist_ok=True)
    try:
        for pid in homes:
            _move(pid, group)
        (group / "cpu.cfs_quota_us").write_text("20000")
        yield
    finally:
        (group / "cpu.cfs_quota_us").write_text("-1")
        for pid in [int(word) for word in (group / "cgroup.procs").read_text().split()]:
            _move(pid, homes.get(pid, CPU))
        group.rmdir()


@contextmanager
def crowded(trainings: Sequence[int]) -> Iterator[None]:
    """Four busy processes for each processor."""
    del trainings
    with programs.rivals(4 * len(os.sched_getaffinity(0))):
        yield


@contextmanager
def writing(trainings: Sequence[int]) -> Iterator[None]:
    """Another program of the same interpreter makes features and writes them as .pth, where the training works."""
    with _beside(trainings, "beside.py", "{folder}", "1000", "64"):
        yield


@contextmanager
def training(trainings: Sequence[int]) -> Iterator[None]:
    """Another training that stalls, with checkpoints and with computing of its own between its steps."""
    faults: list[dict[str, Any]] = [
        {"id": 0, "cause": "checkpoint", "how": "save_path", "every": 40, "size": 1 << 26, "at": {"0": 1 << 26}},
        {"id": 1, "cause": "cpu_bound", "how": "python", "every": 55, "size": 0.7},
    ]
    plan = {"seed": 1, "width": 256, "batch": 64, "workers": 0, "steps": 1 << 20, "driver": faults}
    with _beside(trainings, "plain.py", "--plan", "{plan}", "--truth", "/dev/null", plan=plan):
        yield


@contextmanager
def _beside(trainings: Sequence[int], script: str, *words: str, plan: dict[str, Any] | None = None) -> Iterator[None]:
    """A script of ``trainings`` with the training's own interpreter."""
    interpreter = Path(f"/proc/{trainings[0]}/cmdline").read_bytes().split(b"\0")[0].decode()
    with tempfile.TemporaryDirectory(prefix="trainprobe-beside-") as folder:
        if plan is not None:
            faults = [fault | {"directory": folder} for fault in plan["driver"]]
            Path(folder, "plan.json").write_text(json.dumps(plan | {"driver": faults, "scratch": folder}))
        job = [word.format(folder=folder, plan=f"{folder}/plan.json") for word in words]
        process = subprocess.Popen([interpreter, str(TRAININGS / script), *job], stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait()


TRAININGS = Path(__file__).resolve().parent / "trainings"
CPU = Path("/sys/fs/cgroup/cpu")
ACTS = {"stop": stopped, "quota": throttled, "hogs": crowded, "pth": writing, "neighbour": training}


def _cpu_group(pid: int) -> str:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path
    return "/"


def _move(pid: int, group: Path) -> None:
    try:
        (group / "cgroup.procs").write_text(str(pid))
    except ProcessLookupError:
        pass


class SlowReader(threading.Thread):
    """Reads a pipe to its end at no more than ``rate`` bytes/s (None: as fast as it comes)."""

    def __init__(self, pipe: IO[bytes], rate: int | None) -> None:
        super().__init__(daemon=True)
        self._pipe, self._rate = pipe, rate

    def run(self) -> None:
        descriptor = self._pipe.fileno()
        while data := os.read(descriptor, 4096):
            if self._rate:
                time.sleep(len(data) / self._rate)


def find_workers(script: str, plan: str) -> list[int]:
    """Processes that a training forked (they keep its command line) or spawned, itself left out."""
    parents, trainings = _processes(script, plan)
    heads = {pid for pid in trainings if parents[pid] not in trainings}
    return sorted(pid for pid, parent in parents.items() if parent in heads)


def find_trainings(script: str, plan: str) -> list[int]:
    """The trainings themselves, without what they forked."""
    parents, trainings = _processes(script, plan)
    return sorted(pid for pid in trainings if parents[pid] not in trainings)


def family_of(pids: Sequence[int]) -> list[int]:
    """These and all their descendants."""
    parents, _ = _processes("", "")
    family = list(pids)
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid and child not in family]
    return family


def _processes(script: str, plan: str) -> tuple[dict[int, int], set[int]]:
    """Every process's parent, and those that run the script with the plan."""
    parents: dict[int, int] = {}
    trainings: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        parents[int(entry.name)] = parent
        runs = script and len(arguments) > 2 and arguments[1].decode(errors="replace").endswith(script)
        if runs and plan.encode() in arguments:
            trainings.add(int(entry.name))
    return parents, trainings
