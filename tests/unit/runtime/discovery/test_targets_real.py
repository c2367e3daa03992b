"""Targets on real processes: a file called libtorch_cpu.so is mapped, the kernel side is a fake that tells nothing."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.runtime.discovery.test_targets import Candidate, FakeKernel, ended, kinds, seen, started
from trainprobe.collect.procfs import Proc
from trainprobe.config.schema import TargetsConfig
from trainprobe.model.cells import Region, RowKind
from trainprobe.model.event import MarkRow, ProcessEvent, ProcessEventKind, RankSeen
from trainprobe.model.moment import NS, Moment
from trainprobe.runtime.discovery.targets import Targets

TRAINING = """
import mmap, multiprocessing, sys, time

def work():
    time.sleep(60)

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        library = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    if sys.argv[2] != "none":
        context = multiprocessing.get_context(sys.argv[2])
        children = [context.Process(target=work, daemon=True) for _ in range(2)]
        for child in children:
            child.start()
        print(*[child.pid for child in children], flush=True)
    else:
        print(flush=True)
    time.sleep(60)
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """An executable mapping needs a file system that allows it."""
    path = tmp_path / "libtorch_cpu.so"
    path.write_bytes(b"x" * mmap.PAGESIZE)
    (tmp_path / "train.py").write_text(TRAINING)
    return path


@contextmanager
def training(library: Path, method: str, *wrapper: str) -> Iterator[tuple[int, list[int]]]:
    """(pid, pids of its two children); all of them end with it."""
    command = [*wrapper, sys.executable, str(library.with_name("train.py")), str(library), method]
    environ = os.environ | {"RANK": "1", "WORLD_SIZE": "2"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, start_new_session=True) as process:
        assert process.stdout
        try:
            yield process.pid, [int(word) for word in process.stdout.readline().split()]
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def now() -> Moment:
    return Moment(time.monotonic_ns(), time.time_ns())


def row(pid: int) -> MarkRow:
    return MarkRow(RowKind.DRIVER, time.monotonic_ns(), pid, pid, "", Region.STEP, 0, 0, 0, 0, 0, 0, (), (), ())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_start_method(library: Path, method: str) -> None:
    kernel = FakeKernel()
    targets = Targets(kernel, TargetsConfig(auto=False))
    with training(library, method) as (pid, children):
        end = time.monotonic() + 10
        while len(list(Proc().descendants(pid))) < (2 if method == "fork" else 3) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        targets.attach(pid)
        events = targets.step(now(), [row(pid)])
        roles = {process.pid: process.role for process in targets.processes()}
    assert kernel.watched == [pid]
    assert kernel.marked == [(pid, str(library))]
    (begun,) = started(events)
    assert begun.command == (sys.executable, str(library.with_name("train.py")), str(library), method)
    assert (begun.launcher_pid, begun.cwd, begun.run.rpartition("-")[0]) == (pid, os.getcwd(), "train.py")
    assert [(rank.rank, rank.world_size, rank.container_pid) for rank in seen(events)] == [(1, 2, pid)] * 2
    assert roles.pop(pid) == "driver"
    assert {child: roles.pop(child) for child in children} == dict.fromkeys(children, "worker")
    assert set(roles.values()) <= {"helper"}


def test_a_training_is_found_by_its_exec(library: Path) -> None:
    kernel = FakeKernel()
    targets = Targets(kernel, TargetsConfig())
    targets.step(now(), [])
    with training(library, "none") as (pid, _):
        assert targets.step(now(), [Candidate(time.monotonic_ns(), pid)]) == []
        end = time.monotonic() + 10
        while pid not in kernel.watched and time.monotonic() < end:
            time.sleep(0.02)
            targets.step(now(), [])
        assert (pid, str(library)) in kernel.marked
        events = targets.step(now(), [row(pid)])
        assert kinds(events) == ["RunStarted", "RankSeen", "MarkRow"]
        assert not started(events)[0].attached
        assert abs(time.monotonic_ns() - started(events)[0].at_ns) < 20 * NS
    events = targets.step(now(), [ProcessEvent(ProcessEventKind.EXIT, time.monotonic_ns(), pid, signal=9)])
    assert len(ended(events)) == 1


def test_a_training_that_runs_already_is_found_by_the_first_scan(library: Path) -> None:
    kernel = FakeKernel()
    targets = Targets(kernel, TargetsConfig())
    with training(library, "none") as (pid, _):
        end = time.monotonic() + 10
        while pid not in kernel.watched and time.monotonic() < end:
            targets.step(now(), [])
            time.sleep(0.01)
        assert pid in kernel.watched


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
def test_a_training_in_another_pid_namespace(library: Path) -> None:
    kernel = FakeKernel()
    targets = Targets(kernel, TargetsConfig(auto=False))
    with training(library, "none", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child") as (outer, _):
        targets.attach(outer)
        (inner,) = Proc().children(outer)
        ranks = [event for event in targets.step(now(), [row(inner)]) if isinstance(event, RankSeen)]
    assert (ranks[-1].pid, ranks[-1].container_pid, ranks[-1].candidate) == (inner, 1, False)
    assert kernel.marked == [(inner, str(library))]
